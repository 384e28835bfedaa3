"""`Vehicle`: all parameters of a vehicle, from one YAML file. Every limit is defined here and nowhere else.

Those of the simulator's grey-box model beyond the rotors are optional sections, with names and equation numbers as in
Swift (Kaufmann et al., Nature 620:982, 2023, Methods), which gives the form but no values. Planner, controller and
estimator use none of them but the mixer, whose limits the planner respects.
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from gate_racer.common.config import load_named, named_path
from gate_racer.common.errors import UserError
from gate_racer.common.files import file_name
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY, RatesParameters, RotorsParameters, drag
from gate_racer.vehicle.rotation import Vector


@dataclass(frozen=True)
class ContactParameters:
    """Contact of the body: Newton's restitution and Coulomb's friction."""

    restitution: float  # -, 0..1
    friction: float  # -, coefficient


@dataclass(frozen=True)
class Mixer:
    """Sharing of the rotors' range by thrust and torque; see `sim.physics.plant`."""

    slew_max_rad_s2: Vector  # rad/s^2, of one axis alone, at half thrust, rate loop included
    lift_m_s2: float  # m/s^2, thrust up to which torque demand raises a lower commanded thrust
    thrust_yields: bool = False  # at the upper limit rates have priority over thrust, as with Betaflight's airmode

    def scaled(self, by: float) -> "Mixer":
        x, y, z = (by * one for one in self.slew_max_rad_s2)
        return replace(self, slew_max_rad_s2=(x, y, z))


@dataclass(frozen=True)
class SpeedMap:
    """Steady-state motor speed as a function of command u (DShot units, 0..2048) and voltage U, eq. (6)."""

    offset_rad_s: float
    volt: float  # rad/s per V
    sqrt: float  # rad/s per sqrt(u)
    linear: float  # rad/s per u
    volt_sqrt: float  # rad/s per V sqrt(u)


@dataclass(frozen=True)
class MotorParameters:
    """Four equal motors with propellers, eq. (1), (4) and (6); the drag torque is in `rotors.torque_m`."""

    thrust_n_s2: float  # N per (rad/s)^2, c_l of eq. (4)
    time_constant_s: float  # s, k_mot of eq. (1)
    inertia_kg_m2: float  # kg m^2, J_m+p of eq. (3)
    speed_min_rad_s: float  # rad/s, idle speed when armed
    speed_max_rad_s: float  # rad/s
    speed: SpeedMap
    power_linear: float  # W per rad/s, one motor: eq. (5) with an efficiency that depends on the speed
    power_cubic: float  # W per (rad/s)^3
    power_sixth: float  # W per (rad/s)^6


@dataclass(frozen=True)
class Battery:
    """Battery pack of equal cells in series (Bauersfeld and Scaramuzza, RA-L 2022; Swift's reference 46).

    The open-circuit voltage is a cubic in the energy drawn; two first-order lags model the sag under power.
    """

    cells: int
    capacity_ah: float  # Ah
    start_v: float  # V, of the pack at rest, before the run
    nominal_v: float  # V, of the pack, for which the vehicle's throttle curve holds
    full_v: float  # V, u_0, one cell
    energy_linear: float  # V per kJ/Ah, one cell
    energy_square: float  # V per (kJ/Ah)^2, one cell
    energy_cube: float  # V per (kJ/Ah)^3, one cell
    power_v: float  # V per W/Ah, slow sag, one cell
    slow_s: float  # s, time constant of the slow sag
    fast_s: float  # s, time constant of the ohmic drop
    resistance_ohm: float  # ohm, one cell


@dataclass(frozen=True)
class FlightControllerParameters:
    """Betaflight's rate loop, with gains in its integer units, and motor output range."""

    kp: Vector
    ki: Vector
    kd: Vector
    integral_limit: float  # -, fraction of the motor range, each axis
    throttle_min_pwm: float  # us, idle when armed
    throttle_max_pwm: float  # us
    dshot_offset: float  # -, idle fraction of the DShot range
    gyro_lowpass_hz: float  # Hz
    dterm_lowpass_hz: float  # Hz


@dataclass(frozen=True)
class SideForce:
    """Coefficients of the terms of f_x (v = v_x) or f_y (v = v_y), m/s^2; W is the mean squared motor speed, (rad/s)^2."""

    offset: float = 0.0
    v: float = 0.0
    v_sqr: float = 0.0
    w: float = 0.0
    v_w: float = 0.0
    v_abs: float = 0.0  # coefficient of v |v|, Swift's form of the square


@dataclass(frozen=True)
class Lift:
    """Coefficients of the terms of f_z, m/s^2. v_xy is the speed in the rotor plane."""

    vz: float = 0.0
    vz_sqr: float = 0.0
    vz_cub: float = 0.0
    vxy: float = 0.0
    vxy_sqr: float = 0.0
    w: float = 0.0
    vxy_w: float = 0.0
    vz_w: float = 0.0
    vxy_vz_w: float = 0.0
    vz_abs: float = 0.0  # coefficient of v_z |v_z|


@dataclass(frozen=True)
class SideTorque:
    """Coefficients of the terms of tau_x (v = v_y) or tau_y (v = v_x), rad/s^2."""

    offset: float = 0.0
    v: float = 0.0
    v_sqr: float = 0.0
    w: float = 0.0
    v_w: float = 0.0
    v_sqr_w: float = 0.0
    v_abs: float = 0.0  # coefficient of v |v|
    v_abs_w: float = 0.0  # coefficient of v |v| W


@dataclass(frozen=True)
class YawTorque:
    """Coefficients of the terms of tau_z, rad/s^2."""

    offset: float = 0.0
    vx: float = 0.0
    vy: float = 0.0


@dataclass(frozen=True)
class Aero:
    """Grey-box polynomial of Swift's Methods, per mass and per inertia; omitted coefficients are zero.

    Axes are body FLU (x forward, y left, z up), as published. Squares come in both published forms: v |v| (Swift), odd in v, and
    v^2 (Kolibri), which occurs only in asymmetric vehicles. An `offset` was identified in flight, so it fades to zero as the
    rotors stop.
    """

    fx: SideForce
    fy: SideForce
    fz: Lift
    tx: SideTorque
    ty: SideTorque
    tz: YawTorque


FOLDER = Path(__file__).parent
POSITIVE = (  # fields, of the sections that a vehicle has
    "contact_radius_m", "thrust_lag_s", "rate_max_rad_s", "rate_lag_s", "speed_max_m_s", "attitude_gain_1_s",
    "thrust_rate_max_m_s3", "mixer.slew_max_rad_s2", "rotors.mass_kg", "rotors.inertia_kg_m2", "rotors.thrust_max_n",
    "motors.thrust_n_s2", "motors.time_constant_s", "motors.speed_max_rad_s", "battery.cells", "battery.capacity_ah",
    "battery.nominal_v", "battery.start_v", "battery.slow_s", "battery.fast_s",
)  # fmt: skip
NOT_NEGATIVE = (
    "command_delay_s", "drag_linear_1_s", "drag_quadratic_1_m", "contact.restitution", "contact.friction", "mixer.lift_m_s2",
    "rotors.thrust_min_n", "motors.inertia_kg_m2", "motors.speed_min_rad_s", "imu.accel_noise_m_s2", "imu.accel_bias_m_s2",
    "imu.gyro_noise_rad_s", "imu.gyro_bias_rad_s", "imu.accel_delay_s", "imu.accel_loss_m_s2",
)  # fmt: skip
NARROWEST, WIDEST = 0.1, 6.0  # image width over focal length: fields of view of 5.7 and 143 deg
MOST = {  # largest magnitude of each field in a file, several times that of any drone: beyond, the unit is another one (chosen)
    "body_m": 10.0,
    "contact_radius_m": 10.0,
    "throttle.thrust_m_s2": 1000.0,
    "thrust_lag_s": 2.0,
    "rate_max_rad_s": 100.0,
    "rate_lag_s": 2.0,
    "drag_linear_1_s": 50.0,
    "drag_quadratic_1_m": 10.0,
    "speed_max_m_s": 1000.0,
    "command_delay_s": 2.0,
    "camera.width_px": 8192,
    "camera.height_px": 8192,
    "camera.tilt_deg": 180.0,
    "camera.yaw_deg": 180.0,
    "camera.roll_deg": 180.0,
    "contact.restitution": 1.0,
}


@dataclass(frozen=True)
class ThrottleCurve:
    """Static thrust over throttle, piecewise linear between measured points, hence exactly invertible."""

    command: tuple[float, ...]  # -, throttle 0..1
    thrust_m_s2: tuple[float, ...]  # m/s^2, specific thrust

    def __post_init__(self) -> None:
        if len(self.command) != len(self.thrust_m_s2) or len(self.command) < 2:
            raise ValueError("command and thrust_m_s2 need the same number of points, at least two")
        for name in ("command", "thrust_m_s2"):
            if any(b <= a for a, b in pairwise(getattr(self, name))):
                raise ValueError(f"{name} must increase strictly")
        if self.command[0] != 0 or self.command[-1] != 1 or self.thrust_m_s2[0] < 0:
            raise ValueError("command must run from 0 to 1 and thrust must not be negative")

    def thrust(self, command: float) -> float:
        """Return the specific thrust, m/s^2, for a throttle, which is clipped to 0..1."""
        return _interpolated(command, self.command, self.thrust_m_s2)

    def throttle(self, thrust: float) -> float:
        """Return the throttle, 0..1, for a specific thrust, m/s^2, which is clipped to the vehicle's range."""
        return _interpolated(thrust, self.thrust_m_s2, self.command)


def _interpolated(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Compute `np.interp` for one number at a third of its cost, bit by bit the same."""
    if x <= xs[0]:
        return ys[0]
    if x >= xs[-1]:
        return ys[-1]
    k = bisect_right(xs, x, 1, len(xs) - 1)  # NaN propagates
    return (ys[k] - ys[k - 1]) / (xs[k] - xs[k - 1]) * (float(x) - xs[k - 1]) + ys[k - 1]


@dataclass(frozen=True)
class ImuParameters:
    """Standard deviations of the noise of one sample and of the constant bias, per axis, a delay, and the effect of vibration."""

    accel_noise_m_s2: float  # m/s^2
    accel_bias_m_s2: float  # m/s^2
    gyro_noise_rad_s: float  # rad/s
    gyro_bias_rad_s: float  # rad/s
    accel_delay_s: float = 0.0  # s, age of the specific force relative to the sample's time
    accel_loss_m_s2: float = 0.0  # m/s^2 by which upward force reads low at full throttle, by vibration; as its square


@dataclass(frozen=True)
class Rotors:
    """Parameters of the rotor-level model besides the mass-normalised ones."""

    mass_kg: float
    inertia_kg_m2: Vector
    x_m: tuple[float, float, float, float]  # m, rotor positions, forward of the centre
    y_m: tuple[float, float, float, float]  # m, rotor positions, right of the centre
    torque_m: tuple[float, float, float, float]  # m, yaw torque per thrust, signed by the sense of rotation
    thrust_max_n: float  # N, one rotor
    thrust_min_n: float = 0.0  # N, one rotor

    @property
    def slew_max_rad_s2(self) -> Vector:
        """Angular acceleration (3,), each axis alone, at half thrust: rotors on one side at full thrust, the others stopped."""
        roll, pitch, yaw = (
            self.thrust_max_n / 2 * sum(map(abs, arms)) / inertia
            for arms, inertia in zip((self.y_m, self.x_m, self.torque_m), self.inertia_kg_m2, strict=True)
        )
        return roll, pitch, yaw


@dataclass(frozen=True)
class Vehicle:
    """Parameters of a vehicle in SI, with the unit in the name; body FRD. `rotors` is present if that model is supported.

    `motors`, `battery`, `flight_controller` and `aero` are present together, for the simulator's grey-box model.
    """

    name: str
    source: str
    body_m: Vector  # m, length, width, height
    contact_radius_m: float  # m, radius of the sphere about the centre that contains the body for collision avoidance
    throttle: ThrottleCurve
    thrust_lag_s: float  # s, first-order lag
    rate_max_rad_s: Vector  # rad/s, per body axis
    rate_lag_s: Vector  # s, first-order lag, per body axis
    drag_linear_1_s: Vector  # 1/s, per body axis
    drag_quadratic_1_m: float  # 1/m, isotropic
    speed_max_m_s: float  # m/s
    command_delay_s: float  # s, from a command to its first effect
    camera: Camera
    imu: ImuParameters
    contact: ContactParameters
    attitude_gain_1_s: float = 8.0  # 1/s, flight controller's gain from attitude error to body rates; a typical value
    thrust_rate_max_m_s3: float | None = None  # m/s^3, mean over a plan's interval; None if only the lag limits it
    mixer: Mixer | None = None  # None if body rates do not depend on thrust
    rotors: Rotors | None = None
    motors: MotorParameters | None = None
    battery: Battery | None = None
    flight_controller: FlightControllerParameters | None = None
    aero: Aero | None = None

    def __post_init__(self) -> None:
        if self.thrust_max <= GRAVITY:
            raise ValueError(
                f"throttle: a thrust-to-weight ratio of {self.thrust_max / GRAVITY:.2f} is too low to hover"
            )
        for name in POSITIVE:
            if min(_numbers(self, name), default=1.0) <= 0:
                raise ValueError(f"{name} must be positive")
        for name in NOT_NEGATIVE:
            if min(_numbers(self, name), default=0.0) < 0:
                raise ValueError(f"{name} must not be negative")
        rotors, motors, battery = self.rotors, self.motors, self.battery
        if rotors and rotors.thrust_min_n >= rotors.thrust_max_n:
            raise ValueError("rotors.thrust_min_n must be below thrust_max_n")
        if motors and motors.speed_min_rad_s >= motors.speed_max_rad_s:
            raise ValueError("motors.speed_min_rad_s must be below speed_max_rad_s")
        if battery and battery.start_v > battery.full_v * battery.cells:
            raise ValueError("battery.start_v must not exceed cells * full_v")
        if self.mixer and self.mixer.thrust_yields and not rotors:
            raise ValueError("mixer.thrust_yields needs rotors, whose range turning takes")
        parts = (motors, battery, self.flight_controller, self.aero)
        if any(parts) and not (all(parts) and rotors):
            raise ValueError("motors, battery, flight_controller, aero and rotors must be given together")

    @property
    def thrust_max(self) -> float:
        return self.throttle.thrust_m_s2[-1]

    @property
    def thrust_min(self) -> float:
        return self.throttle.thrust_m_s2[0]

    def accel_loss(self, thrust: float) -> float:
        """Return by how much upward force reads low, by vibration, at a specific thrust; m/s^2."""
        return self.imu.accel_loss_m_s2 * self.throttle.throttle(thrust) ** 2

    def steadied(self, accel: Vector, v_b: Vector) -> Vector:
        """Return a specific force (m/s^2, body FRD) measured in flight without its loss.

        The loss is that of the thrust, and the thrust is what remains of the force without drag, at a velocity in m/s, body axes.
        """
        x, y, z = accel
        *_, drag_z = drag((1.0, 0.0, 0.0, 0.0), v_b, self.drag_linear_1_s, self.drag_quadratic_1_m)
        if not math.isfinite(drag_z):  # an estimate that has failed spoils no measurement
            return accel
        return x, y, z - self.accel_loss(_interpolated(drag_z - z, self._reads, self.throttle.thrust_m_s2))

    @cached_property
    def _reads(self) -> list[float]:
        """Upward forces, m/s^2, that the accelerometer reads at the knots of the throttle curve."""
        return [c - self.accel_loss(c) for c in self.throttle.thrust_m_s2]

    @property
    def slew_max(self) -> Vector:
        """Largest angular accelerations, rad/s^2, of each body axis alone at half thrust; infinite without a mixer."""
        return self.mixer.slew_max_rad_s2 if self.mixer else (math.inf,) * 3

    @property
    def grey_box(self) -> bool:
        """Whether the simulator's grey-box model (motors, battery, flight controller, aerodynamics) is known."""
        return self.motors is not None

    def require_grey_box(self) -> tuple[MotorParameters, Battery, FlightControllerParameters, Aero]:
        """Return the sections of the grey-box model. Raises UserError: the vehicle has none."""
        if self.motors is None or self.battery is None or self.flight_controller is None or self.aero is None:
            raise UserError(
                f"vehicle {self.name}: has no `motors`, `battery`, `flight_controller` and `aero` sections,"
                " so only the `rates` model can be flown"
            )
        return self.motors, self.battery, self.flight_controller, self.aero

    @property
    def half_diagonal(self) -> float:
        """Distance from the centre to a corner of the body, m."""
        return math.sqrt(sum(side * side for side in self.body_m)) / 2

    @cached_property
    def rates_parameters(self) -> RatesParameters:
        return RatesParameters(self.rate_lag_s, self.thrust_lag_s, self.drag_linear_1_s, self.drag_quadratic_1_m)

    @cached_property
    def rotors_parameters(self) -> RotorsParameters:
        """Parameters of the `rotors` model. Raises UserError: the vehicle has no `rotors` section."""
        r = self.rotors
        if r is None:
            raise UserError(f"vehicle {self.name}: has no `rotors` section, so only the `rates` model can be used")
        return RotorsParameters(
            r.mass_kg, r.inertia_kg_m2, r.x_m, r.y_m, r.torque_m, self.drag_linear_1_s, self.drag_quadratic_1_m
        )

    @cached_property
    def hash(self) -> str:
        """Hash of the parameters, 16 hex digits, without the text of `source`.

        Parameters at their defaults are left out, so that plans and policies stay valid when a vehicle gains one.
        """
        return hashlib.sha256(repr(_stated(replace(self, source=""))).encode()).hexdigest()[:16]


def _stated(value: Any) -> Any:
    """Return the fields, by name, that differ from their defaults, of a dataclass and of those within it."""
    if not is_dataclass(value):
        return value
    named = {field: getattr(value, field.name) for field in fields(value)}
    return {field.name: _stated(one) for field, one in named.items() if one != field.default}


def load_vehicle(name: str) -> Vehicle:
    """Load the vehicle of a name (`dcl`) or of a YAML file's path.

    Raises:
        UserError: no such vehicle, or a malformed file.

    Examples:
        >>> from gate_racer import load_vehicle
        >>> vehicle = load_vehicle("dcl")
        >>> vehicle.command_delay_s  # s from a command to its first effect
        0.04
    """
    vehicle, path = load_named(name, FOLDER, Vehicle, "vehicle"), named_path(name, FOLDER, "vehicle")
    for field, most in MOST.items():
        for number in _numbers(vehicle, field):
            if abs(number) > most:
                raise UserError(f"{path}: {field}: {number:g} is beyond {most:g}; check the unit")
    _require_focal(vehicle.camera, f"{path}: camera.fx_px")
    file_name(vehicle.name, f"{path}: name")
    return vehicle


def _require_focal(camera: Camera, where: str) -> None:
    """Raise UserError for a focal length that is none, such as a field of view in degrees."""
    if not NARROWEST < camera.width_px / camera.fx_px < WIDEST:
        width = 2 * math.degrees(math.atan(camera.width_px / 2 / camera.fx_px))
        raise UserError(
            f"{where}: {camera.fx_px:g} at {camera.width_px} px is a field of view of {width:.1f} deg; the focal length in pixels"
            " is width / 2 / tan(field of view / 2)"
        )


def _numbers(vehicle: Vehicle, field: str) -> tuple[float, ...]:
    """Return the value or values of a field, given by its path; none of an optional one that is left out."""
    value: Any = vehicle
    for name in field.split("."):
        value = None if value is None else getattr(value, name)
    return value if isinstance(value, tuple) else () if value is None else (value,)
