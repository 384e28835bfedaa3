"""Predicted distribution of the true position about the planned one, along a flight and at its gates.

The controller's corridor, which is narrow as long as a gate is not recognised, displaces a crossing from the plan. The
controller aims at the point of the corridor nearest to the plan, and the vehicle follows as the closed loop does, from the time
at which the gate comes into the controller's horizon:

    m'' = w^2 (aim - m) - 2 zeta w m'

The covariances of estimation error and closed-loop dispersion add, since the estimate is uncorrelated with its error (Bry and
Roy 2011, eq. 24). Crossings are mixtures of normal distributions: gates are recognised sooner or later, and vehicles fall short
of thrust, or not. The distance from the flight's line to an edge of an opening is measured normal to both:

    d = (v . x) n - (v . n) x, normalised,   room = h' (the edge's distance along d) - contact radius

The dispersion of the estimated state about the plan is the covariance of a linear loop along the plan:

    dp' = dv,   dv' = da + s theta - z,   da' = (-w^2 dp - 2 zeta w dv - da) / lag,   z' = (s theta - z) / learn

A second-order response behind the vehicle's lag. Unknown parameters theta of vehicle and air act through their sensitivities s
along the plan; the controller's disturbance estimate z compensates them. The loop is driven by the corrections of the estimate.

Compensation needs thrust in reserve, of which a time-optimal plan leaves little. So a vehicle with less thrust or more drag than
modelled falls short: it is displaced against its thrust, to one side, until it has slowed down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from gate_racer.planner.models import P as PLAN_P
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import Task
from gate_racer.planner.uncertainty import covariance
from gate_racer.planner.uncertainty.covariance import EstimateCovariance, Motion
from gate_racer.tracks import gate as corridor
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.dynamics import layout
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import Vehicle

XYZ = "x y z"
LOOP = layout(
    p=(XYZ, "m", "deviation from the plan, world NED"),
    v=(XYZ, "m/s", "world NED"),
    a=(XYZ, "m/s^2", "world NED"),
    z=(XYZ, "m/s^2", "estimate of the unmodelled acceleration, world NED"),
    thrust=("", "-", "excess of the thrust over the model, as a share"),
    drag=("", "-", "excess of the drag over the model, as a share"),
    response=("", "s", "excess of the response delay over the model"),
    lift=("", "1/m", "thrust gained per square of the speed across the rotors"),
    wind=(XYZ, "m/s", "wind, world NED"),
)
P, V, A, Z, THRUST, DRAG, RESPONSE, LIFT, WIND = (field.at for field in LOOP.values())
UNKNOWN = slice(THRUST.start, WIND.stop)


# Closed-loop response of `mpcc`, fitted to 40 flights of VQ1 in unknown worlds, see `benchmarks/risk_calibration.py`.
BANDWIDTH, DAMPING = 5.0, 0.9  # rad/s, -
LEARN_S = 0.05  # s, time constant of the compensation of an unknown acceleration
SLOW_S = 0.5  # s, time constant with which a vehicle short of thrust slows down
# m, path error at gates without disturbances, since the controller trades distance for progress: 0.026 rms measured on VQ1
# in the world `as_believed`; 0.053 on the Split-S with `swift`, whose motors, battery and air the planner does not model.
LINE_M, LINE_GREY_M = 0.02, 0.05


def tracking_covariance(motion: Motion, estimate: EstimateCovariance, task: Task, doubt: Doubt) -> Array:
    """Return the covariance (M, 6, 6) of a closed loop about the plan, m and m/s, NED, driven by the estimate's corrections."""
    steps = transitions(motion, task.vehicle)
    sigma = np.zeros(LOOP.size)
    sigma[THRUST], sigma[DRAG], sigma[RESPONSE] = doubt.thrust, doubt.drag, doubt.response_s
    sigma[LIFT] = doubt.lift_1_m if task.vehicle.aero else 0.0  # the planner's models omit lift
    sigma[WIND] = (doubt.wind_m_s, doubt.wind_m_s, 0.0)
    cov = np.diag(sigma**2)
    found, fed = np.empty((len(motion.t), 6, 6)), slice(0, V.stop)
    for k in range(len(motion.t)):
        if k:
            cov = steps[k - 1] @ cov @ steps[k - 1].T
        cov[fed, fed] += estimate.moved[k]
        found[k] = cov[fed, fed]
    return found


def shortfalls(motion: Motion, vehicle: Vehicle, doubt: Doubt) -> Array:
    """Return one-sided displacements (M, 2, 3), m, world NED, by one standard deviation less thrust, or more drag, of which the
    rotors lack the part that balances it; the opposite has no effect."""
    steps, thrust = transitions(motion, vehicle, SLOW_S), motion.thrust_w
    resisted = sensitivities(motion, vehicle)[:, :, 1]
    share = np.clip(-(resisted * thrust).sum(axis=1) / np.maximum((thrust**2).sum(axis=1), 1e-6), 0.0, 1.0)
    missing = -thrust[:, None] * np.stack([np.full(len(share), doubt.thrust), doubt.drag * share], axis=1)[..., None]
    x, found = np.zeros((Z.stop, 2)), np.zeros((len(motion.t), 2, 3))
    for k, dt in enumerate(np.diff(motion.t)):
        x = steps[k][: Z.stop, : Z.stop] @ x
        x[V] += dt * missing[k].T
        x[Z] += dt / SLOW_S * missing[k].T
        found[k + 1] = x[P].T
    return found


def sensitivities(motion: Motion, vehicle: Vehicle) -> Array:
    """Return the derivatives (M, 3, U) of the acceleration, m/s^2, with respect to the U parameters in `UNKNOWN`."""
    n, v, quadratic = len(motion.t), motion.v_w, vehicle.drag_quadratic_1_m
    speed = np.linalg.norm(v, axis=1)[:, None]
    linear = motion.R_wb * np.array(vehicle.drag_linear_1_s) @ np.swapaxes(motion.R_wb, 1, 2)
    resisted = -quadratic * speed * v - (linear @ v[..., None])[..., 0]
    along = v[:, :, None] * v[:, None] / np.maximum(speed, 1e-3)[..., None]
    by_air = quadratic * (speed[..., None] * np.eye(3) + along)
    dt = np.diff(motion.t)[:, None]
    jerk = np.diff(motion.thrust_w, axis=0, append=motion.thrust_w[-1:]) / np.append(dt, dt[-1:], axis=0)
    s = np.zeros((n, 3, UNKNOWN.stop - UNKNOWN.start))
    v_b = (v[:, None] @ motion.R_wb)[:, 0]
    lifted = -(v_b[:, :2] ** 2).sum(axis=1)[:, None] * motion.R_wb[:, :, 2]
    s[:, :, :4] = np.stack([motion.thrust_w, resisted, -jerk, lifted], axis=-1)
    s[:, :, 4:] = by_air + linear
    return s


def transitions(motion: Motion, vehicle: Vehicle, learn_s: float = LEARN_S) -> Array:
    """Return the transition matrices (M - 1, n, n) of `LOOP` from sample to sample."""
    dt, lag = np.diff(motion.t)[:, None, None], vehicle.command_delay_s + max(vehicle.rate_lag_s[:2])
    s, w = sensitivities(motion, vehicle)[:-1], BANDWIDTH
    F = np.zeros((len(dt), LOOP.size, LOOP.size))
    F[:, P, V], F[:, V, A], F[:, V, Z] = np.eye(3), np.eye(3), -np.eye(3)
    F[:, A, P], F[:, A, V], F[:, A, A] = (gain * np.eye(3) / lag for gain in (-(w**2), -2 * DAMPING * w, -1.0))
    F[:, Z, Z] = -np.eye(3) / learn_s
    F[:, V, UNKNOWN], F[:, Z, UNKNOWN] = s, s / learn_s
    step = F * dt
    return np.asarray(np.eye(LOOP.size) + step + 0.5 * step @ step)


HALVINGS = 60  # of the interval that holds a quantile, to below its rounding error


@dataclass(frozen=True, eq=False)
class Tails:
    """Deviations towards J edges, a mixture of C cases, in each of which they are normal."""

    weights: Array  # (C,) probabilities of the cases
    means_m: Array  # (J, C) m, towards the edge
    sigmas_m: Array  # (J, C) m

    @staticmethod
    def normal(sigmas_m: Array) -> "Tails":
        """Return a single case with these standard deviations (J,), m, and zero mean."""
        return Tails(np.ones(1), np.zeros((len(sigmas_m), 1)), np.asarray(sigmas_m)[:, None])

    @staticmethod
    def joined(parts: Sequence["Tails"]) -> "Tails":
        """Concatenate along the edges, in the same cases."""
        means, sigmas = [one.means_m for one in parts], [one.sigmas_m for one in parts]
        return Tails(parts[0].weights, np.concatenate(means), np.concatenate(sigmas))

    def and_normal(self, sigmas_m: Array) -> "Tails":
        """Return these deviations, then those that are normal in every case, with standard deviations (K,), m, and zero mean."""
        sigmas = np.tile(np.asarray(sigmas_m)[:, None], len(self.weights))
        return Tails(self.weights, np.vstack([self.means_m, 0 * sigmas]), np.vstack([self.sigmas_m, sigmas]))

    def scaled(self, factors: Array) -> "Tails":
        return Tails(self.weights, factors[:, None] * self.means_m, factors[:, None] * self.sigmas_m)

    @property
    def spread_m(self) -> Array:
        """Standard deviations (J,), m, of the mixture."""
        mean = (self.weights * self.means_m).sum(axis=-1, keepdims=True)
        return np.sqrt((self.weights * (self.sigmas_m**2 + (self.means_m - mean) ** 2)).sum(axis=-1))

    def by_case(self, rooms_m: Array) -> Array:
        """Return the probabilities (J, C) of more than these deviations (J,), m, in each case."""
        from scipy.special import ndtr  # slow to load, and not needed to fly a plan

        return np.asarray(ndtr((self.means_m - np.asarray(rooms_m)[:, None]) / self.sigmas_m))

    def risks(self, rooms_m: Array) -> Array:
        """Return the probabilities (J,) of more than these deviations (J,), m."""
        return np.asarray((self.weights * self.by_case(rooms_m)).sum(axis=-1))

    def rooms(self, risks: Array) -> Array:
        """Return the deviations (J,), m, exceeded with these probabilities (J,), by bisection."""
        from scipy.special import ndtri  # slow to load, as above

        each = self.means_m - ndtri(np.asarray(risks))[:, None] * self.sigmas_m
        low, high = each.min(axis=1), each.max(axis=1)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            beyond = self.risks(middle) > risks
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        return np.asarray(high)


def limited(sigma_m: Array, limit_m: Array) -> Array:
    """Return the standard deviations, m, towards one side, of zero-mean normal variables that are cut off at a limit >= 0:

    s^2 = 2 E[min(x, limit)^2; x > 0] = sigma^2 (2 Phi(b) - 1 - 2 b phi(b)) + 2 limit^2 (1 - Phi(b)),   b = limit / sigma
    """
    from scipy.special import ndtr  # slow to load, as above

    b = limit_m / sigma_m
    density = np.exp(-(b**2) / 2) / np.sqrt(2 * np.pi)
    inside = 2 * ndtr(b) - 1 - 2 * b * density
    return np.asarray(np.sqrt(sigma_m**2 * inside + 2 * limit_m**2 * ndtr(-b)))


HORIZON_S = 0.8  # s, of the controller


def displacement(planned_m: Array, t: Array, free_m: Array) -> Array:
    """Return the displacement (2,), m, of a planned crossing (2,), m, right and down of the opening's centre.

    Args:
        t: (K,) s, samples from the beginning of the horizon to the crossing.
        free_m: (K,) m, half width of the corridor then.
    """
    w, place, speed = BANDWIDTH, np.zeros(2), np.zeros(2)
    aims = np.clip(planned_m, -free_m[:, None], free_m[:, None]) - planned_m
    for dt, aim in zip(np.diff(t), aims, strict=False):
        speed = speed + dt * (w**2 * (aim - place) - 2 * DAMPING * w * speed)
        place = place + dt * speed
    return place


SPEED_MIN = 0.5  # m/s along a gate's axis, as in the planner's constraint
# max(x, 0) of a standard normal x as three cases: probability, mean and standard deviation, of x below zero, and of its positive
# half on either side of its median.
FALLS_SHORT = ((0.5, 0.0, 0.0), (0.25, 0.324, 0.194), (0.25, 1.271, 0.492))


@dataclass(frozen=True, eq=False)
class CrossingCase:
    """Crossing point in a gate's plane in one case of recognition, right and down.

    It is the planned one, plus a displacement by the corridor, plus errors of estimate, line and loop, plus one-sided
    displacements by missing thrust.
    """

    probability: float
    drawn_m: Array  # (2,) m, displacement by the corridor
    free_m: float  # m, half width of the corridor at the crossing, within which the controller keeps its estimate
    estimate_cov: Array  # (2, 2) m^2
    line_cov: Array  # (2, 2) m^2
    loop_cov: Array  # (2, 2) m^2


@dataclass(frozen=True, eq=False)
class Crossing:
    gate: Gate
    t: float  # s of plan time
    p_w: Array  # (3,) m, planned position
    v_w: Array  # (3,) m/s, planned velocity
    short_m: Array  # (K, 2) m, right and down, one-sided shift by one standard deviation of each shortfall
    cases: tuple[CrossingCase, ...]

    @cached_property
    def planned_m(self) -> Array:
        """Planned crossing point (2,), m, right and down of the opening's centre."""
        return np.asarray(self.gate.local(self.p_w)[1:])

    @property
    def drawn_m(self) -> Array:
        """Mean displacement (2,), m, of the crossing point by the corridor, right and down."""
        return self._averaged([case.drawn_m for case in self.cases])

    @property
    def cov_across(self) -> Array:
        """Covariance (2, 2), m^2, of the crossing point about `planned_m` + `drawn_m`, right and down, without `short_m`."""
        own = [case.estimate_cov + case.line_cov + case.loop_cov for case in self.cases]
        off = [case.drawn_m - self.drawn_m for case in self.cases]
        return self._averaged([cov + np.outer(m, m) for cov, m in zip(own, off, strict=True)])

    @property
    def estimate_across(self) -> Array:
        """Covariance (2, 2), m^2, of the estimation error in the crossing point."""
        return self._averaged([case.estimate_cov for case in self.cases])

    def _averaged(self, parts: list[Array]) -> Array:
        return np.asarray(np.tensordot([case.probability for case in self.cases], np.array(parts), axes=1))

    @cached_property
    def inside_m(self) -> Array:
        """Distances (E,), m, in the gate's plane from the planned crossing to each edge of the opening."""
        edges = self.gate.edges
        return np.asarray(edges[:, 2] - edges[:, :2] @ self.planned_m)

    @cached_property
    def slants(self) -> Array:
        """Distances (E,) from the path to each edge, normal to both, over those in the gate's plane."""
        v, edges = self.v_w @ self.gate.R_wg, self.gate.edges
        return np.asarray(v[0] / np.hypot(v[0], edges[:, :2] @ v[1:]))

    @property
    def distances_m(self) -> Array:
        """Distances (E,), m, from the planned line to each edge."""
        return np.asarray(self.inside_m * self.slants)

    @cached_property
    def tails(self) -> Tails:
        """Deviations of the crossing point towards each edge, in the gate's plane."""
        return self._tails(np.inf)

    @property
    def slanted(self) -> Tails:
        """Deviations towards each edge, normal to it and to the path, as `distances_m`."""
        return self.tails.scaled(self.slants)

    @property
    def undrawn(self) -> Tails:
        """`slanted` without displacements by the corridor towards an edge, which a plan nearer to that edge would not have."""
        return self._tails(0.0).scaled(self.slants)

    def _tails(self, most_m: float) -> Tails:
        """Return the deviations in the gate's plane, with displacements by the corridor towards an edge of at most most_m."""
        normals = self.gate.edges[:, :2]
        short, parts = normals @ self.short_m.T, []
        for case in self.cases:
            moved = normals @ case.drawn_m
            room = np.maximum(case.free_m * np.abs(normals).sum(axis=1) - normals @ self.planned_m - moved, 0.0)
            steady = limited(_sigmas(normals, case.loop_cov), room) ** 2
            steady += _sigmas(normals, case.estimate_cov + case.line_cov) ** 2
            moved = np.minimum(moved, most_m)
            for falls in product(FALLS_SHORT, repeat=len(self.short_m)):
                shares, means, sigmas = np.array(falls).T
                sigma_m = np.sqrt(steady + short**2 @ sigmas**2)
                parts.append((case.probability * shares.prod(), moved + short @ means, sigma_m))
        weights, means_m, sigmas_m = zip(*parts, strict=True)
        return Tails(np.array(weights), np.column_stack(means_m), np.column_stack(sigmas_m))

    def below(self, margins_m: Array) -> Array:
        """Return the probabilities (M,) of less than these distances (M,), m, from the vehicle's centre to the nearest edge.

        Within a case deviations towards different edges count as independent.
        """
        clear = [1 - self.tails.by_case(self.inside_m - margin).T for margin in np.asarray(margins_m)]
        return np.array([self.tails.weights @ (1 - np.prod(by_edge, axis=1)) for by_edge in clear])


def _sigmas(normals: Array, cov: Array) -> Array:
    """Return standard deviations (E,) towards unit vectors (E, 2) for a covariance (2, 2)."""
    return np.asarray(np.sqrt(np.einsum("ei,ij,ej->e", normals, cov, normals)))


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted distribution of the position along a whole flight."""

    motion: Motion
    # (M, 3, 3) m^2, world NED, of the true position minus the planned one, relative to the next gate, in the likeliest case
    cov: Array
    short_w: Array  # (M, K, 3) m, world NED, one-sided shift by one standard deviation of each shortfall
    crossings: tuple[Crossing, ...]


def predict(plan: Plan, task: Task, doubt: Doubt) -> Prediction:
    """Predict the distribution of the position along a plan, from rest on the pad."""
    path = covariance.motion(plan, task.vehicle, covariance.IMU_HZ)
    passed = plan.gate_times_s[: len(task.gates)]
    flown_to = np.minimum(passed.searchsorted(path.t), len(passed) - 1)
    images, short_w = covariance.in_view(path, task), shortfalls(path, task.vehicle, doubt)
    assumed = []  # (M, 3, 3) m^2, world NED, of the estimate's error and of its position about the plan; (M, G) m across gates
    for late, _ in covariance.RECOGNISED:
        seen = covariance.recognised(images, late)
        estimate = covariance.estimate_covariance(path, seen, flown_to, task, doubt)
        # By the filter in flight, whose prior is the default `Doubt`.
        nominal = estimate if doubt == Doubt() else covariance.estimate_covariance(path, seen, flown_to, task, Doubt())
        tracked = tracking_covariance(path, estimate, task, doubt)[:, :3, :3]
        assumed.append((estimate.cov[:, :3, :3], tracked, nominal.across_m))
    line_cov = (LINE_GREY_M if task.vehicle.grey_box else LINE_M) ** 2 * np.eye(3)
    crossings = []
    for number, (gate, t, node) in enumerate(zip(task.gates, passed.tolist(), plan.gate_nodes, strict=False)):
        k = int(path.t.searchsorted(t, side="right")) - 1  # the last sample on the one to the gate
        v = path.v_w[k] @ gate.R_wg
        # Derivative (2, 3) of the crossing point with respect to the position: p_yz - v_yz / v_x p_x.
        in_plane = np.column_stack([-v[1:] / max(v[0], SPEED_MIN), np.eye(2)]) @ gate.R_wg.T
        horizon, p_w = slice(*path.t.searchsorted([t - HORIZON_S, t])), plan.x[node, PLAN_P]
        room_m = np.array(corridor.room(gate, task.vehicle.contact_radius_m))
        cases = []
        for (_, probability), (error, tracked, across_m) in zip(covariance.RECOGNISED, assumed, strict=True):
            free_m = corridor.narrowed(room_m, across_m[horizon, number])
            drawn_m = displacement(gate.local(p_w)[1:], path.t[horizon], free_m)
            covs = (in_plane @ C @ in_plane.T for C in (error[k], line_cov, tracked[k]))
            cases.append(CrossingCase(probability, drawn_m, float(free_m[-1]), *covs))
        crossings.append(Crossing(gate, t, p_w, path.v_w[k], short_w[k] @ in_plane.T, tuple(cases)))
    error, tracked, _ = assumed[0]  # of the likeliest case
    return Prediction(path, error + tracked + line_cov, short_w, tuple(crossings))
