"""Blocks: a small function of few variables, applied many times in a programme, with exact derivatives as machine code.

CasADi differentiates a programme by graph colouring, and evaluates the result in its virtual machine. The derivatives of blocks
are assembled instead, J = diag(J_k) A and H = A' diag(H_k) A, where the constant matrix A selects each block's variables.
"""

from dataclasses import dataclass
from typing import Any

import casadi as ca

from gate_racer.planner.problem.compiled import compiled


@dataclass(frozen=True)
class Block:
    """Function and derivatives: values (z, p) -> (M), jacobian (z, p) -> (M, NZ), hessian (z, p, multipliers (M)) -> (NZ, NZ)."""

    values: ca.Function
    jacobian: ca.Function
    hessian: ca.Function

    @staticmethod
    def of(name: str, z: Any, p: Any, values: Any) -> "Block":
        """Build a block from SX expressions (M, 1) of variables z and parameters p."""
        return _plain(name, z, p, values).compiled()

    @staticmethod
    def integration(name: str, x: Any, u: Any, dt: Any, p: Any, end: Any, steps: int) -> "Block":
        """Build the state after `steps` equal steps, z = (x, u, dt); `end`, SX, is the state after one step of length dt.

        Derivatives follow by the chain rule, so that a step is compiled only once.
        """
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
        return Block(
            ca.Function(f"{name}{steps}", [z, p], [states[-1]]),
            ca.Function(f"{name}{steps}_jacobian", [z, p], [sensitivities[-1][:nx, :]]),
            ca.Function(f"{name}{steps}_hessian", [z, p, costate], [hessian]),
        ).compiled()

    def compiled(self) -> "Block":
        """Return the block with its functions compiled."""
        return Block(*compiled(self.values, self.jacobian, self.hessian))


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
        """Values (M N, 1)."""
        return ca.vec(self.block.values.map(self.z.shape[1])(self.z, self.p))

    def selection(self, w: Any) -> Any:
        """Return the constant matrix A (NZ N, W), the derivative of all z with respect to the variables w (W, 1)."""
        return ca.Function("selection", [w], [ca.jacobian(ca.vec(self.z), w)])(0)

    def jacobian(self, selection: Any) -> Any:
        """Return the Jacobian (M N, W)."""
        return self._diagonal(self.block.jacobian, self.z, self.p) @ selection

    def hessian(self, selection: Any, multipliers: Any) -> Any:
        """Return the Hessian (W, W) of the values weighted by their multipliers (M N, 1)."""
        of_each = ca.reshape(multipliers, -1, self.z.shape[1])
        return selection.T @ (self._diagonal(self.block.hessian, self.z, self.p, of_each) @ selection)

    def _diagonal(self, function: ca.Function, *given: Any) -> Any:
        """Return the results of all N applications as one block-diagonal matrix."""
        n = self.z.shape[1]
        return ca.sparsity_cast(function.map(n)(*given), ca.diagcat(*[function.sparsity_out(0)] * n))
