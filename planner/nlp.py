"""Nonlinear programmes: assembly from compiled blocks, and solution by IPOPT within a time limit.

`Deadline` limits CPU time, since iterations on ill-conditioned matrices are slow, and ends the search with an error: a faster
machine may find a plan where a slower one finds none, but never another one. Compiled derivatives take a tenth of the time.

`Blocks`: a small function, applied many times. Its derivatives are assembled, J = diag(J_k) A and H = A' diag(H_k) A, where the
constant matrix A selects each block's variables.
"""

import contextlib
import hashlib
import io
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from gate_racer.common.cache import entry
from gate_racer.common.errors import UserError
from gate_racer.common.files import FileError
from gate_racer.vehicle.rotation import Array


class OutOfTimeError(UserError):
    """No plan was found within the time limit."""


@dataclass(frozen=True)
class Deadline:
    """End of a search after `limit_s` of CPU time, by the process's clock."""

    limit_s: float  # s of CPU time
    until_s: float  # s, by `time.process_time`

    @staticmethod
    def after(limit_s: float, left_s: float | None = None) -> "Deadline":
        """Start a limit now, in this process; `left_s` is the remaining time if another process has used some."""
        return Deadline(limit_s, time.process_time() + (limit_s if left_s is None else left_s))

    @property
    def left_s(self) -> float:
        """Remaining CPU time, s. Raises OutOfTimeError if none is left."""
        left = self.until_s - time.process_time()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> OutOfTimeError:
        mend = "a gate may be nearly unreachable; limit_s allows more time"
        return OutOfTimeError(f"no plan within {self.limit_s:g} s of CPU time; {mend}")


ENDLESS = Deadline(inf, inf)


LIBRARY = "function.so"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O1", "-shared", "-fPIC")  # -O2 takes twice as long to compile and is no faster


def find_compiler() -> str | None:
    """Return the path of a C compiler, or None; always None on Windows, where its libraries cannot be loaded."""
    return next((path for name in COMPILERS if os.name != "nt" and (path := shutil.which(name))), None)


def compiled(*functions: ca.Function) -> tuple[ca.Function, ...]:
    """Return the functions from a shared library named after the first, or unchanged if they cannot be compiled."""
    compiler, first = find_compiler(), functions[0].name()
    if compiler is None:
        return functions
    text = repr(([one.serialize() for one in functions], ca.CasadiMeta.version(), FLAGS))

    def build(folder: Path) -> None:
        generator, source = ca.CodeGenerator(f"{first}.c"), folder / f"{first}.c"
        for one in functions:
            generator.add(one)
        generator.generate(f"{folder}/")
        subprocess.run([compiler, *FLAGS, source, "-o", folder / LIBRARY], capture_output=True, check=True)
        source.unlink()

    try:
        folder = entry(f"{first}-{hashlib.sha256(text.encode()).hexdigest()[:16]}", build)
        return tuple(ca.external(one.name(), str(folder / LIBRARY)) for one in functions)
    except (FileError, subprocess.CalledProcessError, RuntimeError):  # no cache, no compilation, or no loading
        return functions


class Block(NamedTuple):
    """Function and derivatives: values (z, p) -> (M), jacobian (z, p) -> (M, NZ), hessian (z, p, multipliers (M)) -> (NZ, NZ)."""

    values: ca.Function
    jacobian: ca.Function
    hessian: ca.Function

    @staticmethod
    def of(name: str, z: Any, p: Any, values: Any) -> "Block":
        """Build a block from SX expressions (M, 1) of variables z and parameters p."""
        return Block(*compiled(*_plain(name, z, p, values)))

    @staticmethod
    def integration(name: str, x: Any, u: Any, dt: Any, p: Any, end: Any, steps: int) -> "Block":
        """Build the state after `steps` equal steps, z = (x, u, dt), from `end`, that after one, which is compiled only once."""
        step = _plain(name, ca.vertcat(x, u, dt), p, end)
        nx, size = x.numel(), x.numel() + u.numel() + 1
        z, p, costate = ca.MX.sym("z", size), ca.MX.sym("p", p.numel()), ca.MX.sym("costate", nx)
        held = ca.vertcat(z[nx : size - 1], z[size - 1] / steps)  # u and dt of every step
        held_by_held = ca.diag(ca.DM([1.0] * (size - nx - 1) + [1 / steps]))
        held_by_z = ca.horzcat(ca.MX(size - nx, nx), held_by_held)
        states, sensitivities, jacobians = [z[:nx]], [ca.MX(ca.diagcat(ca.DM.eye(nx), held_by_held))], []
        for _ in range(steps):
            at = ca.vertcat(states[-1], held)
            states.append(step.values(at, p))
            jacobians.append(step.jacobian(at, p))
            sensitivities.append(ca.vertcat(jacobians[-1] @ sensitivities[-1], held_by_z))
        hessian, adjoint = ca.MX(size, size), costate
        for k in reversed(range(steps)):
            of_step = step.hessian(ca.vertcat(states[k], held), p, adjoint)
            hessian += sensitivities[k].T @ of_step @ sensitivities[k]
            adjoint = jacobians[k][:, :nx].T @ adjoint
        functions = (
            ca.Function(f"{name}{steps}", [z, p], [states[-1]]),
            ca.Function(f"{name}{steps}_jacobian", [z, p], [sensitivities[-1][:nx, :]]),
            ca.Function(f"{name}{steps}_hessian", [z, p, costate], [hessian]),
        )
        return Block(*compiled(*functions))


def _plain(name: str, z: Any, p: Any, values: Any) -> Block:
    multipliers = ca.SX.sym("multipliers", values.numel())
    hessian, _ = ca.hessian(ca.dot(multipliers, values), z)
    return Block(
        ca.Function(name, [z, p], [values]),
        ca.Function(f"{name}_jacobian", [z, p], [ca.jacobian(values, z)]),
        ca.Function(f"{name}_hessian", [z, p, multipliers], [hessian]),
    )


@dataclass(frozen=True)
class Blocks:
    """Block applied N times: z (NZ, N), MX, affine in the variables of a programme, and parameters p (NP, N)."""

    block: Block
    z: Any
    p: Any

    @property
    def values(self) -> Any:
        return ca.vec(self.block.values.map(self.z.shape[1])(self.z, self.p))

    def selection(self, w: Any) -> Any:
        """Return the constant matrix A (NZ N, W), the derivative of all z with respect to the variables w (W, 1)."""
        return ca.Function("selection", [w], [ca.jacobian(ca.vec(self.z), w)])(0)

    def jacobian(self, selection: Any) -> Any:
        return self._diagonal(self.block.jacobian, self.z, self.p) @ selection

    def hessian(self, selection: Any, multipliers: Any) -> Any:
        """Return the Hessian (W, W) of the values weighted by their multipliers (M N, 1)."""
        of_each = ca.reshape(multipliers, -1, self.z.shape[1])
        return selection.T @ (self._diagonal(self.block.hessian, self.z, self.p, of_each) @ selection)

    def _diagonal(self, function: ca.Function, *given: Any) -> Any:
        """Return the results of all N applications as one block-diagonal matrix."""
        n = self.z.shape[1]
        return ca.sparsity_cast(function.map(n)(*given), ca.diagcat(*[function.sparsity_out(0)] * n))


# IPOPT with MUMPS: SPRAL takes the same steps at two to five times the cost, FATROP 0.7 to 1.2 times the time (3 to 57 gates).
AMF = 2  # MUMPS's approximate minimum fill ordering, by 40 % the fastest of its orderings on these banded systems
DAY_S = 86400.0  # s, largest time limit, since IPOPT accepts no infinite one


class Rows(NamedTuple):
    """Constraints low <= expression + blocks <= high on a vector (M, 1)."""

    expression: Any
    low: Array | Sequence[float]
    high: Array | Sequence[float]
    blocks: Blocks | None = None

    @staticmethod
    def not_negative(expression: Any) -> "Rows":
        size = expression.numel()
        return Rows(ca.vec(expression), np.zeros(size), np.full(size, np.inf))

    @staticmethod
    def zero(expression: Any, blocks: Blocks | None = None) -> "Rows":
        size = expression.numel()
        return Rows(ca.vec(expression), np.zeros(size), np.zeros(size), blocks)

    @staticmethod
    def not_negative_blocks(block: Block, z: Any, p: Any) -> "Rows":
        """Return values >= 0 for a block at variables z (NZ, N) with parameters p (NP, N)."""
        size = block.values.size1_out(0) * z.shape[1]
        return Rows(ca.MX(size, 1), np.zeros(size), np.full(size, np.inf), Blocks(block, z, p))


@dataclass(frozen=True)
class Minimum:
    """Result of IPOPT; check `success`."""

    w: Any  # variables, in the order of the programme
    lam_w: Any  # multipliers of their bounds, in the same order
    lam_g: Array  # multipliers of the constraints
    success: bool
    status: str
    iterations: int


@dataclass
class Nlp:
    """Nonlinear programme: variables with bounds and initial values, and constraints."""

    variables: list = field(default_factory=list)
    guesses: list = field(default_factory=list)
    lows: list = field(default_factory=list)
    highs: list = field(default_factory=list)
    rows: list[Rows] = field(default_factory=list)

    def variable(self, symbol: Any, guess: Array, low: Array, high: Array) -> None:
        """Add a variable (n, m), column by column: guess (n, m), bounds (n, m) or (n, 1)."""
        self.variables.append(symbol)
        for store, values in ((self.guesses, guess), (self.lows, low), (self.highs, high)):
            store.append(np.broadcast_to(values, symbol.shape).T.ravel())

    @property
    def size(self) -> int:
        return sum(len(rows.low) for rows in self.rows)

    def minimise(self, objective: Any, settings: dict, duals: dict[str, Array], deadline: Deadline) -> Minimum:
        """Minimise an objective by IPOPT from initial multipliers `duals`. Raises OutOfTimeError, KeyboardInterrupt."""
        w, plain = ca.veccat(*self.variables), ca.veccat(*(rows.expression for rows in self.rows))
        blocks = ca.vertcat(*(rows.blocks.values if rows.blocks else ca.MX(len(rows.low), 1) for rows in self.rows))
        problem = {"x": w, "f": objective, "g": plain + blocks}
        options = {"print_time": 0, "ipopt.print_level": 0, "ipopt.sb": "yes", "no_nlp_grad": True}
        options |= {"ipopt.mumps_pivot_order": AMF, **settings, "ipopt.max_cpu_time": min(deadline.left_s, DAY_S)}
        options |= self._derivatives(w, objective, plain, problem["g"])
        solver = ca.nlpsol("plan", "ipopt", problem, options)
        with contextlib.redirect_stderr(io.StringIO()):  # CasADi's warnings, as of a Ctrl-C; the status tells the same
            result = solver(
                x0=np.concatenate(self.guesses),
                lbx=np.concatenate(self.lows),
                ubx=np.concatenate(self.highs),
                lbg=np.concatenate([rows.low for rows in self.rows]),
                ubg=np.concatenate([rows.high for rows in self.rows]),
                **duals,
            )
        stats = solver.stats()
        status = stats["return_status"]
        # CasADi converts a Ctrl-C while IPOPT runs into a status; raise it again.
        if status in ("User_Requested_Stop", "NonIpopt_Exception_Thrown"):
            raise KeyboardInterrupt
        if status == "Maximum_CpuTime_Exceeded":
            raise deadline.error()
        lam_g = result["lam_g"].full().ravel()
        return Minimum(result["x"], result["lam_x"], lam_g, stats["success"], status, int(stats["iter_count"]))

    def _derivatives(self, w: Any, objective: Any, plain: Any, g: Any) -> dict[str, ca.Function]:
        """Return constraint Jacobian and Hessian of the Lagrangian: CasADi's for plain expressions, plus those of the blocks."""
        p, lam_f, lam_g = ca.MX.sym("p", 0, 0), ca.MX.sym("lam_f"), ca.MX.sym("lam_g", self.size)
        hessian, _ = ca.hessian(lam_f * objective + ca.dot(lam_g, plain), w)
        parts, end = [], 0
        for rows in self.rows:
            size, end = len(rows.low), end + len(rows.low)
            parts.append(ca.MX(size, w.numel()))
            if rows.blocks is not None:
                selection = rows.blocks.selection(w)
                parts[-1] = rows.blocks.jacobian(selection)
                hessian += rows.blocks.hessian(selection, lam_g[end - size : end])
        jacobian = ca.jacobian(plain, w) + ca.vertcat(*parts)
        return {
            "jac_g": ca.Function("jac_g", [w, p], [g, jacobian]),
            "hess_lag": ca.Function("hess_lag", [w, p, lam_f, lam_g], [ca.triu(hessian)]),
        }

    def values(self, expressions: list, w: Any) -> list[Array]:
        return [value.full() for value in ca.Function("values", [ca.veccat(*self.variables)], expressions)(w)]
