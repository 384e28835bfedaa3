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
from gate_racer.common.settings import Limited, limited
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY, RatesParameters, RotorsParameters, drag
from gate_racer.vehicle.rotation import Vector


@dataclass(frozen=True)
class ContactParameters(Limited):
    """Contact of the body: Newton's restitution and Coulomb's friction."""

    restitution: float = limited(least=0.0, most=1.0)  # -, 0..1
    friction: float = limited(least=0.0)  # -, coefficient


@dataclass(frozen=True)
class Mixer(Limited):
    """Sharing of the rotors' range by thrust and torque; see `sim.physics.plant`."""

    slew_max_rad_s2: Vector = limited(positive=True)  # rad/s^2, of one axis alone, at half thrust, rate loop included
    lift_m_s2: float = limited(least=0.0)  # m/s^2, thrust up to which torque demand raises a lower commanded thrust
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
class MotorParameters(Limited):
    """Four equal motors with propellers, eq. (1), (4) and (6); the drag torque is in `rotors.torque_m`."""

    thrust_n_s2: float = limited(positive=True)  # N per (rad/s)^2, c_l of eq. (4)
    time_constant_s: float = limited(positive=True)  # s, k_mot of eq. (1)
    inertia_kg_m2: float = limited(least=0.0)  # kg m^2, J_m+p of eq. (3)
    speed_min_rad_s: float = limited(least=0.0)  # rad/s, idle speed when armed
    speed_max_rad_s: float = limited(positive=True)  # rad/s
    speed: SpeedMap = limited()
    power_linear: float = limited()  # W per rad/s, one motor: eq. (5) with an efficiency that depends on the speed
    power_cubic: float = limited()  # W per (rad/s)^3
    power_sixth: float = limited()  # W per (rad/s)^6


@dataclass(frozen=True)
class Battery(Limited):
    """Battery pack of equal cells in series (Bauersfeld and Scaramuzza, RA-L 2022; Swift's reference 46).

    The open-circuit voltage is a cubic in the energy drawn; two first-order lags model the sag under power.
    """

    cells: int = limited(positive=True)
    capacity_ah: float = limited(positive=True)  # Ah
    start_v: float = limited(positive=True)  # V, of the pack at rest, before the run
    nominal_v: float = limited(positive=True)  # V, of the pack, for which the vehicle's throttle curve holds
    full_v: float = limited()  # V, u_0, one cell
    energy_linear: float = limited()  # V per kJ/Ah, one cell
    energy_square: float = limited()  # V per (kJ/Ah)^2, one cell
    energy_cube: float = limited()  # V per (kJ/Ah)^3, one cell
    power_v: float = limited()  # V per W/Ah, slow sag, one cell
    slow_s: float = limited(positive=True)  # s, time constant of the slow sag
    fast_s: float = limited(positive=True)  # s, time constant of the ohmic drop
    resistance_ohm: float = limited()  # ohm, one cell


@dataclass(frozen=True)
class FlightControllerParameters(Limited):
    """Betaflight's rate loop, with gains and limits in its integer units, and motor output range.

    The limits of the sum of P, I and D have the names, defaults and ranges of a `diff all`, which leaves out defaults.
    """

    kp: Vector
    ki: Vector
    kd: Vector
    integral_limit: float  # -, fraction of the motor range, each axis
    throttle_min_pwm: float  # us, idle when armed
    throttle_max_pwm: float  # us
    dshot_offset: float  # -, idle fraction of the DShot range
    gyro_lowpass_hz: float  # Hz
    dterm_lowpass_hz: float  # Hz
    pidsum_limit: float = limited(500.0, least=100.0, most=1000.0)  # thousandths of the motor range, roll and pitch
    pidsum_limit_yaw: float = limited(400.0, least=100.0, most=1000.0)  # likewise


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
FASTEST_M_S = 1000.0  # m/s, of a vehicle's file; an imported problem has no limit
NARROWEST, WIDEST = 0.1, 6.0  # image width over focal length: fields of view of 5.7 and 143 deg


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
class ImuParameters(Limited):
    """Standard deviations of the noise of one sample and of the constant bias, per axis, a delay, and the effect of vibration."""

    accel_noise_m_s2: float = limited(least=0.0)  # m/s^2
    accel_bias_m_s2: float = limited(least=0.0)  # m/s^2
    gyro_noise_rad_s: float = limited(least=0.0)  # rad/s
    gyro_bias_rad_s: float = limited(least=0.0)  # rad/s
    accel_delay_s: float = limited(0.0, least=0.0)  # s, age of the specific force relative to the sample's time
    accel_loss_m_s2: float = limited(0.0, least=0.0)  # m/s^2, loss of upward force by vibration, times throttle squared


@dataclass(frozen=True)
class Rotors(Limited):
    """Parameters of the rotor-level model besides the mass-normalised ones."""

    mass_kg: float = limited(positive=True)
    inertia_kg_m2: Vector = limited(positive=True)
    x_m: tuple[float, float, float, float] = limited()  # m, rotor positions, forward of the centre
    y_m: tuple[float, float, float, float] = limited()  # m, rotor positions, right of the centre
    torque_m: tuple[float, float, float, float] = limited()  # m, yaw torque per thrust, signed by the sense of rotation
    thrust_max_n: float = limited(positive=True)  # N, one rotor
    thrust_min_n: float = limited(0.0, least=0.0)  # N, one rotor

    @property
    def slew_max_rad_s2(self) -> Vector:
        """Angular acceleration (3,), each axis alone, at half thrust: rotors on one side at full thrust, the others stopped."""
        roll, pitch, yaw = (
            self.thrust_max_n / 2 * sum(map(abs, arms)) / inertia
            for arms, inertia in zip((self.y_m, self.x_m, self.torque_m), self.inertia_kg_m2, strict=True)
        )
        return roll, pitch, yaw


@dataclass(frozen=True)
class Vehicle(Limited):
    """Parameters of a vehicle in SI, with the unit in the name; body FRD. `rotors` is present if that model is supported.

    `motors`, `battery`, `flight_controller` and `aero` are present together, for the simulator's grey-box model.
    """

    name: str
    source: str
    body_m: Vector = limited(positive=True, most=10.0)  # m, length, width, height
    contact_radius_m: float = limited(positive=True, most=10.0)  # m, of a sphere about the centre that touches nothing
    throttle: ThrottleCurve = limited()
    thrust_lag_s: float = limited(positive=True, most=2.0)  # s, first-order lag
    rate_max_rad_s: Vector = limited(positive=True, most=100.0)  # rad/s, per body axis
    rate_lag_s: Vector = limited(positive=True, most=2.0)  # s, first-order lag, per body axis
    drag_linear_1_s: Vector = limited(least=0.0, most=50.0)  # 1/s, per body axis
    drag_quadratic_1_m: float = limited(least=0.0, most=10.0)  # 1/m, isotropic
    speed_max_m_s: float = limited(positive=True)  # m/s
    command_delay_s: float = limited(least=0.0, most=2.0)  # s, from a command to its first effect
    camera: Camera = limited()
    imu: ImuParameters = limited()
    contact: ContactParameters = limited()
    attitude_gain_1_s: float = limited(8.0, positive=True)  # 1/s, from attitude error to body rates; a typical value
    thrust_rate_max_m_s3: float | None = limited(None, positive=True)  # m/s^3; None if only the lag limits it
    mixer: Mixer | None = None  # None if body rates do not depend on thrust
    rotors: Rotors | None = None
    motors: MotorParameters | None = None
    battery: Battery | None = None
    flight_controller: FlightControllerParameters | None = None
    aero: Aero | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.thrust_max <= GRAVITY:
            raise ValueError(f"throttle: thrust-to-weight ratio {self.thrust_max / GRAVITY:.2f} is too low to hover")
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
        """Return a specific force (m/s^2, body FRD), measured at v_b (m/s), without the loss that belongs to its thrust."""
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
    def hover_sqr(self) -> float:
        """Squared motor speed in hover, (rad/s)^2. Raises UserError as `require_grey_box`."""
        motors, *_ = self.require_grey_box()
        assert self.rotors is not None, "which come with them"
        return self.rotors.mass_kg * GRAVITY / (4 * motors.thrust_n_s2)

    @property
    def half_diagonal(self) -> float:
        """Distance from the centre to a corner of the body, m."""
        return math.sqrt(sum(side * side for side in self.body_m)) / 2

    @property
    def radius_m(self) -> float:
        """Radius, m, of the sphere around the body that touches nothing: the contact radius, or the half diagonal if larger."""
        return max(self.contact_radius_m, self.half_diagonal)

    @cached_property
    def lift_1_m(self) -> float:
        """Lift per square of the speed across the rotors, 1/m: of `aero` at hover, by least squares up to the largest speed."""
        if not self.grey_box:
            return 0.0
        *_, aero = self.require_grey_box()
        return aero.fz.vxy_sqr + (aero.fz.vxy + aero.fz.vxy_w * self.hover_sqr) * 5 / 4 / self.speed_max_m_s

    @cached_property
    def air_torque_1_ms(self) -> tuple[float, float]:
        """Angular acceleration per speed, 1/(m s), of roll by v_y and of pitch by v_x: that of `aero` at hover, magnitudes."""
        if not self.grey_box:
            return 0.0, 0.0
        *_, aero = self.require_grey_box()
        return abs(aero.tx.v + aero.tx.v_w * self.hover_sqr), abs(aero.ty.v + aero.ty.v_w * self.hover_sqr)

    @cached_property
    def rates_parameters(self) -> RatesParameters:
        drags = self.drag_linear_1_s, self.drag_quadratic_1_m
        return RatesParameters(self.rate_lag_s, self.thrust_lag_s, *drags, self.lift_1_m)

    @cached_property
    def rotors_parameters(self) -> RotorsParameters:
        """Parameters of the `rotors` model. Raises UserError: the vehicle has no `rotors` section."""
        r = self.rotors
        if r is None:
            raise UserError(f"vehicle {self.name}: has no `rotors` section, so only the `rates` model can be used")
        drags = self.drag_linear_1_s, self.drag_quadratic_1_m
        return RotorsParameters(r.mass_kg, r.inertia_kg_m2, r.x_m, r.y_m, r.torque_m, *drags, self.lift_1_m)

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


def load_vehicle(name: str | Path) -> Vehicle:
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
    if vehicle.speed_max_m_s > FASTEST_M_S:
        raise UserError(f"{path}: speed_max_m_s: {vehicle.speed_max_m_s:g} is beyond {FASTEST_M_S:g}; check the unit")
    width_px, fx_px = vehicle.camera.width_px, vehicle.camera.fx_px
    if not NARROWEST < width_px / fx_px < WIDEST:  # such as a field of view in degrees
        width = 2 * math.degrees(math.atan(width_px / 2 / fx_px))
        raise UserError(
            f"{path}: camera.fx_px: {fx_px:g} at {width_px} px is a field of view of {width:.1f} deg; the focal length in pixels"
            " is width / 2 / tan(field of view / 2)"
        )
    file_name(vehicle.name, f"{path}: name")
    return vehicle
