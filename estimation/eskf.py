"""Error-state Kalman filter: IMU, gate corners and, where sent, attitude and position.

The `Propagator` holds the state at the last exposure, and the IMU readings since then. An image moves the state along them to its
own exposure and corrects it there; the present is then integrated again. Without images the state stays `BEHIND_S` behind the
present, so that each IMU sample costs the same.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from gate_racer.estimation.estimator import AHEAD_S, INFLATION, ExposureState, Health, MapEstimator, State
from gate_racer.estimation.imu_samples import Agility, ImuSamples, Rest, levelled
from gate_racer.estimation.widths import COURSE, MOUNT, PriorWidths
from gate_racer.link.messages import Attitude, Imu
from gate_racer.model import kalman, reprojection, states
from gate_racer.model.gate_offsets import GateOffsets
from gate_racer.model.imu import LONGEST_STEP_S, ImuReading, plausible
from gate_racer.model.kalman import FilterState, MeasurementModel, inflate_covariance, propagate, update
from gate_racer.model.reprojection import CameraContext, GateSighting, Measured
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import DELAY, EYE3, FOCAL, POSE, READOUT, THETA, Noise, Nominal, P, V, cross
from gate_racer.model.strapdown import integrated
from gate_racer.tracks.track import Start
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, from_euler, matrix, product
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2

SPARE_S = 0.02  # s beyond the greatest age of recent images
AGEING = 0.95  # -, weight of that age from one image to the next
BEHIND_S = 0.4  # s, greatest age of an image when no newer one was used: up to 0.26 s was measured on a busy machine


class Propagator:
    """Delayed filter state: `append` readings, `step` the state along them, and `correct` it there."""

    def __init__(self, state: FilterState, noise: Noise):
        self.noise = noise
        self.state = state  # at the last exposure, or later
        self.since = deque[tuple[Nominal, ImuReading]]()  # integrated states up to the present, step by step
        self._stale = False  # whether the state was corrected after these were integrated

    def correct(self, state: FilterState) -> None:
        """Replace the state at its own time; the present is integrated again when needed."""
        self._stale |= state.x is not self.state.x
        self.state = state

    def stand(self, t: float, reading: ImuReading) -> None:
        """Hold the state at rest until t (s)."""
        x = self.state.x
        self.state = FilterState(Nominal(t, x.q_wb, x.values), self.state.cov, reading)

    @property
    def now(self) -> tuple[Nominal, ImuReading]:
        """Nominal state at the newest reading, and that reading."""
        if self._stale:
            self._stale = False
            x, last = self.state.x, self.state.reading
            for k, (_, reading) in enumerate(self.since):
                x, last = integrated(x, last, reading), reading
                self.since[k] = x, reading
        return self.since[-1] if self.since else (self.state.x, self.state.reading)

    @property
    def t(self) -> float:
        """Time of the newest reading, s."""
        return self.since[-1][1].t if self.since else self.state.reading.t

    def append(self, reading: ImuReading) -> None:
        """Integrate to a newer reading."""
        x, last = self.now
        self.since.append((integrated(x, last, reading), reading))

    def forget(self, t: float) -> None:
        """Drop the readings after t (s), which were provisional."""
        while self.since and self.since[-1][1].t > t:
            self.since.pop()

    def step(self, t: float) -> bool:
        """Move the state by one reading, or by the part of it up to t (s); return False if there is none before t."""
        if not self.since or t <= self.state.reading.t:
            return False
        x, reading = self.since[0]
        if reading.t <= t:
            self.since.popleft()
            if self._stale:
                x = integrated(self.state.x, self.state.reading, reading)
        else:
            reading = self.state.reading.until(reading, t)
            x = integrated(self.state.x, self.state.reading, reading)
        self.state = propagate(self.state, x, reading, self.noise.growth(self.state.reading, reading))
        return True

    def present(self) -> FilterState:
        """Return all states and their covariance at the newest reading: F over the whole interval, Q summed over its steps."""
        x, reading = self.now
        if not self.since:
            return self.state
        readings = [self.state.reading, *(reading for _, reading in self.since)]
        growth: Array = np.asarray(sum(self.noise.growth(a, b) for a, b in pairwise(readings)))
        return propagate(self.state, x, reading, growth)


ATTITUDE_LIMIT = chi2_limit(3, 1e-3)  # -, squared Mahalanobis distance beyond which an attitude is an outlier
TURNED_AFTER = 12  # images that contradict before the gyro is doubted
ATTITUDES_KEPT = 100  # newest attitudes, 1 to 2 s
SIGMA_REFOCUSED = 0.03  # -, of a focal length measured from the pad: pad and map are known to 1 or 2 % of the range
READINGS_KEPT = 60  # newest readings, 0.25 to 0.5 s: they span the uncertainty of an exposure's time


class ErrorStateEstimator(MapEstimator):
    """Error-state Kalman filter on a known map."""

    def __init__(
        self, start: Start, camera: Camera, noise: Noise, look: GateAppearance, agility: Agility | None = None
    ):
        """Start at rest on the pad. Without `agility` no IMU sample is rejected as a spike."""
        self.health = Health()
        self._camera, self._start = camera, start
        reading = ImuReading(0.0, -matrix(start.q_wb).T @ [0.0, 0.0, GRAVITY], np.zeros(3))
        known = {"delay": camera.delay_s, "readout": camera.readout_s, "accel_delay": noise.imu.accel_delay_s}
        x = Nominal.at(0.0, start.p_wb, np.zeros(3), start.q_wb, **known)
        self.propagator = Propagator(FilterState(x, states.prior(noise, look, start.q_wb), reading), noise)
        self._recent: deque[ImuReading] = deque(maxlen=READINGS_KEPT)
        self._attitudes: deque[Attitude] = deque(maxlen=ATTITUDES_KEPT)
        self._positions: deque[tuple[float, Array, Array]] = deque(maxlen=ATTITUDES_KEPT)  # t, p_wb, v_w
        self._turns = reprojection.turns(camera)
        self._offsets = GateOffsets(noise.known.map_m, noise.known.map_turn, look.edge_offset_m, start.p_wb)
        self._at_rest, self._image_age_s = True, 0.0
        self._samples = ImuSamples(reading, agility)
        self._corrected = np.zeros(3)
        self._clock_sigma = float(np.sqrt(self.delayed.cov[DELAY, DELAY]))
        self.widths = PriorWidths(self.delayed, noise.walks)
        self._gyro_walk, self._corrected_t = GyroWalk(), 0.0
        self.restart_rest()

    @property
    def t(self) -> float:
        return self.propagator.t

    @property
    def noise(self) -> Noise:
        """Noise assumed at present: that at rest, and the walk of the attitude, are estimated."""
        return self.propagator.noise

    @property
    def delayed(self) -> FilterState:
        """Filter state at the last exposure."""
        return self.propagator.state

    def inflate_image_delay(self, sigma: float) -> None:
        more = sigma**2 - self._clock_sigma**2
        if more > 0:
            self._assume(DELAY, self.delayed.cov[DELAY, DELAY] + more)
            self._clock_sigma = sigma

    def _assume(self, row: int, variance: float) -> None:
        """Set the variance of one state, by its index in the error state."""
        cov = self.delayed.cov.copy()
        cov[row, row] = variance
        self.widths.assume(row, float(np.sqrt(variance)))
        self.propagator.correct(replace(self.delayed, cov=cov))

    def restart_rest(self) -> None:
        self._rest = Rest()

    def release(self) -> None:
        if not self._at_rest:
            return
        self._at_rest, self._corrected_t = False, self.t
        if not self._rest.samples:
            return
        self.propagator.noise = replace(self.noise, imu=self._rest.noise(self.noise.imu))
        self._level()
        self._update(*kalman.at_rest(*self._rest.mean, self._rest.samples, self.noise.imu))
        if self._attitudes:
            self._correct_attitude(self._attitudes[-1])
        self._attitudes.clear()

    def _level(self) -> None:
        """Set roll and pitch by gravity at rest; only the yaw is the track file's. The covariance refers to these axes."""
        x, q_level = self.delayed.x, levelled(self._rest.mean[0])
        q_wb = np.array(product(from_euler(0.0, 0.0, np.radians(self._start.yaw_deg)), q_level))
        cov = states.pad_attitude(self.delayed.cov, self.noise, q_wb)
        self.propagator.correct(FilterState(replace(x, q_wb=q_wb), cov, self.delayed.reading))

    def imu(self, sample: Imu) -> bool:
        if not plausible(sample) or sample.t <= self.t:
            self.health.samples_refused += 1
            return False
        raw = ImuReading(sample.t, np.array(sample.accel), np.array(sample.gyro))
        spikes, begins = self._samples.spikes, not self._recent and sample.t - self.t > LONGEST_STEP_S
        readings, guessed_from = self._samples.accept(raw, self.t)
        self.health.samples_refused += self._samples.spikes - spikes
        self._recent.extend(readings)
        self.propagator.forget(guessed_from)
        if self._at_rest or begins:  # a first sample on a clock of its own has nothing to integrate from
            measured = self._at_rest and readings[-1] is raw  # substitutes are not
            for reading in readings if measured else ():
                self._rest.add(reading)
            self.propagator.stand(sample.t, readings[-1])
            return True
        self.health.gaps += sample.t - self.t > LONGEST_STEP_S
        for reading in readings:
            if reading.t > self.t:
                self.propagator.append(ImuReading(reading.t, reading.accel, reading.gyro, reading.t - self.t))
        self._follow()
        return True

    def coast(self, samples: Sequence[Imu]) -> None:
        for sample in samples:
            x, since = self.propagator.now[0], sample.t - self.t
            if self._at_rest or not plausible(sample) or since <= 0:
                continue
            accel = np.array(sample.accel) / (1 - x[states.S_A]) + x[states.B_A]
            gyro = np.array(sample.gyro) / (1 - x[states.S_G]) + x[states.B_G]
            self.propagator.append(ImuReading(sample.t, accel, gyro, since, predicted=True))
            self._follow()

    def attitude(self, sample: Attitude) -> bool:
        q = np.array(sample.q_wb)
        if not (np.isfinite(q).all() and abs(q @ q - 1) < 1e-2 and self.delayed.reading.t <= sample.t < np.inf):
            self.health.samples_refused += 1
            return False
        self._attitudes.append(sample)
        return True

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        sound = np.isfinite(p_wb).all() and np.isfinite(v_w).all()
        if self._at_rest or not (sound and self.delayed.reading.t <= t < self.t + AHEAD_S):
            self.health.samples_refused += 1
            return False
        self._positions.append((t, p_wb, v_w))
        return True

    def state(self) -> State:
        present = self.present()
        cov = present.cov[POSE, POSE].copy()
        # The filter estimates the IMU's axes, not the body's.
        cov[THETA, THETA] += (self.widths.width(MOUNT) * self.noise.known.misaligned) ** 2 * EYE3
        x, to_gate = present.x, self._offsets.cov_on_map(present.x, present.cov)[P, P]
        drift = float(np.linalg.norm(self._corrected))
        return State(x.t, x.p_wb, x.q_wb, x.v_w, x.rates(present.reading), cov, drift, to_gate)

    def present(self) -> FilterState:
        """Return all states and their covariance at the newest IMU sample."""
        return self.propagator.present()

    def predict(self, stamp: float) -> ExposureState | None:
        # No image arrives before its exposure: an estimated delay that says so is wrong, and must not refuse its correction.
        exposure = min(stamp + self.delayed.x[DELAY], max(self.t, stamp) + AHEAD_S)
        self._image_age_s = max(self.t - exposure, AGEING * self._image_age_s)
        if self._at_rest or not (exposure >= self.delayed.reading.t and stamp < self.t + AHEAD_S):
            self.health.images_late += 1
            return None
        while self._step(exposure):
            pass
        return self._exposed(stamp, self._on_map())

    def predict_at_rest(self, stamp: float) -> ExposureState:
        return self._exposed(stamp, replace(self._on_map(), t=stamp))

    def _exposed(self, stamp: float, on_map: State) -> ExposureState:
        return ExposureState(stamp, on_map, reprojection.calibrated(self._camera, self.delayed.x))

    def correct(self, exposure: ExposureState, sightings: Sequence[GateSighting], unexplained: int) -> int:
        if self.delayed.reading.t != exposure.state.t:  # the filter has moved on since the prediction
            self.health.images_late += 1
            return 0
        fitting = self._see(exposure.stamp, sightings)
        if self.health.should_inflate(0 in fitting, unexplained + len(sightings)):
            # Doubt the pose after contradictory images, until they fit; after many, the gyro as well.
            for block in (P, V):
                self.propagator.correct(inflate_covariance(self.delayed, block, INFLATION))
            if self.health.misfits >= TURNED_AFTER:
                self._assume_walk(max(self._gyro_walk.density, CONTRADICTED))
        return len(fitting)

    def _assume_walk(self, density: float) -> None:
        """Set the density of the attitude's walk; a greater one counts since the last correction."""
        more = density**2 - self._gyro_walk.density**2
        if not more:
            return
        self._gyro_walk.density, cov = density, self.delayed.cov.copy()
        cov[POSE, POSE] += max(more, 0.0) * accumulated(self.delayed, self.delayed.x.t - self._corrected_t)
        self.propagator.correct(replace(self.delayed, cov=cov))
        theta = self.noise.states["theta"]._replace(walk=math.hypot(self.noise.known.gyro_walk, density))
        self.propagator.noise = replace(self.noise, states={**self.noise.states, "theta": theta})

    def calibration(self) -> Camera:
        state = self.delayed
        return replace(reprojection.calibrated(self._camera, state.x), doubt=states.doubt_in(state.cov))

    def refocus(self, scale: float) -> None:
        self._camera = self._camera.zoomed(scale)
        self._turns = reprojection.turns(self._camera)
        self._assume(FOCAL, max(self.delayed.cov[FOCAL, FOCAL], SIGMA_REFOCUSED**2))

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        return self._offsets.offset(gate, at_w, self.delayed.x)

    def gate_covariance(self, gate: int, at_w: Array) -> Array:
        return self._offsets.relative_covariance(gate, at_w, self.delayed.cov)

    def relocate(self, gate: int, cov: Array) -> None:
        self.propagator.correct(self._offsets.relocate(gate, cov, self.delayed))

    def _follow(self) -> None:
        """Keep the state near the present: given positions correct it no later than images need."""
        longest_s = min(self._image_age_s + SPARE_S, BEHIND_S) if self._positions else BEHIND_S
        while self.t - self.delayed.reading.t > longest_s and self._step(self.t):
            pass

    def _step(self, t: float) -> bool:
        """Move the state by one reading, at most to t (s), and correct it by attitudes and positions up to then; False at t.

        They wait until the state passes them, so that images, which arrive later, still find it at their exposure.
        """
        if not self.propagator.step(t):
            return False
        while self._attitudes and self._attitudes[0].t <= self.delayed.reading.t:
            self._correct_attitude(self._attitudes.popleft())
        while self._positions and self._positions[0][0] <= self.delayed.reading.t:
            t, p_wb, v_w = self._positions.popleft()
            x, reading = self.delayed.x, self.delayed.reading
            a_w = matrix(x.q_wb) @ x.force(reading) + [0.0, 0.0, GRAVITY]
            self._update(*kalman.position(p_wb, v_w, x.t - t, a_w))
        return True

    def _on_map(self) -> State:
        """Return the state for the association: position in the map frame, with the next gate's own offset in its covariance.

        About a relocated gate, the map is known as well as that gate's place. The uncertainty of the camera and of its delay
        is added to the pose's, as far as it rotates the image.
        """
        x, cov, reading = self.delayed.x, self.delayed.cov, self.delayed.reading
        omega, on_map = x.rates(reading), self._offsets.cov_on_map(x, cov)
        on_map[P, P] += (self.widths.width(COURSE) * self.noise.known.map_m) ** 2 * EYE3 + self._offsets.reference_cov
        on_map[P, P] += cov[DELAY, DELAY] * np.outer(x.v_w, x.v_w)
        by_row = (cov[READOUT, READOUT] + x[READOUT] ** 2) / 12  # s^2, of a row's exposure on the rolling shutter
        on_map[THETA, THETA] += (cov[DELAY, DELAY] + by_row) * np.outer(omega, omega)
        on_map[THETA, THETA] += self._turns @ cov @ self._turns.T - cov[THETA, THETA]
        # A relative error of the focal length shifts image points 45 deg off the axis by as much, as a tangent.
        on_map[THETA, THETA] += cov[FOCAL, FOCAL] * EYE3
        drift = float(np.linalg.norm(self._corrected))
        return State(reading.t, self._offsets.on_map(x), x.q_wb, x.v_w, omega, on_map, drift)

    def _see(self, stamp: float, sightings: Sequence[GateSighting]) -> list[int]:
        """Correct by the gates that pass the chi-square test, in one update; return their places in the order of range."""
        if not sightings:
            return []
        near = sorted(sightings, key=lambda sighting: sighting.range_m)[: states.GATES_KEPT]
        gates = [sighting.gate for sighting in near]
        self.propagator.correct(self._offsets.admit(gates, self.delayed))
        x, omega = self.delayed.x, self.delayed.x.rates(self.delayed.reading)
        context = CameraContext(self._camera, omega, x.t - stamp, self._sigma_turn(), self._start.p_wb)
        measured = reprojection.stack(near, self._offsets.slots(gates), x, context)
        gross, walked_s = (self.noise.gross_share, self.noise.gross_px), x.t - self._corrected_t
        G, nearest = accumulated(self.delayed, walked_s), measured.of([0])
        self._assume_walk(self._gyro_walk.likeliest(self.delayed.cov, G, walked_s, nearest, *gross))
        measured = reprojection.tempered(self.delayed.cov, measured, *gross)
        nis, singular = reprojection.passing(self.delayed.cov, measured)
        self.health.singular += singular
        self.health.gates_refused += len(near) - len(nis)
        if not nis:
            return []
        good = measured if len(nis) == len(near) else measured.of(list(nis))
        if not self._update(lambda x: reprojection.residual(x, context, good), good.R):
            return []
        for k in sorted(nis, reverse=True):  # the nearest last
            self._offsets.used(gates[k])
        self._corrected += self.delayed.x.p_wb - x.p_wb
        self._corrected_t = x.t
        self.health.used(list(nis.values()))
        self._widen()
        return list(nis)

    def _widen(self) -> None:
        try:
            self.propagator.correct(self.widths.test(self.delayed, self._offsets.constants()))
        except np.linalg.LinAlgError:
            self.health.singular += 1
        self._offsets.width = self.widths.width(COURSE)
        self.health.contradicted_t, self.health.widths = self.widths.contradicted_t, self.widths.all

    def _sigma_turn(self) -> Array:
        """Return the error (3,) rad of constant rates between the state's time and the uncertain time of exposure."""
        t, sigma = self.delayed.reading.t, float(np.sqrt(self.delayed.cov[DELAY, DELAY]))
        gyro = [reading.gyro for reading in self._recent if abs(reading.t - t) < 2 * sigma]
        return 0.5 * sigma * np.ptp(gyro, axis=0) if gyro else np.zeros(3)

    def _correct_attitude(self, sample: Attitude) -> bool:
        """Correct by an attitude measured just before the state's time; return whether it was used."""
        x, reading = self.delayed.x, self.delayed.reading
        measure, R = kalman.attitude(np.array(sample.q_wb), reading.t - sample.t, x.rates(reading))
        try:
            likely = mahalanobis2(measure(x)[0], self.delayed.cov[THETA, THETA] + R) < ATTITUDE_LIMIT
        except np.linalg.LinAlgError:
            self.health.singular += 1
            return False
        if not likely:
            self.health.samples_refused += 1
            # A single one is an outlier; repeated ones are right.
            self.propagator.correct(inflate_covariance(self.delayed, THETA, kalman.ATTITUDE_SIGMA))
            return False
        return self._update(measure, R)

    def _update(self, measure: MeasurementModel, R: Array) -> bool:
        try:
            self.propagator.correct(update(self.delayed, measure, R))
        except np.linalg.LinAlgError:
            self.health.singular += 1
            return False
        return True


DENSITIES = np.array([0.0, 0.01, 0.03, 0.1])  # rad/s^0.5
CONTRADICTED = 0.03  # rad/s^0.5, least density while images contradict the filter: NanoBench's gyros have 0.02 to 0.05
MEMORY_S = 4.0  # s, tau; with 1 s errors after a second without gates are greater (NanoBench)
MOST, ODDS = 3.0, 10.0  # nats, of an image and of a change: at least four images


class GyroWalk:
    """Random walk of the attitude, estimated in flight by the likelihood of the images: its density beyond the vehicle's file.

    A gyro that loses samples errs by more than its data sheet says: the filter stays sure of an attitude that turns away,
    rejects the gates that contradict it, and is lost. Candidates g_j of the density are compared by the likelihood of the
    residual r of each image's nearest gate (Magill 1965),

        L_j <- exp(-T / tau) L_j + log p(r; S_j),   S_j = S + (g_j^2 - g^2) H G H'

    where g is the density in the covariance so far, and G that of position, velocity and attitude which a walk of density 1 has
    accumulated in the time T since the last correction. p is a mixture with gross errors, as in `tempered`, and no candidate
    loses more than `MOST` by one image, so that a few false detections change nothing. Another density is taken when it is
    likelier by `ODDS`; a greater one counts since the last correction, P <- P + (g_j^2 - g^2) G.
    """

    def __init__(self) -> None:
        self.density = 0.0
        self._likelihood = np.zeros(len(DENSITIES))

    def likeliest(self, cov: Array, G: Array, T: float, nearest: Measured, share: float, gross_px: float) -> float:
        """Return the density to take after an image of a gate.

        Args:
            cov: (N, N), predicted covariance.
            G: (9, 9), of the pose by a walk of density 1 over T (s).
            share, gross_px: of gross errors, as in `tempered`.
        """
        H = nearest.H[:, POSE]
        S = nearest.H @ cov @ nearest.H.T + nearest.R
        S_j = S + (DENSITIES**2 - self.density**2)[:, None, None] * (H @ G @ H.T)
        gross = gross_px**2 * np.eye(len(S))
        if not np.isfinite(S_j).all():  # of a filter that has failed, or after hours without gates
            return self.density
        try:
            usual, wide = _log_normal(nearest.r, S_j), _log_normal(nearest.r, S_j + gross)
        except np.linalg.LinAlgError:
            return self.density
        likelihood = np.logaddexp(math.log(1 - share) + usual, math.log(share) + wide)
        self._likelihood *= math.exp(-T / MEMORY_S)
        self._likelihood += np.maximum(likelihood - likelihood.max(), -MOST)
        best, present = np.argmax(self._likelihood), np.argmax(self.density <= DENSITIES)
        surely = self._likelihood[best] - self._likelihood[present] > ODDS
        return float(DENSITIES[best]) if surely else self.density


def accumulated(state: FilterState, T: float) -> Array:
    """Return the covariance (9, 9) of the pose after a time T (s) by a walk of the attitude of density 1.

    The specific force is taken as that at the end: v' = C theta_w with C = -[f_w]x.
    """
    x, R_wb = state.x, matrix(state.x.q_wb)
    C = -cross(R_wb @ x.force(state.reading))
    G = np.zeros((9, 9))
    G[P, P], G[P, V], G[V, V] = T**5 / 20 * C @ C.T, T**4 / 8 * C @ C.T, T**3 / 3 * C @ C.T
    G[P, THETA], G[V, THETA], G[THETA, THETA] = T**3 / 6 * C @ R_wb, T**2 / 2 * C @ R_wb, T * EYE3
    G[V, P], G[THETA, P], G[THETA, V] = G[P, V].T, G[P, THETA].T, G[V, THETA].T
    return G


def _log_normal(r: Array, S: Array) -> Array:
    """Return the log densities (J,) of N(0, S_j) at r (M,), for S (J, M, M), up to a constant."""
    L = np.linalg.cholesky(S)
    white = np.linalg.solve(L, np.broadcast_to(r, S.shape[:-1])[..., None])[..., 0]
    return -0.5 * (white**2).sum(-1) - np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(-1)
