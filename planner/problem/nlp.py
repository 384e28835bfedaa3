"""Assembly of a nonlinear programme, and its solution by IPOPT."""

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO

import casadi as ca
import numpy as np

from gate_racer.planner.problem.blocks import Block, Blocks
from gate_racer.planner.problem.deadline import Deadline
from gate_racer.vehicle.rotation import Array

# IPOPT with MUMPS: SPRAL takes the same steps at two to five times the cost, FATROP 0.7 to 1.2 times the time (3 to 57 gates).
AMF = 2  # MUMPS's approximate minimum fill ordering, by 40 % the fastest of its orderings on these banded systems
DAY_S = 86400.0  # s, largest time limit, since IPOPT accepts no infinite one
# Called with the iteration's number and the present flight time, s.
IterationCallback = Callable[[int, float], None] | None


class Rows(NamedTuple):
    """Constraints low <= expression + blocks <= high on a vector (M, 1)."""

    expression: Any
    low: Array | Sequence[float]
    high: Array | Sequence[float]
    blocks: Blocks | None = None

    @staticmethod
    def not_negative(expression: Any) -> "Rows":
        """Return expression >= 0."""
        size = expression.numel()
        return Rows(ca.vec(expression), np.zeros(size), np.full(size, np.inf))

    @staticmethod
    def zero(expression: Any, blocks: Blocks | None = None) -> "Rows":
        """Return expression + blocks = 0."""
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
        """Number of constraints so far."""
        return sum(len(rows.low) for rows in self.rows)

    def minimise(
        self,
        objective: Any,
        settings: dict,
        duals: dict[str, Array],
        deadline: Deadline,
        total: Any = None,
        progress: IterationCallback = None,
    ) -> Minimum:
        """Minimise an objective subject to the constraints.

        Args:
            settings: options of IPOPT.
            duals: initial multipliers, by CasADi's names.
            total: expression reported to `progress`.

        Raises:
            KeyboardInterrupt: on Ctrl-C.
            OutOfTimeError: the deadline has passed.
        """
        w, plain = ca.veccat(*self.variables), ca.veccat(*(rows.expression for rows in self.rows))
        quiet = {"print_time": 0, "ipopt.print_level": 0, "ipopt.sb": "yes", "no_nlp_grad": True}
        quiet |= {"ipopt.mumps_pivot_order": AMF}
        if progress is not None:
            watch = _Watch(w.numel(), self.size, ca.Function("total", [w], [total]), progress)
            quiet["iteration_callback"] = watch
        blocks = ca.vertcat(*(rows.blocks.values if rows.blocks else ca.MX(len(rows.low), 1) for rows in self.rows))
        problem = {"x": w, "f": objective, "g": plain + blocks}
        derivatives = self._derivatives(w, objective, plain, problem["g"])
        limit = {"ipopt.max_cpu_time": min(deadline.left_s, DAY_S)}
        solver = ca.nlpsol("plan", "ipopt", problem, {**quiet, **settings, **derivatives, **limit})
        with contextlib.redirect_stderr(_WithoutInterrupt(sys.stderr)):
            result = solver(
                x0=np.concatenate(self.guesses),
                lbx=np.concatenate(self.lows),
                ubx=np.concatenate(self.highs),
                lbg=np.concatenate([rows.low for rows in self.rows]),
                ubg=np.concatenate([rows.high for rows in self.rows]),
                **duals,
            )
        stats = solver.stats()
        # CasADi converts a Ctrl-C while IPOPT runs into a status; raise it again.
        if stats["return_status"] in ("User_Requested_Stop", "NonIpopt_Exception_Thrown"):
            raise KeyboardInterrupt
        if stats["return_status"] == "Maximum_CpuTime_Exceeded":
            raise deadline.error()
        return Minimum(
            result["x"],
            result["lam_x"],
            result["lam_g"].full().ravel(),
            stats["success"],
            stats["return_status"],
            int(stats["iter_count"]),
        )

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
        """Evaluate expressions of the variables at values w in the order of the programme."""
        return [value.full() for value in ca.Function("values", [ca.veccat(*self.variables)], expressions)(w)]


class _WithoutInterrupt(io.TextIOBase):
    """stderr without CasADi's warning of a Ctrl-C, which comes in pieces."""

    def __init__(self, stream: TextIO):
        self._stream, self._warning = stream, ""

    def write(self, text: str) -> int:
        if not self._warning and not text.startswith("CasADi - "):
            return self._stream.write(text)
        self._warning += text
        if text.endswith("\n"):
            if "KeyboardInterruptException" not in self._warning:
                self._stream.write(self._warning)
            self._warning = ""
        return len(text)


class _Watch(ca.Callback):  # type: ignore[misc]
    """Callback of IPOPT that reports its progress."""

    def __init__(self, nx: int, ng: int, total: ca.Function, report: Callable[[int, float], None]):
        ca.Callback.__init__(self)
        self.nx, self.ng, self.total, self.report, self.count = nx, ng, total, report, 0
        self.construct("progress", {})

    def get_n_in(self) -> int:
        return ca.nlpsol_n_out()

    def get_n_out(self) -> int:
        return 1

    def get_name_in(self, i: int) -> str:
        return ca.nlpsol_out(i)

    def get_sparsity_in(self, i: int) -> Any:
        size = {"f": 1, "x": self.nx, "lam_x": self.nx, "g": self.ng, "lam_g": self.ng}.get(ca.nlpsol_out(i), 0)
        return ca.Sparsity.dense(size, 1) if size else ca.Sparsity(0, 0)

    def eval(self, arg: Any) -> Any:
        self.report(self.count, float(self.total(arg[0])))
        self.count += 1
        return [0]
