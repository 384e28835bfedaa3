"""States of the error-state model: layout, nominal state, initial covariance P0 and process noise Q; `State`, what others see.

An error is the true value minus the estimate, and theta with q = q_est * exp(theta) (Sola, "Quaternion kinematics for the
error-state Kalman filter", 2017). State, error and covariance go by the same names: x[ACCEL_DELAY], cov[THETA, THETA].
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from gate_racer.common.compiled import compiled
from gate_racer.model.imu import ImuReading
from gate_racer.model.rims import GateAppearance
from gate_racer.vehicle.camera import CameraDoubt
from gate_racer.vehicle.dynamics import layout
from gate_racer.vehicle.rotation import Array, Vector, as_vector, conjugate, log, matrix, product, turn
from gate_racer.vehicle.statistics import greatest_sigma
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import ImuParameters, Vehicle

GATES_KEPT = 6  # gates whose offsets are estimated at a time (chosen)
XYZ = "x y z"
EACH_GATE = " ".join(str(k) for k in range(GATES_KEPT))
KNOWN = Doubt()


class StateBlock(NamedTuple):
    """One named block of the error state."""

    axes: str
    unit: str
    about: str  # frame or definition
    prior: float | tuple[float, ...] = 0.0  # standard deviation at the start; 0: set elsewhere, see `noise.prior`
    walk: float = 0.0  # random walk, unit per root second
    # Greatest correction whose linearisation error at corners 1 m away, f (dx / z)^2, is below 0.1 px.
    linear: float = math.inf


def table(known: Doubt) -> dict[str, StateBlock]:
    """Return the states with the priors and random walks of an uncertainty model."""
    return {
        "p": StateBlock(XYZ, "m", "position, world NED", known.pad_m, linear=0.02),
        "v": StateBlock(XYZ, "m/s", "velocity, world NED", known.pad_m_s, known.accel_walk),
        "theta": StateBlock(XYZ, "rad", "attitude, body FRD", walk=known.gyro_walk, linear=0.004),
        # In addition to the vehicle file's standard deviations of both biases.
        "b_a": StateBlock(XYZ, "m/s^2", "accelerometer bias, body FRD", known.accel_bias_m_s2, walk=0.001),
        "b_g": StateBlock(XYZ, "rad/s", "gyro bias, body FRD", known.gyro_bias_rad_s, walk=0.0001),
        "accel_delay": StateBlock("", "s", "age of the specific force at its time stamp", known.accel_delay_s),
        "s_a": StateBlock(XYZ, "-", "relative excess of the accelerometer readings, body FRD", known.accel_scale),
        "s_g": StateBlock(XYZ, "-", "relative excess of the gyro readings, body FRD", known.gyro_scale),
        "tilt": StateBlock("", "rad", "tilt of the camera beyond nominal", known.tilt, walk=1e-4, linear=0.004),
        "delay": StateBlock("", "s", "delay of the exposure after its stamp", known.delay_s, walk=2e-4, linear=5e-4),
        "edge_px": StateBlock("", "px", "outward offset of all edges in images", walk=0.02),
        "gates": StateBlock(
            " ".join(f"{axis}{k}" for k in range(GATES_KEPT) for axis in "xyz"),
            "m",
            "offsets of the gates in `GateOffsets` from the scaled map, world NED",
            linear=0.02,
        ),
        "scale": StateBlock(
            "", "-", "excess scale of the course over its map, about the pad", known.scale, linear=5e-4
        ),
        "edge_m": StateBlock(EACH_GATE, "m", "outward offsets of the edges of the gates in `GateOffsets`"),
        # A rotated gate (1.5 deg on the map, one sigma) shows two opposite sides of its opening in different size.
        "turn": StateBlock(
            " ".join(f"{axis}{k}" for k in range(GATES_KEPT) for axis in ("yaw", "pitch")),
            "rad",
            "rotations of the gates in `GateOffsets` from the map, about their own vertical and horizontal axis",
        ),
        "yaw": StateBlock("", "rad", "yaw of the camera to the right of nominal", known.yaw, 1e-4, 0.004),
        "roll": StateBlock("", "rad", "roll of the camera clockwise from nominal", known.roll, 1e-4, 0.004),
        "focal": StateBlock("", "-", "relative excess of the focal length", known.focal, linear=0.002),
        "centre": StateBlock("u v", "px", "offset of the principal point from nominal", known.centre_px, linear=1.0),
        "arm": StateBlock(XYZ, "m", "offset of the camera from nominal, body FRD", known.arm_m, linear=0.02),
        # Prior: two sigma of the lean of autopilots' attitude filters in turns; the walk follows the turns of a lap.
        "lean": StateBlock(XYZ, "rad", "rotation of a measured attitude, body FRD", math.radians(1.0), 2e-3),
        "north": StateBlock(
            "", "rad", "clockwise turn of the map's north from that of a measured attitude", known.north
        ),
        "radial": StateBlock("k1 k2", "-", "excess of the distortion over nominal", known.radial, linear=0.002),
        "readout": StateBlock("", "s", "readout time from first row to last", known.readout_s, linear=2e-3),
        # Errors of position and attitude at rest in their part, so that a flight tells how wrong the pad's pose was.
        "pad": StateBlock(XYZ, "m", "offset of the pad from its place on the map, world NED", known.pad_m),
        "heading": StateBlock("", "rad", "heading on the pad beyond that on the map", known.pad_yaw),
    }


STATES = table(KNOWN)
ERROR = layout(**{name: (block.axes, block.unit, block.about) for name, block in STATES.items()})
P, V, THETA, B_A, B_G, S_A, S_G = (ERROR[name].at for name in ("p", "v", "theta", "b_a", "b_g", "s_a", "s_g"))
GATES, EDGE_M, TURN = (ERROR[name].at for name in ("gates", "edge_m", "turn"))
CENTRE, ARM, LEAN = (ERROR[name].at for name in ("centre", "arm", "lean"))
RADIAL, PAD = (ERROR[name].at for name in ("radial", "pad"))
ACCEL_DELAY, TILT, DELAY = (ERROR[name].at.start for name in ("accel_delay", "tilt", "delay"))
EDGE_PX, SCALE = (ERROR[name].at.start for name in ("edge_px", "scale"))
YAW, ROLL, FOCAL, READOUT, HEADING = (ERROR[name].at.start for name in ("yaw", "roll", "focal", "readout", "heading"))
NORTH = ERROR["north"].at.start
POSE = slice(0, THETA.stop)  # errors propagated by others: position, velocity and attitude
MOVING = slice(0, S_G.stop)  # these and the errors that drive them; the rest: camera, clocks and map
N = ERROR.size
# [b]x = (b CROSS) as a matrix (3, 3).
CROSS = np.array([[0, 0, 0, 0, 0, -1, 0, 1, 0], [0, 0, 1, 0, 0, 0, -1, 0, 0], [0, -1, 0, 1, 0, 0, 0, 0, 0]], float)
EYE3 = np.eye(3)


def column(name: str, states: Mapping[str, StateBlock] = STATES) -> Array:
    """Return `prior`, `walk` or `linear` (by `name`) of all states, (N,)."""
    values = np.empty(N)
    for block, part in ERROR.items():
        values[part.at] = getattr(states[block], name)
    return values


def varied(**changes: dict[str, Any]) -> dict[str, StateBlock]:
    """Return `STATES` with changes in some blocks, as in varied(focal={"prior": 0.0})."""
    return STATES | {name: STATES[name]._replace(**values) for name, values in changes.items()}


@dataclass(frozen=True, slots=True)
class Nominal:
    """Nominal state: an attitude, and all other states, each under the name of its error: x[B_A]."""

    t: float  # s
    q_wb: Array  # (4,) wxyz, body to world
    values: Array  # (N,); the three of theta stay 0

    @classmethod
    def at(cls, t: float, p_wb: Array, v_w: Array, q_wb: Array, **others: ArrayLike) -> "Nominal":
        """Return the state at position (3,) m and velocity (3,) m/s, world NED; others by their names in `STATES`, else 0."""
        return cls(t, np.asarray(q_wb, float), np.zeros(N)).having(p=p_wb, v=v_w, **others)

    def __getitem__(self, at: Any) -> Any:
        return self.values[at]

    @property
    def p_wb(self) -> Array:
        """Position (3,), m, world NED."""
        return self.values[P]

    @property
    def v_w(self) -> Array:
        """Velocity (3,), m/s, world NED."""
        return self.values[V]

    @property
    def gates(self) -> Array:
        """Gate offsets (GATES_KEPT, 3) m, world NED."""
        return self.values[GATES].reshape(-1, 3)

    @property
    def turns(self) -> Array:
        """Rotations (GATES_KEPT, 2) rad of the gates about their vertical and horizontal axes."""
        return self.values[TURN].reshape(-1, 2)

    def rates(self, reading: ImuReading) -> Array:
        """Return the body rates (3,) rad/s of a reading, corrected by the estimated bias and scale."""
        return np.asarray((1 - self[S_G]) * (reading.gyro - self[B_G]))

    def force(self, reading: ImuReading) -> Array:
        """Return the specific force (3,) m/s^2 of a reading, corrected likewise; body FRD."""
        return np.asarray((1 - self[S_A]) * (reading.accel - self[B_A]))

    def plus(self, error: Array) -> "Nominal":
        """Return this state corrected by an error (N,)."""
        q = np.array(product(self.q_wb.tolist(), turn(*error[THETA].tolist())))
        values = self.values + error
        values[THETA] = 0.0
        return Nominal(self.t, q / math.sqrt(q @ q), values)

    def minus(self, other: "Nominal") -> Array:
        """Return the error (N,) of another state with respect to this one: the inverse of `plus`."""
        error = self.values - other.values
        error[THETA] = log(product(conjugate(other.q_wb), self.q_wb))
        return np.asarray(error)

    def having(self, **others: ArrayLike) -> "Nominal":
        """Return a copy with other values of the states named as in `STATES`."""
        values = self.values.copy()
        for name, value in others.items():
            values[ERROR[name].at] = value
        return replace(self, values=values)


LOST_M = 0.75  # m, standard deviation of the position beyond which a gate can be missed


@dataclass(frozen=True, slots=True)
class State:
    """State estimate at t (s); world NED, body FRD. A told state needs no covariance.

    Examples:
        >>> from gate_racer import State
        >>> State(0.0, np.array([0.0, 0.0, -2.0]), np.array([1.0, 0.0, 0.0, 0.0])).lost
        False
    """

    t: float  # s
    p_wb: Array  # (3,) m
    q_wb: Array  # (4,) wxyz, body to world
    v_w: Array = field(default_factory=lambda: np.zeros(3))  # (3,) m/s
    omega_b: Array = field(default_factory=lambda: np.zeros(3))  # (3,) rad/s
    # (9, 9), of position (m), velocity (m/s) and attitude (rad, body axes); by default a state that is known.
    cov: Array = field(default_factory=lambda: np.zeros((9, 9)))
    drift: float = 0.0  # m, estimated position error of the odometry
    cov_to_gate: Array | None = None  # (3, 3) m^2, of the position relative to the gate used last; None: as cov_p

    @property
    def cov_p(self) -> Array:
        """Covariance (3, 3) m^2 of the position."""
        return self.cov[:3, :3]

    @property
    def v_b(self) -> Vector:
        """Velocity (3,) m/s, body axes."""
        return as_vector(matrix(self.q_wb).T @ self.v_w)

    @property
    def sigma_attitude_rad(self) -> float:
        """Standard deviation of the attitude about its worst axis, rad."""
        return greatest_sigma(self.cov[6:, 6:])

    @property
    def lost(self) -> bool:
        """Whether the position is too uncertain to fly through a gate."""
        return not greatest_sigma(self.cov_p if self.cov_to_gate is None else self.cov_to_gate) < LOST_M


def cross(a: Array) -> Array:
    """Return the cross-product matrix [a]x (3, 3)."""
    x, y, z = a.tolist()
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


@dataclass(frozen=True)
class Noise:
    """Standard deviations: of the IMU's readings from the vehicle's file, of the states from their table, and others."""

    imu: ImuParameters
    states: Mapping[str, StateBlock] = field(default_factory=lambda: STATES)
    known: Doubt = KNOWN
    # Of the sightings of a gate, whose corners all err by more: 0.2 to 5 % by 1 to 2.5 px, by size (sim/view/corner_noise.yaml).
    gross_share: float = 0.04
    gross_px: float = 2.0
    coast_accel: float = 1.5  # m/s^1.5, of the model that bridges a telemetry gap (chosen)
    coast_gyro: float = 0.15  # rad/s^0.5, likewise

    @classmethod
    def of(cls, vehicle: Vehicle, known: Doubt = KNOWN) -> "Noise":
        """Return the noise of a vehicle's sensors under an uncertainty model; the camera's own doubt replaces the model's."""
        return cls(vehicle.imu, of_camera(vehicle.camera.doubt, table(known)), known)

    @cached_property
    def walks(self) -> Array:
        """Growth of the variances per second, (N,)."""
        return column("walk", self.states) ** 2

    def growth(self, a: ImuReading, b: ImuReading) -> Array:
        """Return the diagonal (N,) of Q from reading a to b. Velocity noise reaches the position with the next step.

        A part dt of an interval h between two samples contributes its share dt / h of the whole variance.
        """
        dt = b.t - a.t
        h = max(b.step, dt)
        between = (self.known.between * h / dt) ** 2
        q: Array = _growth(
            dt, h, between, self.imu.accel_noise_m_s2**2, self.imu.gyro_noise_rad_s**2,
            self.coast_accel**2 if b.predicted else 0.0, self.coast_gyro**2 if b.predicted else 0.0,
            self.walks, a.accel, a.gyro, b.accel, b.gyro,
        )  # fmt: skip
        return q


def of_camera(doubt: CameraDoubt | None, states: dict[str, StateBlock] = STATES) -> dict[str, StateBlock]:
    """Return a table of states with the priors of a camera's calibration; unchanged if `doubt` is None."""
    if doubt is None:
        return states
    yaw, tilt, roll = np.radians([doubt.yaw_deg, doubt.tilt_deg, doubt.roll_deg]).tolist()
    priors = {"yaw": yaw, "tilt": tilt, "roll": roll, "arm": doubt.position_m, "focal": doubt.focal}
    priors |= {"centre": doubt.centre_px, "radial": (doubt.k1, doubt.k2)}
    priors |= {"delay": doubt.delay_s, "readout": doubt.readout_s}
    return states | {name: states[name]._replace(prior=sigma) for name, sigma in priors.items()}


def doubt_in(cov: Array) -> CameraDoubt:
    """Return the camera's standard deviations by a covariance (N, N); of several axes the greatest."""
    sigma = np.sqrt(cov.diagonal())
    yaw, tilt, roll = np.degrees(sigma[[YAW, TILT, ROLL]]).tolist()
    position, centre, (k1, k2) = float(sigma[ARM].max()), float(sigma[CENTRE].max()), sigma[RADIAL].tolist()
    delay, readout = sigma[[DELAY, READOUT]].tolist()
    return CameraDoubt(yaw, tilt, roll, position, float(sigma[FOCAL]), centre, k1, k2, delay, readout)


def prior(noise: Noise, look: GateAppearance, q_wb: Array) -> Array:
    """Return P0 (N, N) on the pad at attitude q_wb (4,). Gates and their edges get theirs when first seen."""
    imu, sigma = noise.imu, column("prior", noise.states)
    sigma[B_A] = np.hypot(imu.accel_bias_m_s2, sigma[B_A])
    sigma[B_G] = np.hypot(imu.gyro_bias_rad_s, sigma[B_G])
    sigma[EDGE_PX] = look.edge_offset_px
    cov = np.diag(sigma**2)
    cov[P, PAD] = cov[PAD, P] = cov[P, P]
    return pad_attitude(cov, noise, q_wb)


def pad_attitude(cov: Array, noise: Noise, q_wb: Array) -> Array:
    """Return the covariance (N, N) with that of the IMU's attitude on the pad, rad^2, about its own axes."""
    R_wb, cov = matrix(q_wb), cov.copy()
    cov_w = np.diag([noise.known.pad_lean, noise.known.pad_lean, noise.known.pad_yaw]) ** 2
    cov[THETA, THETA] = R_wb.T @ cov_w @ R_wb + noise.known.misaligned**2 * EYE3
    cov[HEADING, HEADING] = cov_w[2, 2]
    cov[THETA, HEADING] = cov[HEADING, THETA] = R_wb.T @ cov_w[2]
    return cov


@compiled("float64[::1](" + 7 * "float64, " + "float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])")
def _growth(dt, h, between, accel, gyro, coast_accel, coast_gyro, walks, accel_a, gyro_a, accel_b, gyro_b):
    """Return the diagonal (N,) of Q from variances; velocity begins at 3, attitude at 6."""
    q, df, dw = dt * walks, accel_b - accel_a, gyro_b - gyro_a
    for k in range(3):
        q[3 + k] += dt * (h * (accel + between * (df @ df) / 3) + coast_accel)
        q[6 + k] += dt * (h * (gyro + between * dw[k] ** 2) + coast_gyro)
    return q
