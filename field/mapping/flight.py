"""A logged flight for a map: prior uncertainty, IMU and sights, and a chain of states at its images.

Openings of known size give ranges as accurate as the focal length, and the IMU gives lengths as accurate as its scale.
Rotations in ATTITUDE make the focal length observable. Where the files are right, free parameters would only reduce
accuracy, so camera and IMU are first taken as of an unknown simulator, and then held at the files' values unless they
differ significantly.

The states are connected by the IMU: the error-state filter's model, solved as a batch.

    x_k+1 (+) d_k+1 = f(x_k) (+) (F_k d_k + w_k),   w_k ~ N(0, Q_k)

f integrates the readings between two images from x_k; F and Q are the products of `strapdown.transition` and of the
filter's noise along them (preintegration; Forster et al. 2017, here without the closed form, since readings are few). The
normal matrix of the corrections d is block tridiagonal, hence banded, and is factorised by LAPACK.
"""

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.files import reading
from gate_racer.estimation.estimator import State
from gate_racer.estimation.imu_samples import Rest, levelled
from gate_racer.estimation.landmarks import LandmarkEstimator
from gate_racer.link.messages import Attitude, Imu
from gate_racer.link.record import Losses
from gate_racer.model import kalman
from gate_racer.model import states as error
from gate_racer.model.imu import LONGEST_STEP_S, REPEATS_S, ImuReading, plausible
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import ERROR, KNOWN, THETA, Noise, Nominal, P, V, column, prior, varied
from gate_racer.model.strapdown import integrated, transition
from gate_racer.perception.detection import Detection, Detector
from gate_racer.pilot.records.imported import is_imported, is_ratm, read_any_records
from gate_racer.pilot.replay import images
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import chi2_limit
from gate_racer.vehicle.vehicle import Vehicle

# Parameters shared by all states of all flights, by index in the error state: the camera, and the tilt error of ATTITUDE.
SHARED = np.r_[error.YAW, error.ROLL, error.FOCAL, error.CENTRE, error.ARM, error.LEAN, error.RADIAL, error.READOUT]
M = len(SHARED)
_LEAN_BEGIN = SHARED.tolist().index(error.LEAN.start)
LEAN_IN_SHARED = slice(_LEAN_BEGIN, _LEAN_BEGIN + 3)  # indices of LEAN among the shared parameters
WALKS = {"v": {"walk": 0.005}, "edge_px": {"walk": 0.01}}  # as in the filter's noise, for a slow flight
IMU_SCALE = 1e-4  # relative: scale error of sensors where the files are right, and so of the map
SIZE_SIGMA_M = 0.003  # m, standard deviation of the gates' common edge offset in that case
# m, of frames: boxes fitted to real ones are 0.16 m deep, the wire says 0.26 m, physical ones may have 0.14.
DEPTH_SIGMA_M = 0.05
PAD_SIGMA_RAD = 0.01  # rad, standard deviation of the reported attitude on the pad (chosen)
HELD = 1e-3  # -, factor on the prior of a parameter that is held (chosen)
FALSE_ALARM = 1e-3  # -, rate at which correct files are rejected with correct covariances (chosen)
OVERCONFIDENT = 2.0  # factor by which the standard deviations are too small


@dataclass(frozen=True)
class MapPriors:
    """Standard deviations of all parameters except gates and trajectories."""

    noise: Noise
    shared: Array  # (M,) in the order of `SHARED`
    edge_offset_m: float
    pitch_rad: float  # pitch of each gate
    pad_rad: float
    depth_m: float = DEPTH_SIGMA_M


def specified(vehicle: Vehicle) -> MapPriors:
    """Return the uncertainty for a camera and IMU as in the vehicle's file, except the camera's tilt and clock."""
    scale, none = {"prior": IMU_SCALE}, {"prior": 0.0}
    return MapPriors(
        Noise(vehicle.imu, varied(s_a=scale, s_g=scale, b_a=none, b_g=none, **WALKS)),
        HELD * column("prior")[SHARED],
        SIZE_SIGMA_M,
        HELD,
        PAD_SIGMA_RAD,
    )


def unknown(vehicle: Vehicle, look: GateAppearance) -> MapPriors:
    """Return the uncertainty for an unknown camera and IMU, as assumed by the error-state filter."""
    states = varied(**WALKS)
    shared = column("prior", states)[SHARED]
    pad_rad = float(np.hypot(PAD_SIGMA_RAD, shared[LEAN_IN_SHARED][0]))
    return MapPriors(Noise(vehicle.imu, states), shared, look.edge_offset_m, KNOWN.map_turn, pad_rad)


def differs(shared: Array, cov: Array) -> bool:
    """Return whether the estimate of `SHARED` (M,), with covariance (M, M), differs significantly from the file."""
    return float(shared @ np.linalg.solve(cov, shared)) > OVERCONFIDENT**2 * chi2_limit(M, FALSE_ALARM)


GAP_S = 5 * LONGEST_STEP_S  # s without IMU samples, after which dead reckoning is lost


class MapError(UserError):
    """A map that cannot be estimated from these flights."""


@dataclass(frozen=True)
class LoggedImage:
    t: float  # s
    detections: list[Detection]


@dataclass
class LoggedFlight:
    """One log, from the rest on the pad, which the first command ends, to its end; without repeated samples."""

    path: Path
    rest: Rest = field(default_factory=Rest)  # statistics of the IMU before the flight
    readings: list[ImuReading] = field(default_factory=list)  # in flight
    attitudes: list[Attitude] = field(default_factory=list)
    images: list[LoggedImage] = field(default_factory=list)  # in flight, in order
    events: list[Imu | Attitude | LoggedImage] = field(default_factory=list)  # of all times, in order of arrival
    released: float = 0.0  # s, end of the rest
    cut: str = ""  # reason why the log was not used to its end

    def attitude_before(self, t: float) -> Attitude | None:
        k = bisect_right(self.attitudes, t, key=lambda attitude: attitude.t) - 1
        return self.attitudes[k] if k >= 0 else None


def read_flight(path: Path, detector: Detector | None = None) -> LoggedFlight:
    """Read a log, with its own detections or those of a detector. Raises UserError without flight, IMU or gates."""
    if is_imported(path) and (detector or not is_ratm(path)):
        hint = "use its labelled corners, without --detector" if is_ratm(path) else "map-track needs gates in images"
        raise MapError(f"{path}: holds no images; {hint}")
    flight = LoggedFlight(path)
    with reading(path):
        _read(flight, detector)
    return flight


def _read(flight: LoggedFlight, detector: Detector | None) -> None:
    path, flying = flight.path, False

    def lost(_: Path, losses: Losses) -> None:
        flight.cut = str(losses)

    begin = "phase" if is_imported(path) else "command"
    records = read_any_records(path, ("/window",) if detector else ("/window", "/camera"), lost)
    for topic, record, detections in images(((topic.strip("/"), record) for topic, record in records), detector):
        if topic == begin and not flying:
            flying, flight.released = True, record["t"]
        elif topic == "imu":
            sample = Imu(record["t"], tuple(record["accel"]), tuple(record["gyro"]))
            if flying and flight.readings and sample.t - flight.readings[-1].t > GAP_S:
                flight.cut = f"the IMU's clock jumps or stops at {flight.readings[-1].t:.2f} s"
                break
            _take(flight, sample, flying)
        elif topic == "attitude":
            flight.attitudes.append(Attitude(record["t"], tuple(record["q"])))
            flight.events.append(flight.attitudes[-1])
        elif topic == "image":
            flight.events.append(LoggedImage(record["t"], detections))
    flight.attitudes.sort(key=lambda attitude: attitude.t)
    if not flying or len(flight.readings) < 2:
        raise MapError(f"{path}: holds {len(flight.readings)} IMU samples in flight; run-mpc writes them")
    first, last = flight.released, flight.readings[-1].t
    seen = [one for one in flight.events if isinstance(one, LoggedImage) and first < one.t < last]
    flight.images = sorted(seen, key=lambda one: one.t)
    if not any(image.detections for image in flight.images):
        without = "holds no detections; use --detector to detect gates in its images"
        raise MapError(f"{path}: {'no gate was detected in its images' if detector else without}")


def _take(flight: LoggedFlight, sample: Imu, flying: bool) -> None:
    if not plausible(sample):
        return
    flight.events.append(sample)
    reading = ImuReading(sample.t, np.array(sample.accel), np.array(sample.gyro))
    if not flying:
        flight.rest.add(reading)
        return
    last = flight.readings[-1] if flight.readings else None
    if last is not None:
        same = np.array_equal(last.accel, reading.accel) and np.array_equal(last.gyro, reading.gyro)
        if reading.t <= last.t or (same and reading.t - last.t < REPEATS_S):
            return
    flight.readings.append(reading)


PAD_SIGMA_P, PAD_SIGMA_V = 1e-3, 2e-3  # m, m/s: the pad is the map's origin
NORTH_SIGMA = 1e-3  # rad: without a heading, the yaw on the pad defines the world frame
ATTITUDE_SIGMA = 0.0005  # rad: the telemetry has no noise, but its stamps have
N = error.GATES.start  # errors of a state; the filter's further errors, gates and scale, are unknowns of the map here
MOST_STATES = 2000  # states per flight
FRESH_S = 0.05  # s, greatest age of an attitude that is used (chosen)
FLOOR = 1e-10  # least variances: position follows velocity exactly within a step
BAND = 2 * N  # diagonals of the normal matrix at and below the main one


@dataclass(frozen=True)
class StateChain:
    """K states of one flight, at its readings nearest to images, and their measurements except the gates."""

    flight: LoggedFlight
    states: tuple[Nominal, ...]
    at: tuple[ImuReading, ...]  # reading at each state
    between: tuple[tuple[ImuReading, ...], ...]  # readings after each state up to the next one, or to the end: K
    images: tuple[LoggedImage, ...]  # images of the states after the first, which is at rest

    def moved(self, d: Array, shared: Array) -> "StateChain":
        """Apply corrections d (K, N) of the states, and of the shared parameters (M,)."""
        errors = np.zeros((len(d), ERROR.size))
        errors[:, :N], errors[:, SHARED] = d, shared
        return replace(self, states=tuple(x.plus(off) for x, off in zip(self.states, errors, strict=True)))

    def path(self) -> tuple[Array, Array]:
        """Return times (M,) s and positions (M, 3) m at the states and at all readings between them."""
        rows = []
        for x, last, between in zip(self.states, self.at, self.between, strict=True):
            rows.append((x.t, x.p_wb))
            for sample in between:
                x, last = integrated(x, last, sample), sample
                rows.append((x.t, x.p_wb))
        return np.array([t for t, _ in rows]), np.array([p for _, p in rows])

    def omega(self, k: int) -> Array:
        """Return the body rates (3,) rad/s at state k."""
        return self.states[k].rates(self.at[k])

    def normal(self, doubt: MapPriors, look: GateAppearance) -> "ChainNormal":
        K = len(self.states)
        D, L, b = np.zeros((K, N, N)), np.zeros((K - 1, N, N)), np.zeros((K, N))
        normal = ChainNormal(D, L, b, np.zeros((K, N, 3)), np.zeros((3, 3)), np.zeros(3))
        doubt = replace(doubt, noise=replace(doubt.noise, imu=self.flight.rest.noise(doubt.noise.imu)))
        self._at_rest(doubt, look, normal)
        for k in range(K - 1):
            ahead, F, Q = self._preintegrated(k, doubt.noise)
            gap = self.states[k + 1].minus(ahead)[:N]
            W = np.linalg.inv(Q)
            # | gap + d_k+1 - F d_k |^2 by W
            D[k] += F.T @ W @ F
            D[k + 1] += W
            L[k] = -W @ F
            b[k] += F.T @ W @ gap
            b[k + 1] -= W @ gap
            self._attitude(k + 1, normal)
        return normal

    def _preintegrated(self, k: int, noise: Noise) -> tuple[Nominal, Array, Array]:
        x, last, F, Q = self.states[k], self.at[k], np.eye(N), np.zeros((N, N))
        for sample in self.between[k]:
            step = np.eye(N)
            step[error.POSE, error.MOVING] = transition(x, last, sample)
            F, Q = step @ F, step @ Q @ step.T
            Q.flat[:: N + 1] += noise.growth(last, sample)[:N]
            x, last = integrated(x, last, sample), sample
        Q.flat[:: N + 1] += FLOOR
        return x, F, Q

    def _at_rest(self, doubt: MapPriors, look: GateAppearance, normal: "ChainNormal") -> None:
        """Add the priors of the first state: the pad, mean readings at rest, the camera and the appearance of gates."""
        x, noise, D, b = self.states[0], doubt.noise, normal.D, normal.b
        accel, gyro = self.flight.rest.mean
        received = self.flight.attitude_before(self.flight.released)
        q = levelled(accel) if received is None else np.array(received.q_wb)
        sigma = np.sqrt(prior(noise, look, q).diagonal()[:N])
        sigma[P], sigma[V], sigma[THETA] = PAD_SIGMA_P, PAD_SIGMA_V, doubt.pad_rad
        pad = Nominal.at(x.t, np.zeros(3), np.zeros(3), q, b_g=gyro)
        W = np.diag(sigma**-2.0)
        D[0] += W
        b[0] -= W @ x.minus(pad)[:N]
        rest, R = kalman.at_rest(accel, gyro, self.flight.rest.samples, noise.imu)
        r, H = rest(x)
        weighted = np.linalg.solve(R, H[:, :N])
        D[0] += H[:, :N].T @ weighted
        b[0] += weighted.T @ r
        if self.flight.attitudes:
            self._attitude(0, normal)
        else:  # yaw: the rotation about the world's vertical, in body axes
            down_b = -np.asarray(accel) / np.linalg.norm(accel)
            D[0][THETA, THETA] += np.outer(down_b, down_b) / NORTH_SIGMA**2

    def _attitude(self, k: int, normal: "ChainNormal") -> None:
        x, omega = self.states[k], self.omega(k)
        received = self.flight.attitude_before(x.t)
        if received is None or x.t - received.t > FRESH_S:
            return
        r, H = kalman.attitude(np.array(received.q_wb), x.t - received.t, omega)[0](x)
        w = 1 / (ATTITUDE_SIGMA**2 + kalman.STAMP_SIGMA_S**2 * float(omega @ omega))
        by_theta = H[:, THETA]
        normal.D[k][THETA, THETA] += w * by_theta.T @ by_theta
        normal.b[k][THETA] += w * by_theta.T @ r
        normal.with_lean[k][THETA] += w * by_theta.T
        normal.by_lean[:] += w * np.eye(3)
        normal.of_lean[:] += w * r


class ChainNormal(NamedTuple):
    """Normal equations of K states, and of the tilt error of the received attitudes (with a Jacobian of 1 to first order)."""

    D: Array  # (K, N, N) diagonal blocks
    L: Array  # (K - 1, N, N) blocks below the diagonal
    b: Array  # (K, N) right-hand sides
    with_lean: Array  # (K, N, 3)
    by_lean: Array  # (3, 3)
    of_lean: Array  # (3,) right-hand side

    def solve(self, right: Array) -> Array:
        """Return the solutions (K N, M) of the block tridiagonal system for right sides (K N, M)."""
        from scipy.linalg import cho_solve_banded, cholesky_banded  # slow to load, and only needed for maps

        size = len(self.D) * N
        band = np.zeros((BAND, size))
        for i in range(N):
            for j in range(N):
                if i >= j:
                    band[i - j, j::N] = self.D[:, i, j]
                band[N + i - j, j : size - N : N] = self.L[:, i, j]
        return cho_solve_banded((cholesky_banded(band, lower=True), True), right)

    def covariances(self) -> Array:
        """Return the diagonal blocks (K, N, N) of the system's inverse, as of a smoother."""
        pivots, inverse, gains = [self.D[0]], np.empty_like(self.D), []
        for below, diagonal in zip(self.L, self.D[1:], strict=True):
            gains.append(np.linalg.solve(pivots[-1], below.T))
            pivots.append(diagonal - below @ gains[-1])
        inverse[-1] = np.linalg.inv(pivots[-1])
        for k in range(len(gains) - 1, -1, -1):
            inverse[k] = np.linalg.inv(pivots[k]) + gains[k] @ inverse[k + 1] @ gains[k].T
        return inverse


def first_guess(
    flight: LoggedFlight, camera: Camera, opening_m: float, look: GateAppearance
) -> tuple[StateChain, LandmarkEstimator]:
    """Return the chain, of MOST_STATES images at most, and the gates by the explorer's filter. Raises MapError."""
    if not flight.rest.samples:
        raise MapError(f"{flight.path}: holds no IMU samples at rest, so neither level nor biases are known")
    front = LandmarkEstimator(camera, opening_m, look)
    spacing = (flight.readings[-1].t - flight.released) / MOST_STATES
    times, (_, gyro) = [sample.t for sample in flight.readings], flight.rest.mean
    states, images = list[Nominal](), list[LoggedImage]()
    for event in flight.events:
        if not states and isinstance(event, Imu) and event.t > flight.released:
            front.release()
            states.append(_nominal(front.state(), gyro))
        if isinstance(event, Imu):
            front.imu(event)
        elif isinstance(event, Attitude):
            front.attitude(event)
        elif states:
            front.see(event.t, event.detections)
            late, state = event.t - max(states[-1].t, times[0]), front.at(event.t)
            if state is not None and event.detections and late > max(spacing, 1e-3) and event.t < times[-1]:
                states.append(_nominal(state, gyro))
                images.append(event)
    at, between = _spread(flight, [x.t for x in states])
    return StateChain(flight, tuple(states), at, between, tuple(images)), front


def _nominal(s: State, gyro_bias: Array) -> Nominal:
    return Nominal.at(s.t, s.p_wb, s.v_w, s.q_wb, b_g=gyro_bias)


def _spread(
    flight: LoggedFlight, times: list[float]
) -> tuple[tuple[ImuReading, ...], tuple[tuple[ImuReading, ...], ...]]:
    """Return the readings at the times of the states, interpolated, and those after each up to the next."""
    readings = flight.readings
    stamps = np.array([sample.t for sample in readings])

    def reading_at(t: float) -> ImuReading:
        k = int(np.searchsorted(stamps, t, side="right"))
        if k == 0:
            return ImuReading(t, readings[0].accel, readings[0].gyro)
        return readings[k - 1].until(readings[min(k, len(readings) - 1)], t) if k < len(readings) else readings[-1]

    at = tuple(reading_at(t) for t in times)
    ends = [*at[1:], readings[-1]]
    between = []
    for a, b in zip(at, ends, strict=True):
        inside = readings[np.searchsorted(stamps, a.t, side="right") : np.searchsorted(stamps, b.t)]
        between.append((*inside, b) if b.t > a.t else ())
    return at, tuple(between)
