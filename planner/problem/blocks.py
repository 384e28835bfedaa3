"""Blocks: one small function of few variables, at many places of a programme, with its exact derivatives as machine code.

Differentiated as a whole, a programme is coloured and its derivatives run in CasADi's virtual machine. Those of blocks are
put together instead, J = diag(J_k) A and H = A' diag(H_k) A, where the constant A takes each block's variables from all.
"""

from dataclasses import dataclass
from typing import Any

import casadi as ca

from planner.problem.compiled import compiled


@dataclass(frozen=True)
class Block:
    """values (z, p) -> (M), jacobian (z, p) -> (M, NZ) and hessian (z, p, multipliers (M)) -> (NZ, NZ)."""

    values: ca.Function
    jacobian: ca.Function
    hessian: ca.Function

    @staticmethod
    def of(name: str, z: Any, p: Any, values: Any) -> "Block":
        """Expressions (M, 1) of the variables z and parameters p, SX."""
        return _plain(name, z, p, values).compiled()

    @staticmethod
    def integration(name: str, x: Any, u: Any, dt: Any, end: Any, steps: int) -> "Block":
        """The state after so many equal steps, z = (x, u, dt), of which each is `end`, SX, after dt.

        Derivatives by the chain rule: a step's machine code is compiled once.
        """
        step = _plain(name, ca.vertcat(x, u, dt), ca.SX(0, 1), end)
        nx, size = x.numel(), x.numel() + u.numel() + 1
        z, p, multipliers = ca.MX.sym("z", size), ca.MX.sym("p", 0), ca.MX.sym("multipliers", nx)
        held = ca.vertcat(z[nx : size - 1], z[size - 1] / steps)
        of_held = ca.diag(ca.DM([1.0] * (size - nx - 1) + [1 / steps]))
        of_z = ca.MX(ca.diagcat(ca.DM.eye(nx), of_held))
        below = ca.horzcat(ca.MX(size - nx, nx), of_held)
        states, turns, slopes = [z[:nx]], [of_z], []
        for _ in range(steps):
            at = ca.vertcat(states[-1], held)
            states.append(step.values(at, p))
            slopes.append(step.jacobian(at, p))
            turns.append(ca.vertcat(slopes[-1] @ turns[-1], below))
        curvature, back = ca.MX(size, size), multipliers
        for k in reversed(range(steps)):
            bend = step.hessian(ca.vertcat(states[k], held), p, back)
            curvature += turns[k].T @ bend @ turns[k]
            back = slopes[k][:, :nx].T @ back
        values = ca.Function(f"{name}{steps}", [z, p], [states[-1]])
        jacobian = ca.Function(f"{name}{steps}_jacobian", [z, p], [turns[-1][:nx, :]])
        hessian = ca.Function(f"{name}{steps}_hessian", [z, p, multipliers], [curvature])
        return Block(values, jacobian, hessian).compiled()

    def compiled(self) -> "Block":
        return Block(*compiled(self.values, self.jacobian, self.hessian))


def _plain(name: str, z: Any, p: Any, values: Any) -> Block:
    multipliers = ca.SX.sym("multipliers", values.numel())
    bend, _ = ca.hessian(ca.dot(multipliers, values), z)
    return Block(
        ca.Function(name, [z, p], [values]),
        ca.Function(f"{name}_jacobian", [z, p], [ca.jacobian(values, z)]),
        ca.Function(f"{name}_hessian", [z, p, multipliers], [bend]),
    )


@dataclass(frozen=True)
class Blocks:
    """A block at N places: z (NZ, N), MX, affine in the variables of a programme, and parameters p (NP, N)."""

    block: Block
    z: Any
    p: Any

    @property
    def values(self) -> Any:
        """(M N, 1)."""
        return ca.vec(self.block.values.map(self.z.shape[1])(self.z, self.p))

    def choice(self, w: Any) -> Any:
        """A (NZ N, W), constant: the derivative of all z with respect to the variables w (W, 1)."""
        return ca.Function("choice", [w], [ca.jacobian(ca.vec(self.z), w)])(0)

    def jacobian(self, choice: Any) -> Any:
        """(M N, W)."""
        return self._diagonal(self.block.jacobian, self.z, self.p) @ choice

    def hessian(self, choice: Any, multipliers: Any) -> Any:
        """(W, W) of the values times their multipliers (M N, 1)."""
        of_each = ca.reshape(multipliers, -1, self.z.shape[1])
        return choice.T @ (self._diagonal(self.block.hessian, self.z, self.p, of_each) @ choice)

    def _diagonal(self, function: ca.Function, *given: Any) -> Any:
        """The results at all places as one block-diagonal matrix."""
        n = self.z.shape[1]
        return ca.sparsity_cast(function.map(n)(*given), ca.diagcat(*[function.sparsity_out(0)] * n))
