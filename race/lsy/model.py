"""The drone as the time-optimal problem sees it: inputs are what its rotors are asked for, within their limits.

    q' = q * (0, rates) / 2,  rates' = largest * torque,  tau d torque/dt = asked - torque,  tau df/dt = thrust asked - f

about x and y of the body, which does not turn about z; the on-board loop that stands between commands and rotors is inverted
below. State: position, velocity (m, m/s, world z up), attitude (w, x, y, z), rates, torques as shares of the largest,
thrust per nominal mass (m/s^2), and the duration of the interval that begins here (s), which is free: each leg shares one.

The problem over the rest of the course is solved by acados: one quadratic program per call, any mesh.

    min sum_k dt_k + small terms,  x_{k+1} = step(x_k, u_k, dt_k),  dt_{k+1} = dt_k within a leg, free where one begins
    A_k (p_k, v_k) + b_k >= 0 (soft): openings, frames, stands, poles, unseen places, as half-spaces from the last iterate

All that changes from tick to tick is a parameter, so that one compiled solver serves all courses and all of a flight.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.common.config import load
from gate_racer.mpc.solvers.acados import bound, load_generated, silence, with_tick
from gate_racer.race.lsy.level import rotation, rules
from gate_racer.vehicle.dynamics import rk4
from gate_racer.vehicle.rotation import Array, conjugate, product, rate, rotate

NX, NU = 16, 4
P, V, Q, RATES, TORQUES, F, DT = slice(0, 3), slice(3, 6), slice(6, 10), slice(10, 12), slice(12, 14), 14, 15
FC, DT_NEXT = 2, 3  # of the inputs: torques about x and y, thrust per nominal mass, duration of the next interval
GRAVITY = 9.81


@dataclass(frozen=True)
class Drone:
    source: str
    mass_kg: float
    inertia_kg_m2: tuple[float, float, float]
    arm_m: float
    yaw_arm_m: float
    rotor_n: float
    pwm: tuple[float, float]
    rotor_lag_s: float
    angle_gains: tuple[float, float, float]
    rate_gains: tuple[float, float, float]
    slope_gains: tuple[float, float, float]
    torque_pwm: float
    thrust_gain: float
    drag_1_s: float

    @property
    def thrust_n(self) -> tuple[float, float]:
        """Least and largest thrust, N, in all."""
        return 4 * self.rotor_n * self.pwm[0] / self.pwm[1], 4 * self.rotor_n

    @property
    def torque_1_s2(self) -> Array:
        """Largest accelerations (2,) of roll and pitch that the loop asks for."""
        return 2 * self.rotor_n * self.torque_pwm / self.pwm[1] * self.arm_m / np.array(self.inertia_kg_m2[:2])


@cache
def drone() -> Drone:
    """Return the identified Crazyflie 2.1 Brushless."""
    return load(Path(__file__).with_name("cf21b.yaml"), Drone)


def slope(x: Any, u: Any, gain: Any, d: Drone) -> Any:
    """Return dx/dt of all states but the last, symbolic; `gain` scales the thrust."""
    q, (p, r) = ca.vertsplit(x[Q]), ca.vertsplit(x[RATES])
    dv = gain * x[F] * ca.vertcat(*rotate(q, (0.0, 0.0, 1.0))) - d.drag_1_s * x[V] - ca.vertcat(0.0, 0.0, GRAVITY)
    lag = d.rotor_lag_s
    turn = ca.vertcat(ca.DM(d.torque_1_s2) * x[TORQUES], (u[:2] - x[TORQUES]) / lag)
    return ca.vertcat(x[V], dv, *rate(q, (p, r, 0.0)), turn, (u[FC] - x[F]) / lag)


def step(x: Any, u: Any, gain: Any, dt: Any, d: Drone, parts: int = 4) -> Any:
    """Return all states but the last after dt, symbolic, by Runge-Kutta."""

    def f(y: Any, u: Any, d: Drone) -> Any:
        return ca.vertsplit(slope(ca.vertcat(*y), u, gain, d))

    y = ca.vertsplit(x[:DT])
    for _ in range(parts):
        y = rk4(f, y, u, d, dt / parts)
    return ca.vertcat(*y)


# A deviation (3) of an attitude is twice the vector part of the quaternion that turns it, in the body's frame: what a program
# that moves all attitudes at once has for a state, since steps on quaternions leave the unit sphere.


def deviated(q: Any, by: Any) -> Any:
    """Return the quaternion q (4) moved by a deviation (3), symbolic."""
    return ca.vertcat(*product(q, ca.vertcat(ca.sqrt(1 - ca.sumsqr(by) / 4), by / 2)))


def deviation(q: Any, moved: Any) -> Any:
    """Return the deviation (3) of a moved quaternion from q (4), symbolic; both on one half of the sphere."""
    return 2 * ca.vertcat(*product(conjugate(q), moved)[1:])


# The on-board attitude loop and its rotors, step by step, and its inverse: which command turns the body as planned. As in the
# Crazyflie's firmware (Mellinger and Kumar, Minimum snap trajectory generation, ICRA 2011, eq. 10, in pulse widths):
#
#     torque = clip(k_R (R' R_d - R_d' R)^v - k_w w - k_s dw/dt),  rotor = clip(thrust / 4 + mixed torque),  tau df/dt = rotor - f
#
# Its limits bind in every quick turn, so that no linear model predicts it.

MIX = np.array([[-1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]])  # of torques about x, y, z
STEEPEST = 1.1  # rad, largest angle commanded away from the present attitude
COARSE, FINE = np.linspace(-STEEPEST, STEEPEST, 45), np.linspace(-STEEPEST, STEEPEST, 2001)


@dataclass(frozen=True)
class Spin:
    """What turns a body: of one, or of n alike."""

    rotors: Array  # (4,) or (n, 4) N
    rates: Array  # (3,) or (n, 3) rad/s, body
    slope: Array  # (3,) or (n, 3) rad/s^2, of the rates

    @property
    def thrust(self) -> float:
        """Thrust of one per nominal mass, m/s^2."""
        return float(self.rotors.sum()) / drone().mass_kg


def turned(spin: Spin, error: Array, thrust: float, duration: float) -> Spin:
    """Return the spins (n) after a duration, s, under a thrust, N, and attitudes `error` (n, 3, 3) off, in the body's frame."""
    d, h = drone(), 1.0 / rules().physics_hz
    newton = d.rotor_n / d.pwm[1]
    angle, rate, slope_gain = (newton * np.array(g) for g in (d.angle_gains, d.rate_gains, d.slope_gains))
    limit, low = newton * d.torque_pwm, newton * d.pwm[0]
    share, arms = np.array([0.5, 0.5, 1.0]), np.array([d.arm_m, d.arm_m, d.yaw_arm_m]) / d.inertia_kg_m2
    catch_up = 1.0 - np.exp(-h / d.rotor_lag_s)
    rotors, rates, slope = (
        np.broadcast_to(a, (len(error), a.shape[-1])) for a in (spin.rotors, spin.rates, spin.slope)
    )
    error, zero = error.copy(), np.zeros(len(error))
    for _ in range(round(duration / h)):
        off = error - error.swapaxes(1, 2)
        sine = np.column_stack([off[:, 2, 1], off[:, 0, 2], off[:, 1, 0]])
        torque = np.clip(angle * sine - rate * rates - slope_gain * slope, -limit, limit) * share
        rotors = rotors + catch_up * (np.clip(thrust / 4 + torque @ MIX, low, d.rotor_n) - rotors)
        slope = rotors @ MIX.T * arms
        rates = rates + h * slope
        x, y, z = rates.T
        error -= h * np.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]]).transpose(2, 0, 1) @ error
    return Spin(rotors, rates, slope)


def tilted(tilts: Array) -> Array:
    """Return rotations (n, 3, 3) by the shortest turns of the thrust, about x and y of the body, (n, 2) rad."""
    return rotation().from_rotvec(np.column_stack([tilts, np.zeros(len(tilts))])).as_matrix()


def tilt_for(spin: Spin, wanted: Array, thrust: float, duration: float) -> Array:
    """Return the tilt (2,) rad, to be commanded from here, under which roll and pitch rates become `wanted` (2,) rad/s.

    The smallest that comes nearest, one axis after the other, from the tilt that keeps up these rates.
    """
    d = drone()
    tilt = np.arcsin(np.clip(np.array(d.rate_gains[:2]) * wanted / 2 / d.angle_gains[:2], -0.9, 0.9))
    for axis in (0, 1):
        tried = np.repeat(tilt[None], len(COARSE), axis=0)
        tried[:, axis] = COARSE
        reached = turned(spin, tilted(tried), thrust, duration).rates[:, axis]
        missed = np.abs(np.interp(FINE, COARSE, reached) - wanted[axis])
        tilt[axis] = FINE[np.argmin(missed + 0.01 * np.abs(FINE))]
    return tilt


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
        source = Path(__file__).read_text(encoding="utf-8")
        self._solver = solver = load_generated(NAME, _formulate, [drone(), rules(), source])
        silence()
        self._p = np.zeros((STEPS + 1, NP))
        self._x0, self._x, self._u = np.zeros(NE), np.zeros((STEPS + 1, NE)), np.zeros((STEPS, NU))
        calls = (("start", (self._x, self._u)), ("prepare", (self._p,)), ("feedback", (self._x0, self._x, self._u)))
        self._start, self._prepare, self._feedback = (bound(solver, f"tick_{name}", *given) for name, given in calls)

    def __call__(self, x: Array, u: Array, x0: Array, gain: float, rows: Array, ends: list[int]) -> tuple[Array, Array]:
        """Return the next iterate x (STEPS + 1, NX), u (STEPS, NU) from x0 (NX,).

        Args:
            gain: of the thrust.
            rows: half-spaces (STEPS + 1, ROWS, 7), their weights and offset.
            ends: nodes before those on which legs end.
        """
        last = np.delete(x, Q.start, axis=1)
        last[:, E] = 0.0
        self._x[:], self._u[:], self._x0[:] = last, u, np.delete(x0, Q.start)
        self._p[:, GAIN], self._p[:, LAST], self._p[ends, LAST] = gain, 0.0, 1.0
        self._p[:, DT_REF], self._p[:-1, U_REF] = x[:, DT] - 1.0 / PACE, u[:, :3]
        self._p[:, HALFSPACES:] = rows.reshape(STEPS + 1, -1)
        self._p[:, Q_REF], self._p[:-1, Q_NEXT] = x[:, Q], x[1:, Q]
        self._x0[E] = np.asarray(deviation(x[0, Q], x0[Q] * np.sign(x[0, Q] @ x0[Q]))).ravel()
        self._start()
        self._prepare()
        self._feedback()
        change = np.abs(self._x[:, -1] - last[:, -1]) / (STRETCH * last[:, -1] + STRETCH_S)
        part = 1.0 / max(1.0, float(change.max()))
        self._x[:], self._u[:] = last + part * (self._x - last), u + part * (self._u - u)
        new = np.insert(self._x, Q.start, 0.0, axis=1)
        turn = self._x[:, E] / np.maximum(1.0, np.linalg.norm(self._x[:, E], axis=1, keepdims=True) / FARTHEST)
        turn = np.column_stack([np.sqrt(1.0 - (turn**2).sum(axis=1) / 4), turn / 2])
        before, by = (rotation().from_quat(q, scalar_first=True) for q in (x[:, Q], turn))
        new[:, Q] = (before * by).as_quat(scalar_first=True)
        return new, self._u.copy()


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
    # Rates that the loop keeps up under the largest error.
    turn, r = np.full(2, TURN_SHARE * (2 * d.angle_gains[0] / d.rate_gains[0])), rules()
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
    return with_tick(ocp, STEPS, folder)
