"""The error-state filter at work on IMU, gates and, where it is sent, attitude.

The filter lives at the last exposure; the readings since then are kept, and integrate to the present. A picture moves it along
them to the time of its own exposure, corrects it there, and the present follows anew. Without pictures it keeps `BEHIND_S`
behind the present, so that each IMU sample costs the same.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from estimation import telling
from estimation.eskf import Belief, Residual, distance2, doubted, predicted, updated
from estimation.estimator import LONGEST_STEP_S, Recognise, State, sane
from estimation.health import DOUBT_P, DOUBT_V, Health
from estimation.imu_samples import Agility, ImuSamples
from estimation.noise import Noise, pad_attitude, prior
from estimation.places import Places, block
from estimation.reprojection import TURNING, Looking, passing, residual, stack, turns
from estimation.rest import Rest, levelled
from estimation.states import (
    B_A,
    B_G,
    DELAY,
    EYE3,
    FOCAL,
    PLACES,
    POSE,
    READOUT,
    S_A,
    S_G,
    SCALE,
    THETA,
    Nominal,
    P,
    Reading,
    V,
)
from estimation.strapdown import integrated
from link.messages import Attitude, Imu
from perception.association import GateSighting, Look
from tracks.track import Start
from vehicle.camera import Camera
from vehicle.dynamics import GRAVITY
from vehicle.rotation import Array, from_euler, matrix, product
from vehicle.rotation import exp as turned

BEHIND_S = 0.4  # how late a picture may be when no newer one was used: up to 0.26 s on a machine with too much to do
AHEAD_S = 0.03  # how far an exposure may lie ahead of the newest reading: so far constant rates will do
ATTITUDE_LIMIT = 16.27  # chi-square of 3 degrees of freedom, exceeded once in a thousand
ATTITUDES_KEPT = 100
READINGS_KEPT = 60


class ErrorStateEstimator:
    """See `estimation.estimator.Estimator`."""

    def __init__(self, start: Start, camera: Camera, noise: Noise, look: Look, agility: Agility | None = None):
        """Without an agility no sample is taken for a spike."""
        self.health = Health()
        self._camera, self._noise, self._look, self._pad_w = camera, noise, look, start.p_wb
        self._start = start
        reading = Reading(0.0, -matrix(start.q_wb).T @ [0.0, 0.0, GRAVITY], np.zeros(3))
        x = Nominal.at(0.0, start.p_wb, np.zeros(3), start.q_wb)
        self._belief = Belief(x, prior(noise, look, start.q_wb), reading)
        self._since: deque[tuple[Nominal, Reading]] = deque()  # the present, step by step from the belief
        self._recent: deque[Reading] = deque(maxlen=READINGS_KEPT)
        self._attitudes: deque[Attitude] = deque(maxlen=ATTITUDES_KEPT)
        self._turns = turns(camera)
        self._places = Places(noise.map_m, look.edge_m)
        self._at_rest = True
        self._samples = ImuSamples(reading, agility)
        self._corrected = np.zeros(3)
        self._clock_sigma = noise.delay
        self.restart_rest()

    @property
    def t(self) -> float:
        return self._now[1].t

    @property
    def _now(self) -> tuple[Nominal, Reading]:
        return self._since[-1] if self._since else (self._belief.x, self._belief.reading)

    def doubt_clock(self, sigma: float) -> None:
        more = sigma**2 - self._clock_sigma**2
        if more > 0:
            cov = self._belief.cov.copy()
            cov[DELAY, DELAY] += more
            self._belief, self._clock_sigma = Belief(self._belief.x, cov, self._belief.reading), sigma

    def restart_rest(self) -> None:
        self._rest = Rest()

    def release(self) -> None:
        if not self._at_rest:
            return
        self._at_rest = False
        if not self._rest.samples:
            return
        self._noise = replace(self._noise, imu=self._rest.noise(self._noise.imu))
        self._stand_up()
        self._update(*telling.at_rest(*self._rest.mean, self._rest.samples, self._noise.imu))
        if self._attitudes:
            self._hear_attitude(self._attitudes[-1])
        self._attitudes.clear()

    def _stand_up(self) -> None:
        """Roll and pitch are what gravity says at rest, and only the yaw is the file's; the doubt is about these axes."""
        x, cov, q_level = self._belief.x, self._belief.cov.copy(), levelled(self._rest.mean[0])
        q_wb = np.array(product(from_euler(0.0, 0.0, np.radians(self._start.yaw_deg)), q_level))
        cov[THETA, THETA] = pad_attitude(self._noise, q_wb)
        self._belief = Belief(replace(x, q_wb=q_wb), cov, self._belief.reading)

    def imu(self, sample: Imu) -> bool:
        if not sane(sample) or sample.t <= self.t:
            self.health.samples_refused += 1
            return False
        raw = Reading(sample.t, np.array(sample.accel), np.array(sample.gyro))
        spikes = self._samples.spikes
        readings, guessed_from = self._samples.heard(raw, self.t)
        self.health.samples_refused += self._samples.spikes - spikes
        self._recent.extend(readings)
        while self._since and self._since[-1][1].t > guessed_from:
            self._since.pop()
        if self._at_rest:
            for reading in readings if readings[-1] is raw else ():  # the others stand in for none
                self._rest.add(reading)
            x = self._belief.x
            self._belief = Belief(Nominal(sample.t, x.q_wb, x.values), self._belief.cov, readings[-1])
            return True
        self.health.gaps += sample.t - self.t > LONGEST_STEP_S
        for reading in readings:
            if reading.t > self.t:
                self._append(Reading(reading.t, reading.accel, reading.gyro, reading.t - self.t))
        if self.t - self._belief.reading.t > BEHIND_S:
            self._step(*self._since.popleft())
        return True

    def coast(self, samples: Sequence[Imu]) -> None:
        for sample in samples:
            x, since = self._now[0], sample.t - self.t
            if self._at_rest or not sane(sample) or since <= 0:
                continue
            accel = np.array(sample.accel) / (1 - x[S_A]) + x[B_A]
            gyro = np.array(sample.gyro) / (1 - x[S_G]) + x[B_G]
            self._append(Reading(sample.t, accel, gyro, since, predicted=True))
            if self.t - self._belief.reading.t > BEHIND_S:
                self._step(*self._since.popleft())

    def attitude(self, sample: Attitude) -> bool:
        q = np.array(sample.q_wb)
        if not (np.isfinite(q).all() and abs(q @ q - 1) < 1e-2 and self._belief.reading.t <= sample.t < np.inf):
            self.health.samples_refused += 1
            return False
        self._attitudes.append(sample)
        return True

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        sound = np.isfinite(p_wb).all() and np.isfinite(v_w).all()
        if self._at_rest or not (sound and self._belief.reading.t <= t < self.t + AHEAD_S):
            self.health.samples_refused += 1
            return False
        self._advance(min(t, self.t))
        used = self._update(*telling.position(p_wb, v_w, self._belief.x.t - t))
        self._replay()
        return used

    def state(self) -> State:
        belief = self.present()
        x, reading = belief.x, belief.reading
        cov = belief.cov[POSE, POSE].copy()
        cov[THETA, THETA] += self._noise.misaligned**2 * EYE3  # the filter's axes are the IMU's
        return self._state(x, reading, cov, self._to_gate(x, belief.cov)[P, P])

    def present(self) -> Belief:
        """All states and their covariance at the newest IMU sample: F in one stride, Q step by step."""
        x, reading = self._now
        return predicted(self._belief, x, reading, self._growth()) if self._since else self._belief

    def picture(self, t: float, recognise: Recognise) -> int:
        exposure = t + self._belief.x[DELAY]
        ahead = exposure - self.t
        if self._at_rest or not (exposure >= self._belief.reading.t and ahead < AHEAD_S):
            self.health.pictures_late += 1
            return 0
        moved = self._advance(min(exposure, self.t))
        sightings, unexplained = recognise(self._prior())
        used = self._see(t, sightings)
        if self.health.doubtful(t, used, unexplained + len(sightings)):
            self._belief = doubted(doubted(self._belief, P, DOUBT_P), V, DOUBT_V)
        if used or moved:
            self._replay()
        return used

    def _growth(self) -> Array:
        """(N,) by which variances grow from the belief to the present, step by step."""
        readings = [self._belief.reading, *(reading for _, reading in self._since)]
        return np.asarray(sum(self._noise.growth(a, b) for a, b in pairwise(readings)))

    def _append(self, reading: Reading) -> None:
        x, last = self._now
        self._since.append((integrated(x, last, reading), reading))

    def _step(self, x: Nominal, reading: Reading) -> bool:
        """Moves the belief to a later reading, and corrects it by attitudes from before; whether there were any."""
        self._belief = predicted(self._belief, x, reading, self._noise.growth(self._belief.reading, reading))
        heard = False
        while self._attitudes and self._attitudes[0].t <= reading.t:
            heard |= self._hear_attitude(self._attitudes.popleft())
        return heard

    def _advance(self, t: float) -> bool:
        """Moves the belief to t, not beyond the present; whether attitudes have corrected it on the way."""
        moved = False
        while self._since and self._since[0][1].t <= t:
            x, reading = self._since.popleft()
            if moved:
                x = integrated(self._belief.x, self._belief.reading, reading)
            moved |= self._step(x, reading)
        if self._since and t > self._belief.reading.t:
            between = self._belief.reading.until(self._since[0][1], t)
            self._step(integrated(self._belief.x, self._belief.reading, between), between)
        return moved

    def _replay(self) -> None:
        """The present anew from the belief."""
        readings = [reading for _, reading in self._since]
        self._since.clear()
        for reading in readings:
            self._append(reading)

    def _prior(self) -> State:
        """What the association has to know: the position as the map has the gates about, and the next one is in doubt anew;
        the camera's errors and delay are part of the pose, and of its doubt, as far as they turn the picture."""
        x, cov, reading = self._belief.x, self._belief.cov, self._belief.reading
        omega, last, doubt = x.rates(reading), self._places.last, self._to_gate(x, cov)
        p_wb = x.p_wb - x[SCALE] * (x.p_wb - self._pad_w)
        if last is not None:
            p_wb = p_wb - x.gates[last]
        doubt[P, P] += self._noise.map_m**2 * EYE3
        doubt[P, P] += cov[DELAY, DELAY] * np.outer(x.v_w, x.v_w)
        by_row = (cov[READOUT, READOUT] + x[READOUT] ** 2) / 12  # s^2, of a gate's place on the rolling shutter
        doubt[THETA, THETA] += (cov[DELAY, DELAY] + by_row) * np.outer(omega, omega)
        turns = self._turns
        doubt[THETA, THETA] += turns @ cov @ turns.T - cov[THETA, THETA]
        doubt[THETA, THETA] += (
            cov[FOCAL, FOCAL] + x[FOCAL] ** 2
        ) * EYE3  # a larger picture: by so much at 45 deg off the axis
        turn = turns[:, TURNING] @ x[TURNING]
        q_wb = np.array(product(x.q_wb, turned(turn)))
        return State(reading.t, p_wb, q_wb, x.v_w, omega, doubt, float(np.linalg.norm(self._corrected)))

    def _see(self, stamp: float, sightings: Sequence[GateSighting]) -> int:
        """Corrects by the gates that pass the test, all in one update; returns their number."""
        near = sorted(sightings, key=lambda sighting: sighting.range_m)[:PLACES]
        if not near:
            return 0
        gates = [sighting.gate for sighting in near]
        self._belief = self._places.given(gates, self._belief)
        x, omega = self._belief.x, self._belief.x.rates(self._belief.reading)
        looking = Looking(self._camera, omega, x.t - stamp, self._sigma_turn(), self._pad_w)
        measured = stack(near, self._places.of(gates), x, looking)
        nis, singular = passing(self._belief.cov, measured)
        self.health.singular += singular
        self.health.gates_refused += len(near) - len(nis)
        if not nis:
            return 0
        good = measured if len(nis) == len(near) else measured.of(list(nis))
        if not self._update(lambda x: residual(x, looking, good), good.R):
            return 0
        for k in sorted(nis, reverse=True):  # the nearest last
            self._places.used(gates[k])
        self._corrected += self._belief.x.p_wb - x.p_wb
        self.health.used(self._belief.reading.t, list(nis.values()))
        return len(nis)

    def _sigma_turn(self) -> Array:
        """(3,) rad by which constant rates are wrong between the belief's time and where the exposure may be."""
        t, sigma = self._belief.reading.t, float(np.sqrt(self._belief.cov[DELAY, DELAY]))
        gyro = [reading.gyro for reading in self._recent if abs(reading.t - t) < 2 * sigma]
        return 0.5 * sigma * np.ptp(gyro, axis=0) if gyro else np.zeros(3)

    def _hear_attitude(self, sample: Attitude) -> bool:
        """Uses an attitude from just before the belief's time."""
        x, reading = self._belief.x, self._belief.reading
        measure, R = telling.attitude(np.array(sample.q_wb), reading.t - sample.t, x.rates(reading))
        try:
            likely = distance2(self._belief.cov[THETA, THETA] + R, measure(x)[0]) < ATTITUDE_LIMIT
        except np.linalg.LinAlgError:
            self.health.singular += 1
            return False
        if not likely:
            self.health.samples_refused += 1
            self._belief = doubted(self._belief, THETA, telling.ATTITUDE_SIGMA)  # one is an outlier, many are right
            return False
        return self._update(measure, R)

    def _update(self, measure: Residual, R: Array) -> bool:
        try:
            self._belief = updated(self._belief, measure, R)
        except np.linalg.LinAlgError:
            self.health.singular += 1
            return False
        return True

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        x = self._belief.x
        return self._places.offset(gate, x.gates) + x[SCALE] * (at_w - self._pad_w)

    def _to_gate(self, x: Nominal, cov: Array) -> Array:
        """Covariance (9, 9) of the position about x to the gate used last, velocity and attitude: p - scale (p - pad) - gate."""
        last, from_pad = self._places.last, x.p_wb - self._pad_w
        rows = cov[POSE].copy()
        rows[P] -= np.outer(from_pad, cov[SCALE])
        if last is not None:
            rows[P] -= cov[block(last)]
        about = rows[:, POSE].copy()
        about[:, P] -= np.outer(rows[:, SCALE], from_pad)
        if last is not None:
            about[:, P] -= rows[:, block(last)]
        return about

    def _state(self, x: Nominal, reading: Reading, cov: Array, cov_to_gate: Array) -> State:
        drift = float(np.linalg.norm(self._corrected))
        return State(x.t, x.p_wb, x.q_wb, x.v_w, x.rates(reading), cov, drift, cov_to_gate)
