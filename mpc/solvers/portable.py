"""The portable back-end: the same real-time iteration with CasADi alone, for machines without acados or a compiler.

One Gauss-Newton step per tick by multiple shooting. `prepare` evaluates the Jacobians and Gauss-Newton Hessians in one mapped
CasADi function over all stages and condenses, x_k = Phi_k x_0 + Gamma_k u + gamma_k (Bock and Plitt, 1984), which leaves
`solve` a small dense quadratic programme in the inputs and in the slacks s >= 0 of the soft constraints:

    minimise 1/2 u'Hu + g'u + weight/2 s's + price 1's,   limits on u,   -1 - s <= h <= 1 + s

All variables are increments from the last solution.
"""

import time

import casadi as ca
import numpy as np

from gate_racer.mpc.model import Buffered
from gate_racer.mpc.problem import Problem, Solution
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

PLUGIN = "daqp"  # DAQP (Arnstroem et al., 2022), a dual active-set method shipped with CasADi


class CasadiSolver:
    """`Solver` on CasADi and DAQP."""

    def __init__(self, problem: Problem, vehicle: Vehicle):
        N, form, nh = problem.settings.horizon.steps, problem.formulation, problem.symbols.h.numel()
        nx, nu = form.x.size, form.u.size
        self._x, self._u = np.zeros((N + 1, nx)), np.zeros((N, nu))
        self._low, self._high = problem.input_limits(vehicle)
        self._linearise, self._square_end = _stages(problem), _end(problem)
        # Condensing matrices Phi, gamma and Gamma; Gamma has a row per state and a column per input of all stages.
        self._phi, self._gamma = np.zeros((N + 1, nx, nx)), np.zeros((N + 1, nx))
        self._phi[0], self._by_u = np.eye(nx), np.zeros((N + 1, nx, N, nu))
        soft = N * nh
        n, rows = N * nu + soft, 2 * soft
        shapes = {"h": ca.Sparsity.dense(n, n), "a": ca.Sparsity.dense(rows, n)}
        conic = ca.conic("qp", PLUGIN, shapes, {"error_on_fail": False})
        self._qp = Buffered(conic)
        given = dict(zip(conic.name_in(), self._qp.arguments, strict=True))
        self._H, self._A = given["h"].reshape(n, n), given["a"].reshape(n, rows)
        self._g, self._lba, self._uba = (given[name].ravel() for name in ("g", "lba", "uba"))
        self._lbx, self._ubx = given["lbx"].ravel(), given["ubx"].ravel()
        self._found = self._qp.results[conic.name_out().index("x")].ravel()
        if nh:
            step_s, slack, w = problem.settings.horizon.step_s, np.arange(N * nu, n), problem.settings.weights
            self._H[slack, slack], self._g[slack] = step_s * w.gate_corridor, step_s * w.gate_corridor_price
            self._A[slack, np.arange(soft)] = 1.0  # -1 - s <= h
            self._A[slack, soft + np.arange(soft)] = -1.0  # h <= 1 + s
            self._ubx[slack] = np.inf
            self._uba[:soft], self._lba[soft:] = np.inf, -np.inf

    def start(self, x: Array, u: Array) -> None:
        self._x[:], self._u[:] = x, u

    def prepare(self, parameters: Array) -> None:
        stage, end, (N, nu), nx = self._linearise, self._square_end, self._u.shape, self._x.shape[1]
        for values, given in zip(stage.arguments, (self._x[:-1], self._u, parameters[:-1]), strict=True):
            values[:] = given
        stage()
        end.arguments[0][:], end.arguments[1][:] = self._x[-1:], parameters[-1:]
        end()
        after, J, H, g, h, C = stage.results
        J, H, C = (one.reshape(N, nx + nu, -1).swapaxes(1, 2) for one in (J, H, C))
        phi, gamma, by_u, gap = self._phi, self._gamma, self._by_u, after - self._x[1:]
        for k in range(N):
            A, B = J[k, :, :nx], J[k, :, nx:]
            phi[k + 1], gamma[k + 1] = A @ phi[k], A @ gamma[k] + gap[k]
            by_u[k + 1, :, :k] = (A @ by_u[k, :, :k].reshape(nx, -1)).reshape(nx, k, nu)
            by_u[k + 1, :, k] = B
        self._square(H, g, end.results[0], end.results[1].ravel())
        self._limit(h, C[:, :, :nx])

    def _square(self, H: Array, g: Array, H_end: Array, g_end: Array) -> None:
        """Condense the cost: its Hessian, and the part of its gradient that does not depend on the initial state."""
        (N, nu), nx, n = self._u.shape, self._x.shape[1], self._u.size
        by_u = self._by_u.reshape(N + 1, nx, n)
        Q = np.concatenate((H[:, :nx, :nx], H_end[None]))
        q = np.concatenate((g[:, :nx], g_end[None]))
        S, R = H[:, nx:, :nx], H[:, nx:, nx:]
        Qu = Q @ by_u
        cross = (S @ by_u[:-1]).reshape(n, n)
        whole = by_u.reshape(-1, n).T @ Qu.reshape(-1, n) + cross + cross.T
        for k in range(N):
            whole[k * nu : (k + 1) * nu, k * nu : (k + 1) * nu] += R[k]
        self._H[:n, :n] = whole
        along = Qu.reshape(-1, n).T
        self._g0 = along @ self._gamma.ravel() + by_u.reshape(-1, n).T @ q.ravel()
        self._g0 += (g[:, nx:] + (S @ self._gamma[:-1, :, None])[..., 0]).ravel()
        self._by_x0 = along @ self._phi.reshape(-1, nx) + (S @ self._phi[:-1]).reshape(n, nx)

    def _limit(self, h: Array, C: Array) -> None:
        N, nx, n, soft = len(self._u), self._x.shape[1], self._u.size, h.size
        self._lbx[:n], self._ubx[:n] = (self._low - self._u).ravel(), (self._high - self._u).ravel()
        self._A[:n, :soft] = self._A[:n, soft:] = (C @ self._by_u.reshape(N + 1, -1, n)[:-1]).reshape(soft, n).T
        self._rows_x0 = (C @ self._phi[:-1]).reshape(soft, nx)
        self._rows = (h + (C @ self._gamma[:-1, :, None])[..., 0]).ravel()

    def solve(self, x0: Array) -> Solution:
        begin = time.perf_counter()
        (N, nu), n, step = self._u.shape, self._u.size, x0 - self._x[0]
        self._g[:n] = self._g0 + self._by_x0 @ step
        at = self._rows + self._rows_x0 @ step
        self._lba[: len(at)], self._uba[len(at) :] = -1 - at, 1 - at
        self._qp()
        u = self._found[:n]
        self._x += self._phi @ step + self._gamma + self._by_u.reshape(N + 1, -1, n) @ u
        self._u += u.reshape(N, nu)
        status = 0 if self._qp.success else 1
        return Solution(self._x.copy(), self._u.copy(), status, time.perf_counter() - begin)


def _stages(problem: Problem) -> Buffered:
    """Build (x, u, p) of all stages -> successor state, its Jacobian, cost Hessian, gradient, constraints, their Jacobian."""
    s, horizon, w = problem.symbols, problem.settings.horizon, ca.DM(problem.symbols.w)
    z = ca.vertcat(s.x, s.u)
    J = ca.jacobian(s.y, z)
    H, g = horizon.step_s * J.T @ ca.diag(w) @ J, horizon.step_s * J.T @ (w * s.y)
    results = [s.after, ca.jacobian(s.after, z), H, g, s.h, ca.jacobian(s.h, z)]
    stage = ca.Function("stage", [s.x, s.u, s.p], [ca.densify(one) for one in results])
    return Buffered(stage.map(horizon.steps))


def _end(problem: Problem) -> Buffered:
    """Build (x, p) of the end -> Hessian and gradient of the terminal cost."""
    s, w = problem.symbols, ca.DM(problem.symbols.w_end)
    J = ca.jacobian(s.y_end, s.x)
    return Buffered(ca.Function("end", [s.x, s.p], [ca.densify(J.T @ ca.diag(w) @ J), ca.densify(J.T @ (w * s.y_end))]))
