"""`Deviations`: by how much the world differs from what is believed of it, as plain numbers. The default is "not at all".

Sections and fields are those of a world's YAML file. Scales are factors; everything else is added to what is believed.
Axes as everywhere: world NED, body FRD. `docs/worlds.md` says how wide each one is drawn.
"""

from dataclasses import dataclass, fields
from typing import Any

Vector = tuple[float, float, float]
ZERO: Vector = (0.0, 0.0, 0.0)


def _positive(section: Any, *names: str) -> None:
    for name in names:
        if getattr(section, name) <= 0:
            raise ValueError(f"{name} must be positive")


def _not_negative(section: Any, *names: str) -> None:
    for name in names:
        if getattr(section, name) < 0:
            raise ValueError(f"{name} must not be negative")


def _chain(share: float, mean_frames: float, what: str) -> None:
    """What a two-state Markov chain with this share of lost frames and this mean length of a burst allows."""
    if not 0 <= share < 1 or mean_frames < 1 or share > mean_frames / (1 + mean_frames):
        raise ValueError(f"{what} needs 0 <= share < 1, bursts of at least one frame, and share <= burst / (1 + burst)")


@dataclass(frozen=True)
class PlantDeviation:
    """What flies."""

    thrust_scale: float = 1.0
    throttle_exponent: float = 1.0  # the believed curve is flown at throttle ** exponent
    drag_scale: float = 1.0
    drag_linear_1_s: float = 0.0  # on every axis
    thrust_lag_scale: float = 1.0
    rate_lag_scale: float = 1.0  # of the `rates` model; a grey-box vehicle has its own rate loop
    slew_scale: float = 1.0  # of what its rotors turn it with, where the vehicle's mixer is known
    command_delay_s: float = 0.0
    battery_sag_1_s: float = 0.0  # share of the thrust lost per second at hover power
    ground_effect_radius_m: float = 0.0  # of one rotor that lifts like all four; 0: no ground effect

    def __post_init__(self) -> None:
        _positive(
            self, "thrust_scale", "throttle_exponent", "drag_scale", "thrust_lag_scale", "rate_lag_scale", "slew_scale"
        )
        _not_negative(self, "battery_sag_1_s", "ground_effect_radius_m")


@dataclass(frozen=True)
class CameraDeviation:
    """Mount, lens, and what hides corners from the detector."""

    yaw_deg: float = 0.0  # of the mount, to the right
    tilt_deg: float = 0.0  # up
    roll_deg: float = 0.0  # clockwise about the optical axis
    position_m: Vector = ZERO  # on the body
    focal_scale: float = 1.0
    cx_px: float = 0.0
    cy_px: float = 0.0
    k1: float = 0.0  # radial distortion
    k2: float = 0.0
    dropout: float = 0.0  # share of the frames in which a corner cannot be seen (projected camera)
    dropout_frames: float = 1.0  # mean number of frames that this lasts

    def __post_init__(self) -> None:
        _positive(self, "focal_scale")
        _chain(self.dropout, self.dropout_frames, "dropout")


@dataclass(frozen=True)
class ImuDeviation:
    """Errors beyond the noise and bias that the vehicle's file states."""

    accel_bias_m_s2: Vector = ZERO
    gyro_bias_rad_s: Vector = ZERO
    noise_scale: float = 1.0
    accel_scale: Vector = ZERO  # relative error of each axis
    gyro_scale: Vector = ZERO
    misalignment_deg: Vector = ZERO  # rotation vector from the body's axes to the sensor's
    accel_age_s: float = 0.0  # the force is so much older than its stamp, axes and all
    attitude_deg: Vector = ZERO  # rotation vector, body axes, by which a told ATTITUDE is off

    def __post_init__(self) -> None:
        _positive(self, "noise_scale")
        _not_negative(self, "accel_age_s")


@dataclass(frozen=True)
class LinkDeviation:
    """Clocks and the way of the messages."""

    telemetry_delay_s: float = 0.0  # in whole ticks
    imu_drift_ppm: float = 0.0  # of the clock that stamps telemetry
    video_offset_s: float = 0.0  # of the stamps of frames against their exposure
    video_drift_ppm: float = 0.0
    video_latency_s: float = 0.0  # mean
    video_jitter_s: float = 0.0  # standard deviation of a first-order Markov process of the latency
    video_jitter_tau_s: float = 1.0  # ... and its correlation time
    frame_loss: float = 0.0  # share of the frames
    frame_loss_frames: float = 1.0  # mean length of a burst

    def __post_init__(self) -> None:
        _not_negative(self, "telemetry_delay_s", "video_jitter_s")
        _positive(self, "video_jitter_tau_s")
        _chain(self.frame_loss, self.frame_loss_frames, "frame_loss")


@dataclass(frozen=True)
class CourseDeviation:
    """Where gates stand. Either list is empty or has one entry for each gate of the track, in its order."""

    scale: float = 1.0  # of all distances from the pad; openings keep their size
    gate_moved_m: tuple[Vector, ...] = ()
    gate_turned_deg: tuple[tuple[float, float], ...] = ()  # yaw, pitch

    def __post_init__(self) -> None:
        _positive(self, "scale")


@dataclass(frozen=True)
class PadDeviation:
    """Where the vehicle stands before the start."""

    moved_m: Vector = ZERO
    yaw_deg: float = 0.0
    pitch_deg: float = 0.0
    roll_deg: float = 0.0


@dataclass(frozen=True)
class AirDeviation:
    """Mean wind and Dryden gusts, see `sim.worlds.dryden`."""

    wind_north_m_s: float = 0.0  # of the air over ground
    wind_east_m_s: float = 0.0
    gust_m_s: float = 0.0  # standard deviation along the wind
    gust_height_m: float = 6.0  # over ground, which sets the lengths of the gusts

    def __post_init__(self) -> None:
        _not_negative(self, "gust_m_s")
        _positive(self, "gust_height_m")


@dataclass(frozen=True)
class ViewDeviation:
    """How the drawn world looks: other engines, lenses, encoders and frames. Projected corners follow `readout_s`, `depth_m`
    and `outline_m`."""

    softness_px: float = 0.0
    bloom: float = 0.0
    gamma_scale: float = 1.0
    exposure_s: float = 0.0
    readout_s: float = 0.0
    jpeg_quality: float = 0.0
    depth_m: float = 0.0  # of the gates' frames beyond the look's; their middle stays where the course has it
    outline_m: float = 0.0  # width of the line on their edges beyond the look's; none below 0

    def __post_init__(self) -> None:
        _positive(self, "gamma_scale")
        _not_negative(self, "softness_px", "bloom", "exposure_s", "readout_s")


@dataclass(frozen=True)
class Deviations:
    """All sections of a world's file."""

    plant: PlantDeviation = PlantDeviation()
    camera: CameraDeviation = CameraDeviation()
    imu: ImuDeviation = ImuDeviation()
    link: LinkDeviation = LinkDeviation()
    course: CourseDeviation = CourseDeviation()
    pad: PadDeviation = PadDeviation()
    air: AirDeviation = AirDeviation()
    view: ViewDeviation = ViewDeviation()


AS_BELIEVED = Deviations()
NAMES = tuple(f"{part.name}.{one.name}" for part in fields(Deviations) for one in fields(part.type))  # type: ignore[arg-type]
