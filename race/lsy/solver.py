"""The time-optimal problem over the rest of the course, solved by acados: one quadratic program per call, any mesh.

    min sum_k dt_k + small terms,  x_{k+1} = step(x_k, u_k, dt_k),  dt_{k+1} = dt_k within a leg, free where one begins
    A_k (p_k, v_k) + b_k >= 0 (soft): openings, frames, stands, poles, unseen places, as half-spaces from the last iterate

All that changes from tick to tick is a parameter, so that one compiled solver serves all courses and all of a flight.
"""

from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.mpc.solvers.acados import bound, load_generated, silence, with_tick
from gate_racer.race.lsy.model import ANGLES, DT, DT_NEXT, FC, NU, NX, F, drone, step
from gate_racer.vehicle.rotation import Array

NAME = "lsy"  # of the problem, in C
STEPS = 40  # intervals
ROWS = 12  # half-spaces a node
# Parameters of a stage: yaw, thrust gain, whether a leg ends here, reference of dt, weights of a row (6) and its offset.
YAW, GAIN, LAST, DT_REF, U_REF, HALFSPACES = 0, 1, 2, 3, slice(4, 7), 7
NP = HALFSPACES + 7 * ROWS
SHORTEST_S, LONGEST_S = 0.0005, 0.2  # s, of an interval
PACE = 20.0  # 1/s, weight of changes of durations from the last iterate, against the 1 of the time itself
EFFORT = np.array([0.004, 0.004, 0.00004])  # of commands beyond the present roll, pitch, thrust
INERTIA = np.array([0.03, 0.03, 0.0002])  # of changes of commands from the last iterate
TILT, THRUST_SHARE = 1.1, 0.95  # rad; of the largest thrust: the rest steers
PRICE, WEIGHT = 30.0, 300.0  # s/m, s/m^2, of violated half-spaces


class Solver:
    """One quadratic program at a time about a given iterate; keeps nothing between calls."""

    def __init__(self) -> None:
        """Load the compiled solver; the first time on a machine it is generated and compiled, in ten seconds."""
        self._solver = solver = _load()
        silence()
        least, most = np.array(drone().thrust_n) / drone().mass_kg
        low = np.array([-TILT, -TILT, least * 1.3, SHORTEST_S])
        high = np.array([TILT, TILT, most * THRUST_SHARE, LONGEST_S])
        for k in range(STEPS):
            solver.constraints_set(k, "lbu", low)
            solver.constraints_set(k, "ubu", high)
        self._p = np.zeros((STEPS + 1, NP))
        self._x0, self._x, self._u = np.zeros(NX), np.zeros((STEPS + 1, NX)), np.zeros((STEPS, NU))
        calls = (("start", (self._x, self._u)), ("prepare", (self._p,)), ("feedback", (self._x0, self._x, self._u)))
        self._start, self._prepare, self._feedback = (bound(solver, f"tick_{name}", given) for name, given in calls)

    def __call__(self, x: Array, u: Array, p: Array, x0: Array) -> tuple[Array, Array, int]:
        """Return the next iterate x (STEPS + 1, NX), u (STEPS, NU) from x0 (NX,), and acados's status, 0 if good."""
        self._x[:], self._u[:], self._p[:], self._x0[:] = x, u, p, x0
        self._start()
        self._prepare()
        status = self._feedback()
        return self._x.copy(), self._u.copy(), int(status)


def _formulate(template: Any, folder: Path) -> Any:
    model, ocp, d = template.AcadosModel(), template.AcadosOcp(), drone()
    x, u, p = ca.SX.sym("x", NX), ca.SX.sym("u", NU), ca.SX.sym("p", NP)
    model.name, model.x, model.u, model.p = NAME, x, u, p
    model.disc_dyn_expr = ca.vertcat(
        step(x, u, p[YAW], p[GAIN], x[DT], d), (1 - p[LAST]) * x[DT] + p[LAST] * u[DT_NEXT]
    )
    model.cost_y_expr = ca.vertcat(
        x[DT] - p[DT_REF], u[:2] - x[ANGLES], u[FC] - x[F], u[DT_NEXT] - x[DT], u[:3] - p[U_REF]
    )
    model.cost_y_expr_e = x[DT] - p[DT_REF]
    rows = ca.reshape(p[HALFSPACES:], 7, ROWS)
    model.con_h_expr = model.con_h_expr_e = ca.mtimes(rows[:6, :].T, x[:6]) + rows[6, :].T
    ocp.model, ocp.parameter_values = model, np.zeros(NP)
    ocp.dims.N = STEPS
    ocp.cost.cost_type = ocp.cost.cost_type_e = "NONLINEAR_LS"
    ocp.cost.W, ocp.cost.W_e = np.diag([PACE, *EFFORT, 0.01, *INERTIA]), np.array([[1e-3]])
    ocp.cost.yref, ocp.cost.yref_e = np.zeros(8), np.zeros(1)
    c = ocp.constraints
    c.x0, c.idxbu, c.lbu, c.ubu = np.zeros(NX), np.arange(NU), -np.ones(NU), np.ones(NU)
    c.lh = c.lh_e = np.zeros(ROWS)
    c.uh = c.uh_e = np.full(ROWS, 1e6)
    c.idxsh = c.idxsh_e = np.arange(ROWS)
    for end in ("", "_e"):
        for slack, value in (("Zl", WEIGHT), ("Zu", WEIGHT), ("zl", PRICE), ("zu", PRICE)):
            setattr(ocp.cost, slack + end, np.full(ROWS, value))
    o = ocp.solver_options
    o.tf = float(STEPS)
    o.nlp_solver_type, o.qp_solver, o.hessian_approx, o.integrator_type = (
        "SQP_RTI",
        "PARTIAL_CONDENSING_HPIPM",
        "GAUSS_NEWTON",
        "DISCRETE",
    )
    o.qp_solver_cond_N, o.qp_solver_iter_max, o.qp_tol, o.hpipm_mode = STEPS // 4, 40, 1e-5, "SPEED"
    o.levenberg_marquardt = 1e-5
    return with_tick(ocp, folder)


def _load() -> Any:
    sources = [path.read_text(encoding="utf-8") for path in (Path(__file__), Path(__file__).with_name("model.py"))]
    return load_generated(NAME, _formulate, [drone(), *sources])
