"""What the grey-box model of the simulator needs to know of a vehicle beyond its rotors: optional sections of its YAML file.

Names and equation numbers as in Swift (Kaufmann et al., Nature 620:982, 2023, Methods), which gives the form and no
numbers. None of this but the mixer, which the planner leaves room for, is known to planner, controller or estimator.
"""

from dataclasses import dataclass, replace

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class ContactParameters:
    """How the body answers a blow: Newton's restitution and Coulomb's friction."""

    restitution: float  # 0..1
    friction: float

    def __post_init__(self) -> None:
        if not 0 <= self.restitution <= 1 or self.friction < 0:
            raise ValueError("restitution must lie between 0 and 1 and friction must not be negative")


@dataclass(frozen=True)
class Mixer:
    """How thrust and turning share the rotors; see `sim.physics.mixer`."""

    slew_max_rad_s2: Vector  # of one axis alone, at half thrust, as the rate loop flies it
    lift_m_s2: float  # that turning adds at most where less thrust is commanded
    thrust_yields: bool = False  # where both do not fit the thrust gives way, as Betaflight has it; else the rates

    def __post_init__(self) -> None:
        if min(self.slew_max_rad_s2) <= 0 or self.lift_m_s2 < 0:
            raise ValueError("slew_max_rad_s2 must be positive and lift_m_s2 must not be negative")

    def scaled(self, by: float) -> "Mixer":
        """With rotors that turn the vehicle so many times as fast."""
        x, y, z = (by * one for one in self.slew_max_rad_s2)
        return replace(self, slew_max_rad_s2=(x, y, z))


@dataclass(frozen=True)
class SpeedMap:
    """Steady motor speed over command u (DShot units, 0..2048) and voltage U, eq. (6)."""

    offset_rad_s: float
    volt: float  # rad/s per V
    sqrt: float  # rad/s per sqrt(u)
    linear: float  # rad/s per u
    volt_sqrt: float  # rad/s per V sqrt(u)


@dataclass(frozen=True)
class MotorParameters:
    """Four equal motors with their propellers, eq. (1), (4) and (6); the drag torque is in `rotors.torque_m`."""

    thrust_n_s2: float  # c_l of eq. (4), N per (rad/s)^2
    time_constant_s: float  # k_mot of eq. (1)
    inertia_kg_m2: float  # J_m+p of eq. (3)
    speed_min_rad_s: float  # when armed
    speed_max_rad_s: float
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
    """A pack of equal cells in series: Bauersfeld and Scaramuzza, RA-L 2022 (Swift's reference 46).

    Open-circuit voltage is a cubic in the energy drawn; two lags carry the sag under power.
    """

    cells: int
    capacity_ah: float
    start_v: float  # of the pack at rest, before the run
    nominal_v: float  # of the pack, at which the vehicle's throttle curve holds
    full_v: float  # u_0, one cell
    energy_linear: float  # V per kJ/Ah, one cell
    energy_square: float
    energy_cube: float
    power_v: float  # V of slow sag per W/Ah, one cell
    slow_s: float  # time constant of the slow sag
    fast_s: float  # time constant of the ohmic drop
    resistance_ohm: float  # one cell

    def __post_init__(self) -> None:
        if min(self.cells, self.capacity_ah, self.slow_s, self.fast_s, self.nominal_v) <= 0:
            raise ValueError("cells, capacity, voltages and time constants must be positive")
        if not 0 < self.start_v <= self.full_v * self.cells:
            raise ValueError("start_v must not exceed cells * full_v")


@dataclass(frozen=True)
class FlightControllerParameters:
    """Betaflight's rate loop with its usual integer gains, and its motor output range."""

    kp: Vector
    ki: Vector
    kd: Vector
    integral_limit: float  # of the motor range, each axis
    throttle_min_pwm: float  # us, idle when armed
    throttle_max_pwm: float  # us
    dshot_offset: float  # idle share of the DShot range
    gyro_lowpass_hz: float
    dterm_lowpass_hz: float


@dataclass(frozen=True)
class SideForce:
    """Summands of f_x (v = v_x) or f_y (v = v_y), m/s^2; W is the mean squared motor speed, (rad/s)^2."""

    offset: float = 0.0
    v: float = 0.0
    v_sqr: float = 0.0
    w: float = 0.0
    v_w: float = 0.0
    v_abs: float = 0.0  # of v |v|, Swift's form of the square


@dataclass(frozen=True)
class Lift:
    """Summands of f_z, m/s^2. v_xy is the speed in the rotor plane."""

    vz: float = 0.0
    vz_sqr: float = 0.0
    vz_cub: float = 0.0
    vxy: float = 0.0
    vxy_sqr: float = 0.0
    w: float = 0.0
    vxy_w: float = 0.0
    vz_w: float = 0.0
    vxy_vz_w: float = 0.0
    vz_abs: float = 0.0  # of v_z |v_z|


@dataclass(frozen=True)
class SideTorque:
    """Summands of tau_x (v = v_y) or tau_y (v = v_x), rad/s^2."""

    offset: float = 0.0
    v: float = 0.0
    v_sqr: float = 0.0
    w: float = 0.0
    v_w: float = 0.0
    v_sqr_w: float = 0.0
    v_abs: float = 0.0  # of v |v|
    v_abs_w: float = 0.0  # of v |v| W


@dataclass(frozen=True)
class YawTorque:
    """Summands of tau_z, rad/s^2."""

    offset: float = 0.0
    vx: float = 0.0
    vy: float = 0.0


@dataclass(frozen=True)
class Aero:
    """The grey-box polynomial of Swift's Methods, per mass and per inertia; summands left out are zero.

    In body FLU (x forward, y left, z up), as such polynomials are published. Squares come in both published forms: v |v| (Swift),
    which turns with the wind, and v^2 (Kolibri), which only a vehicle that is not symmetric has. An `offset` is what was
    identified in flight, so it fades to nothing as the rotors stop.
    """

    fx: SideForce
    fy: SideForce
    fz: Lift
    tx: SideTorque
    ty: SideTorque
    tz: YawTorque
