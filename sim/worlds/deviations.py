"""`Deviations`: differences of the true world from the pilot's models, as plain numbers. Default: no difference.

Sections and fields are those of a world's YAML file. Scales are factors; all other values are added to the model's.
Axes: world NED, body FRD. `docs/worlds.md` gives the width of each distribution.
"""

from dataclasses import dataclass, fields
from typing import Any

from gate_racer.vehicle.rotation import Vector

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
    """Check that a two-state Markov chain with this share of lost frames and this mean burst length exists."""
    if not 0 <= share < 1 or mean_frames < 1 or share > mean_frames / (1 + mean_frames):
        raise ValueError(f"{what} needs 0 <= share < 1, bursts of at least one frame, and share <= burst / (1 + burst)")


@dataclass(frozen=True)
class PlantDeviation:
    """Deviations of the vehicle's dynamics."""

    thrust_scale: float = 1.0
    throttle_exponent: float = 1.0  # the modelled thrust curve is evaluated at throttle ** exponent
    drag_scale: float = 1.0
    drag_linear_1_s: float = 0.0  # added on every axis
    thrust_lag_scale: float = 1.0
    rate_lag_scale: float = 1.0  # `rates` model only; a grey-box vehicle has its own rate loop
    slew_scale: float = 1.0  # of the angular acceleration limits, where the vehicle has a mixer
    command_delay_s: float = 0.0
    battery_sag_1_s: float = 0.0  # fraction of the thrust lost per second at hover power
    ground_effect_radius_m: float = 0.0  # radius of a single rotor equivalent to all four; 0: no ground effect

    def __post_init__(self) -> None:
        _positive(
            self, "thrust_scale", "throttle_exponent", "drag_scale", "thrust_lag_scale", "rate_lag_scale", "slew_scale"
        )
        _not_negative(self, "battery_sag_1_s", "ground_effect_radius_m")


@dataclass(frozen=True)
class CameraDeviation:
    """Deviations of the camera's mount and lens, and corner dropout."""

    yaw_deg: float = 0.0  # mount, positive to the right
    tilt_deg: float = 0.0  # mount, positive up
    roll_deg: float = 0.0  # mount, clockwise about the optical axis
    position_m: Vector = ZERO  # mount, body FRD
    focal_scale: float = 1.0
    cx_px: float = 0.0
    cy_px: float = 0.0
    k1: float = 0.0  # radial distortion
    k2: float = 0.0
    dropout: float = 0.0  # fraction of the frames in which a corner is not detected (projected camera)
    dropout_frames: float = 1.0  # mean length of a dropout, frames

    def __post_init__(self) -> None:
        _positive(self, "focal_scale")
        _chain(self.dropout, self.dropout_frames, "dropout")


@dataclass(frozen=True)
class ImuDeviation:
    """IMU and attitude errors beyond the noise and bias of the vehicle's file."""

    accel_bias_m_s2: Vector = ZERO
    gyro_bias_rad_s: Vector = ZERO
    noise_scale: float = 1.0
    accel_scale: Vector = ZERO  # relative scale error per axis
    gyro_scale: Vector = ZERO
    misalignment_deg: Vector = ZERO  # rotation vector from the body's axes to the sensor's
    accel_age_s: float = 0.0  # delay of the specific force, with its axes, relative to its stamp
    attitude_deg: Vector = ZERO  # rotation vector, body axes, error of the reported ATTITUDE

    def __post_init__(self) -> None:
        _positive(self, "noise_scale")
        _not_negative(self, "accel_age_s")


@dataclass(frozen=True)
class LinkDeviation:
    """Deviations of clocks and transport."""

    telemetry_delay_s: float = 0.0  # rounded to whole ticks
    imu_drift_ppm: float = 0.0  # drift of the clock that stamps IMU and attitude
    video_offset_s: float = 0.0  # stamps of frames minus their exposure
    video_drift_ppm: float = 0.0
    video_latency_s: float = 0.0  # mean
    video_jitter_s: float = 0.0  # standard deviation of the latency, a first-order Gauss-Markov process
    video_jitter_tau_s: float = 1.0  # correlation time of that process
    frame_loss: float = 0.0  # fraction of the frames lost
    frame_loss_frames: float = 1.0  # mean length of a burst of losses, frames

    def __post_init__(self) -> None:
        _not_negative(self, "telemetry_delay_s", "video_jitter_s")
        _positive(self, "video_jitter_tau_s")
        _chain(self.frame_loss, self.frame_loss_frames, "frame_loss")


@dataclass(frozen=True)
class CourseDeviation:
    """Deviations of the gates' poses. Each list is empty or has one entry per gate of the track, in its order."""

    scale: float = 1.0  # scale of all distances from the pad; gates keep their size
    gate_moved_m: tuple[Vector, ...] = ()
    gate_turned_deg: tuple[tuple[float, float], ...] = ()  # yaw, pitch

    def __post_init__(self) -> None:
        _positive(self, "scale")


@dataclass(frozen=True)
class PadDeviation:
    """Deviations of the vehicle's pose on the pad."""

    moved_m: Vector = ZERO
    yaw_deg: float = 0.0
    pitch_deg: float = 0.0
    roll_deg: float = 0.0


@dataclass(frozen=True)
class AirDeviation:
    """Mean wind and Dryden gusts, see `sim.worlds.dryden`."""

    wind_north_m_s: float = 0.0  # velocity of the air over ground
    wind_east_m_s: float = 0.0
    gust_m_s: float = 0.0  # standard deviation along the wind
    gust_height_m: float = 6.0  # height above ground that sets the length scales of the turbulence

    def __post_init__(self) -> None:
        _not_negative(self, "gust_m_s")
        _positive(self, "gust_height_m")


@dataclass(frozen=True)
class ViewDeviation:
    """Deviations of the rendering: engine, lens, encoder and gate frames. The projected camera follows `readout_s`, `depth_m`
    and `outline_m` only."""

    softness_px: float = 0.0
    bloom: float = 0.0
    gamma_scale: float = 1.0
    exposure_s: float = 0.0
    readout_s: float = 0.0
    jpeg_quality: float = 0.0
    depth_m: float = 0.0  # added to the depth of the gates' frames in the look; their centre stays
    outline_m: float = 0.0  # added to the width of the frames' edge lines in the look; clipped at 0

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
