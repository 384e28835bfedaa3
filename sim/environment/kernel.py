"""Compiled kernels of the environment, for all vehicles in one call: observations, rewards and ends, and tables of errors.

Swift's reward (Kaufmann et al. 2023, Methods, eq. 7 to 9), with the weights of Extended Data Table 1a as quoted by secondary
sources. Units are not published; chosen here: rad/s for body rates, and the network's outputs, each in -1..1, for the change of
the action. Observations are those of `tracks.observation`, which defines them for one vehicle.

Realisations of an observation model are functions of the whole state, tabulated over the position along its data. Where vehicles
race, velocity and attitude follow from the position: a node of the table has those of the nearest state of the data. Between
nodes the errors are interpolated linearly.
"""

import math
from typing import NamedTuple

import numpy as np

from gate_racer.sim.physics.jit import inlined, njit
from gate_racer.sim.physics.plant import P, Q, V
from gate_racer.sim.physics.residual import ERRORS, ObservationModel
from gate_racer.tracks.observation import Scaling
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import drag
from gate_racer.vehicle.rotation import Array, Indices, product, rotate
from gate_racer.vehicle.vehicle import Vehicle

SPACING_M = 2.0  # m, of the nodes; errors of an odometry correlate over the distance between gates (chosen)
NODES = 2000  # most nodes of a realisation; on a larger course they lie farther apart (chosen)
AROUND_M = 2.0  # m, range of the table beyond the data, on whose border vehicles farther away are taken to be (chosen)
AT_ONCE = 1000  # nodes, which bounds the memory


class ErrorTables:
    """Tables (realisations, x, y, z, 9) of observation errors, over positions in the world."""

    def __init__(self, model: ObservationModel, realisations: int, rng: np.random.Generator):
        """Sample the realisations, which takes about a second for each."""
        from scipy.interpolate import RegularGridInterpolator  # slow to load, and most environments have no such errors
        from scipy.spatial import KDTree

        self._low = model.x[:, P].min(axis=0) - AROUND_M
        size = model.x[:, P].max(axis=0) + AROUND_M - self._low
        self._spacing_m = max(SPACING_M, float(np.prod(size) / NODES) ** (1 / 3))
        counts = np.ceil(size / self._spacing_m).astype(int) + 1
        at = self._low + self._spacing_m * np.indices(counts).reshape(3, -1).T
        x = model.x[KDTree(model.x[:, P]).query(at)[1]].copy()
        x[:, P] = at
        parts = [x[i : i + AT_ONCE] for i in range(0, len(x), AT_ONCE)]
        drawn = [model.sample(rng) for _ in range(realisations)]
        tables = [np.concatenate([one.errors(part) for part in parts]) for one in drawn]
        self._most, self._count = counts - 1, realisations
        grid = (np.arange(realisations + 1), *map(np.arange, counts))  # one more, since a grid has no axis of one
        values = np.reshape([*tables, tables[0]], (realisations + 1, *counts, ERRORS))
        self._interpolated = RegularGridInterpolator(grid, values)

    def __len__(self) -> int:
        return self._count

    def errors(self, x: Array, drawn: Indices) -> Array:
        """Return errors (N, 9) at states (N, >= 10) under realisations drawn (N,); what is not finite is at the lower border."""
        at = np.nan_to_num((x[:, P] - self._low) / self._spacing_m, nan=0.0, posinf=0.0, neginf=0.0)
        return np.asarray(self._interpolated(np.column_stack([drawn, np.clip(at, 0.0, self._most)])))


class Reward(NamedTuple):
    """Weights lambda_1 to lambda_5 and the crash penalty."""

    progress: float = 1.0  # per m towards the next gate
    perception: float = 0.02  # per step with the optical axis on the next gate's centre, its maximum
    sharpness_rad4: float = -10.0  # 1/rad^4, perception term exp(sharpness delta^4)
    rates: float = -2e-4  # per rad/s of the norm of the commanded body rates
    change: float = -1e-4  # per squared norm of the action's change
    crash: float = -5.0


class CourseArrays(NamedTuple):
    """Gates and bounds of a course, world NED, and the camera's optical axis, body FRD."""

    centre: Array  # (G, 3) m
    R_wg: Array  # (G, 3, 3)
    corners: Array  # (G, 4, 3) m
    half: Array  # (G,) m
    back: Array  # (G,) bool, whether it may be passed backwards, since the last gate has the same frame
    low: Array  # (3,) m
    high: Array  # (3,) m
    optical_axis_b: Array  # (3,)
    reach_m: float  # m, scale of the corners in an observation

    @classmethod
    def of(cls, track: Track, vehicle: Vehicle) -> "CourseArrays":
        """Build from a track, and the vehicle for its camera's mount."""
        gates, bounds = track.gates, track.bounds
        return cls(
            np.array([g.p_wg for g in gates]),
            np.array([g.R_wg for g in gates]),
            np.array([g.corners() for g in gates]),
            np.array([g.half for g in gates]),
            np.array([gate.same_frame(last) for last, gate in zip((gates[-1], *gates), gates, strict=False)]),
            np.array(bounds.low_m, float),
            np.array(bounds.high_m, float),
            np.ascontiguousarray(vehicle.camera.R_bc[:, 2]),
            Scaling.of(track, vehicle).reach_m,
        )


@inlined
def turned(phi, q):
    """Return the attitude q (4), wxyz, rotated by a rotation vector phi (3), rad, world."""
    angle = math.sqrt(phi[0] ** 2 + phi[1] ** 2 + phi[2] ** 2)
    k = math.sin(angle / 2) / angle if angle > 1e-12 else 0.5
    return product((math.cos(angle / 2), k * phi[0], k * phi[1], k * phi[2]), q)


@njit
def observe(which, x, error, gate, action, course, scales, seen):
    """Fill observations (k, 31) of vehicles `which` (k,) from states x (N, >= 10) with observation errors (N, 9)."""
    for row in range(len(which)):
        i = which[row]
        p = (x[i, 0] + error[i, 0], x[i, 1] + error[i, 1], x[i, 2] + error[i, 2])
        v = (x[i, 7] + error[i, 3], x[i, 8] + error[i, 4], x[i, 9] + error[i, 5])
        q = turned((error[i, 6], error[i, 7], error[i, 8]), (x[i, 3], x[i, 4], x[i, 5], x[i, 6]))
        out = seen[row]
        ex, ey, ez = rotate(q, (1.0, 0.0, 0.0)), rotate(q, (0.0, 1.0, 0.0)), rotate(q, (0.0, 0.0, 1.0))
        for k in range(3):
            out[k] = (p[k] - scales.middle_m[k]) / scales.half_m[k]
            out[3 + k] = v[k] / scales.speed_m_s
            out[6 + 3 * k], out[7 + 3 * k], out[8 + 3 * k] = ex[k], ey[k], ez[k]
        back = (q[0], -q[1], -q[2], -q[3])
        for c in range(4):
            corner = course.corners[gate[i], c]
            b = rotate(back, (corner[0] - p[0], corner[1] - p[1], corner[2] - p[2]))
            for k in range(3):
                out[15 + 3 * c + k] = b[k] / course.reach_m
        for k in range(4):
            out[27 + k] = action[i, k]
        for k in range(31):
            if not math.isfinite(out[k]):
                out[k] = 0.0


@inlined
def through(a, b, R, centre, half):
    """Check whether the straight step from a to b crosses the opening of a gate, as `Gate.crossing` does."""
    at = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for k in range(3):
        for j in range(3):
            at[k] += (a[j] - centre[j]) * R[j, k]
            at[3 + k] += (b[j] - centre[j]) * R[j, k]
    if not (at[0] < 0.0 <= at[3]):
        return False
    s = at[0] / (at[0] - at[3])
    y, z = at[1] + s * (at[4] - at[1]), at[2] + s * (at[5] - at[2])
    return max(abs(y), abs(z)) <= half


@njit
def judge(x, before, hit, gate, action, last, course, scales, by, reward, crashed, passed):
    """Fill rewards, crashes and gate passages (N,) of a step.

    x (N, >= 10), before (N, 3): states after and positions before the step. hit (N,): contacts. gate (N,): next gates.
    action, last (N, 4): this action and the previous one.
    """
    for i in range(len(x)):
        a, b, k = before[i], x[i], gate[i]
        finite, outside = True, False
        for j in range(x.shape[1]):
            finite = finite and math.isfinite(x[i, j])
        for j in range(3):
            outside = outside or b[j] < course.low[j] or b[j] > course.high[j]
        crashed[i] = hit[i] or outside or not finite
        rates, change = 0.0, (action[i, 0] - last[i, 0]) ** 2
        for j in range(3):
            rates += (action[i, 1 + j] * scales.rate_max_rad_s[j]) ** 2
            change += (action[i, 1 + j] - last[i, 1 + j]) ** 2
        nearer, delta, passed[i] = 0.0, 0.5 * math.pi, False
        if finite:
            centre, axis = course.centre[k], course.optical_axis_b
            to = (centre[0] - b[0], centre[1] - b[1], centre[2] - b[2])
            distance = math.sqrt(to[0] ** 2 + to[1] ** 2 + to[2] ** 2)
            nearer = math.sqrt((centre[0] - a[0]) ** 2 + (centre[1] - a[1]) ** 2 + (centre[2] - a[2]) ** 2) - distance
            R, half = course.R_wg[k], course.half[k]
            passed[i] = not crashed[i] and through(a, b, R, centre, half)
            crashed[i] |= not course.back[k] and through(b, a, R, centre, half)  # a miss, as of the referee
            new = (k + 1) % len(course.half) if passed[i] else k
            to = (course.centre[new, 0] - b[0], course.centre[new, 1] - b[1], course.centre[new, 2] - b[2])
            distance = max(math.sqrt(to[0] ** 2 + to[1] ** 2 + to[2] ** 2), 1e-9)
            looks = rotate((x[i, 3], x[i, 4], x[i, 5], x[i, 6]), (axis[0], axis[1], axis[2]))
            cosine = (looks[0] * to[0] + looks[1] * to[1] + looks[2] * to[2]) / distance
            delta = math.acos(min(max(cosine, -1.0), 1.0))
        seen = by.perception * math.exp(by.sharpness_rad4 * delta**4)
        paid = by.progress * nearer + seen + by.rates * math.sqrt(rates) + by.change * change
        reward[i] = paid + by.crash * crashed[i]


def unmodelled(x: Array, thrust: Array, error: Array, vehicle: Vehicle) -> Array:
    """Return the accelerations (N, 3), m/s^2, world, by an error of the model in flights at states x with commanded thrusts (N,).

    error (N, 4): relative errors of thrust and of drag, and the wind north and east, m/s.
    """
    q, v, (of_thrust, of_drag, north, east) = x[:, Q].T, x[:, V].T, error.T
    pars = vehicle.drag_linear_1_s, vehicle.drag_quadratic_1_m
    still, windy = np.array(drag(q, v, *pars)), np.array(drag(q, v - (north, east, 0.0 * east), *pars))
    return np.asarray((np.array(rotate(q, (0.0, 0.0, -of_thrust * thrust))) + (1.0 + of_drag) * windy - still).T)
