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
from gate_racer.race.lsy.level import rotation, rules
from gate_racer.race.lsy.model import DT, DT_NEXT, FC, NU, NX, F, P, Q, deviated, deviation, drone, step
from gate_racer.vehicle.rotation import Array

NAME = "lsy"  # of the problem, in C
STEPS = 40  # intervals
ROWS = 12  # half-spaces a node
# Parameters of a stage: thrust gain, whether a leg ends here, reference of dt, of inputs, of the attitudes here and at the
# next node, weights of a row (6) and its offset.
GAIN, LAST, DT_REF, U_REF, Q_REF, Q_NEXT, HALFSPACES = 0, 1, 2, slice(3, 6), slice(6, 10), slice(10, 14), 14
NP = HALFSPACES + 7 * ROWS
E, NE = slice(6, 9), NX - 1  # of the program's states, in which a deviation stands for the attitude
FARTHEST = 1.0  # rad, that an attitude moves in one iteration
STRETCH, STRETCH_S = 0.3, 0.005  # share of a duration, and s more, by which it changes in one; all else in proportion
DAMPING = 1e-3  # weight of all changes from the last iterate: at a hundredth of it the iterates cycle
SHORTEST_S, LONGEST_S = 0.0005, 0.2  # s, of an interval
PACE = 20.0  # 1/s, weight of changes of durations from the last iterate, against the 1 of the time itself
EFFORT = np.array([0.004, 0.004, 0.00004])  # of torques, and of thrust beyond the present one
INERTIA = np.array([0.02, 0.02, 0.0002])  # of changes of inputs from the last iterate
TORQUE_SHARE, TURN_SHARE = 0.9, 0.8  # of the loop's largest torques and rates: the rest corrects
ARENA_M = 0.1  # m, kept from walls and ceiling, beyond which a flight ends
PRICE, WEIGHT = 30.0, 300.0  # s/m, s/m^2, of violated half-spaces


class Solver:
    """One quadratic program at a time about a given iterate; keeps nothing between calls."""

    def __init__(self) -> None:
        """Load the compiled solver; the first time on a machine it is generated and compiled, in ten seconds."""
        sources = [path.read_text(encoding="utf-8") for path in (Path(__file__), Path(__file__).with_name("model.py"))]
        self._solver = solver = load_generated(NAME, _formulate, [drone(), rules(), *sources])
        silence()
        self._p = np.zeros((STEPS + 1, NP))
        self._x0, self._x, self._u = np.zeros(NE), np.zeros((STEPS + 1, NE)), np.zeros((STEPS, NU))
        calls = (("start", (self._x, self._u)), ("prepare", (self._p,)), ("feedback", (self._x0, self._x, self._u)))
        self._start, self._prepare, self._feedback = (bound(solver, f"tick_{name}", *given) for name, given in calls)

    def __call__(self, x: Array, u: Array, p: Array, x0: Array) -> tuple[Array, Array, int]:
        """Return the next iterate x (STEPS + 1, NX), u (STEPS, NU) from x0 (NX,), and acados's status, 0 if good."""
        last = np.delete(x, Q.start, axis=1)
        last[:, E] = 0.0
        self._x[:], self._u[:], self._p[:], self._x0[:] = last, u, p, np.delete(x0, Q.start)
        self._p[:, Q_REF], self._p[:-1, Q_NEXT] = x[:, Q], x[1:, Q]
        self._x0[E] = np.asarray(deviation(x[0, Q], x0[Q] * np.sign(x[0, Q] @ x0[Q]))).ravel()
        self._start()
        self._prepare()
        status = self._feedback()
        change = np.abs(self._x[:, -1] - last[:, -1]) / (STRETCH * last[:, -1] + STRETCH_S)
        part = 1.0 / max(1.0, float(change.max()))
        self._x[:], self._u[:] = last + part * (self._x - last), u + part * (self._u - u)
        new = np.insert(self._x, Q.start, 0.0, axis=1)
        turn = self._x[:, E] / np.maximum(1.0, np.linalg.norm(self._x[:, E], axis=1, keepdims=True) / FARTHEST)
        turn = np.column_stack([np.sqrt(1.0 - (turn**2).sum(axis=1) / 4), turn / 2])
        before, by = (rotation().from_quat(q, scalar_first=True) for q in (x[:, Q], turn))
        new[:, Q] = (before * by).as_quat(scalar_first=True)
        return new, self._u.copy(), int(status)


def _formulate(template: Any, folder: Path) -> Any:
    model, ocp, d = template.AcadosModel(), template.AcadosOcp(), drone()
    e, u, p = ca.SX.sym("x", NE), ca.SX.sym("u", NU), ca.SX.sym("p", NP)
    model.name, model.x, model.u, model.p = NAME, e, u, p
    x = ca.vertcat(e[: E.start], deviated(p[Q_REF], e[E]), e[E.stop :])
    after = step(x, u, p[GAIN], x[DT], d)
    after = ca.vertcat(after[: Q.start], deviation(p[Q_NEXT], after[Q]), after[Q.stop :])
    model.disc_dyn_expr = ca.vertcat(after, (1 - p[LAST]) * x[DT] + p[LAST] * u[DT_NEXT])
    model.cost_y_expr = ca.vertcat(x[DT] - p[DT_REF], u[:2], u[FC] - x[F], u[DT_NEXT] - x[DT], u[:3] - p[U_REF])
    model.cost_y_expr_e = x[DT] - p[DT_REF]
    rows = ca.reshape(p[HALFSPACES:], 7, ROWS)
    model.con_h_expr = model.con_h_expr_e = ca.mtimes(rows[:6, :].T, x[:6]) + rows[6, :].T
    ocp.model, ocp.parameter_values = model, np.zeros(NP)
    ocp.dims.N = STEPS
    ocp.cost.cost_type = ocp.cost.cost_type_e = "NONLINEAR_LS"
    ocp.cost.W, ocp.cost.W_e = np.diag([PACE, *EFFORT, 0.01, *INERTIA]), np.array([[1e-3]])
    ocp.cost.yref, ocp.cost.yref_e = np.zeros(8), np.zeros(1)
    c = ocp.constraints
    least, most = np.array(d.thrust_n) / d.mass_kg
    torque = np.full(2, TORQUE_SHARE)
    c.x0, c.idxbu = np.zeros(NE), np.arange(NU)
    c.lbu, c.ubu = np.array([*-torque, least, SHORTEST_S]), np.array([*torque, most, LONGEST_S])
    # Each rotor's thrust, per a quarter of the nominal mass.
    roll, pitch = np.array(d.inertia_kg_m2[:2]) * d.torque_1_s2 / d.arm_m / d.mass_kg
    c.C, c.D = np.zeros((4, NE)), np.array([[a * roll, b * pitch, 1.0, 0.0] for a in (-1, 1) for b in (-1, 1)])
    c.lg, c.ug = np.full(4, least), np.full(4, most)
    turn, r = np.full(2, TURN_SHARE * d.turn_1_s), rules()
    c.idxbx, c.idxsbx = np.array([*range(P.start, P.stop), E.stop, E.stop + 1]), np.arange(5)
    c.lbx = np.concatenate([np.array(r.low_m) + (ARENA_M, ARENA_M, 0.0), -turn])
    c.ubx = np.concatenate([np.array(r.high_m) - ARENA_M, turn])
    c.lh = c.lh_e = np.zeros(ROWS)
    c.uh = c.uh_e = np.full(ROWS, 1e6)
    c.idxsh = c.idxsh_e = np.arange(ROWS)
    for end, rows in (("", 5 + ROWS), ("_e", ROWS)):
        for slack, value in (("Zl", WEIGHT), ("Zu", WEIGHT), ("zl", PRICE), ("zu", PRICE)):
            setattr(ocp.cost, slack + end, np.full(rows, value))
    o = ocp.solver_options
    o.tf = float(STEPS)
    o.nlp_solver_type, o.qp_solver, o.hessian_approx, o.integrator_type = (
        "SQP_RTI",
        "PARTIAL_CONDENSING_HPIPM",
        "GAUSS_NEWTON",
        "DISCRETE",
    )
    o.qp_solver_cond_N, o.qp_solver_iter_max, o.qp_tol, o.hpipm_mode = STEPS // 4, 40, 1e-5, "SPEED"
    o.levenberg_marquardt = DAMPING
    return with_tick(ocp, folder)
