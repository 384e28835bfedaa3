"""Parameters of the simulator's grey-box model beyond the rotors: optional sections of a vehicle's YAML file.

Names and equation numbers as in Swift (Kaufmann et al., Nature 620:982, 2023, Methods), which gives the form but no
values. Planner, controller and estimator use none of these but the mixer, whose limits the planner respects.
"""

from dataclasses import dataclass, replace

from gate_racer.vehicle.rotation import Vector


@dataclass(frozen=True)
class ContactParameters:
    """Contact of the body: Newton's restitution and Coulomb's friction."""

    restitution: float  # -, 0..1
    friction: float  # -, coefficient

    def __post_init__(self) -> None:
        if not 0 <= self.restitution <= 1 or self.friction < 0:
            raise ValueError("restitution must lie between 0 and 1 and friction must not be negative")


@dataclass(frozen=True)
class Mixer:
    """Sharing of the rotors' range by thrust and torque; see `sim.physics.mixer`."""

    slew_max_rad_s2: Vector  # rad/s^2, of one axis alone, at half thrust, rate loop included
    lift_m_s2: float  # m/s^2, thrust up to which torque demand raises a lower commanded thrust
    thrust_yields: bool = False  # at the upper limit rates have priority over thrust, as with Betaflight's airmode

    def __post_init__(self) -> None:
        if min(self.slew_max_rad_s2) <= 0 or self.lift_m_s2 < 0:
            raise ValueError("slew_max_rad_s2 must be positive and lift_m_s2 must not be negative")

    def scaled(self, by: float) -> "Mixer":
        """Return the mixer with its angular accelerations scaled."""
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

    def __post_init__(self) -> None:
        if min(self.thrust_n_s2, self.time_constant_s) <= 0 or self.inertia_kg_m2 < 0:
            raise ValueError("thrust, lag and inertia must be positive")
        if not 0 <= self.speed_min_rad_s < self.speed_max_rad_s:
            raise ValueError("speed_min_rad_s must be below speed_max_rad_s")


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

    def __post_init__(self) -> None:
        if min(self.cells, self.capacity_ah, self.slow_s, self.fast_s, self.nominal_v) <= 0:
            raise ValueError("cells, capacity, voltages and time constants must be positive")
        if not 0 < self.start_v <= self.full_v * self.cells:
            raise ValueError("start_v must not exceed cells * full_v")


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
