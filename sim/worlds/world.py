"""`World`: the truth that a simulator flies, made of the pilot's models and `Deviations` from them, as plain numbers.

Sections and fields are those of a world's YAML file. Scales are factors; all other values are added to the model's.
Axes: world NED, body FRD. `docs/worlds.md` gives the width of each distribution.

A pilot receives Track, Vehicle and Profile; a simulator receives a World. A world equal to the models has to be requested
explicitly: `as_believed`.
"""

import math
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.config import write
from gate_racer.common.errors import UserError
from gate_racer.common.settings import Limited, limited
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.tracks.track import Obstacle, Start, Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Vector, as_vector
from gate_racer.vehicle.vehicle import Vehicle

ZERO: Vector = (0.0, 0.0, 0.0)


class Section(Limited):
    """Base class of a world's sections, which checks their fields. Raises ValueError."""

    CHAIN = ""  # field with the share of a two-state Markov chain, whose mean burst is in the field with "_frames"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.CHAIN:
            share, burst = getattr(self, self.CHAIN), getattr(self, f"{self.CHAIN}_frames")
            if not 0 <= share < 1 or burst < 1 or share > burst / (1 + burst):
                what = "0 <= share < 1, bursts of 1 or more, share <= burst / (1 + burst)"
                raise ValueError(f"{self.CHAIN} needs {what}")


@dataclass(frozen=True)
class PlantDeviation(Section):
    thrust_scale: float = limited(1.0, positive=True)
    throttle_exponent: float = limited(1.0, positive=True)  # the thrust curve is evaluated at throttle ** exponent
    drag_scale: float = limited(1.0, positive=True)
    drag_linear_1_s: float = 0.0  # added on every axis
    thrust_lag_scale: float = limited(1.0, positive=True)
    rate_lag_scale: float = limited(1.0, positive=True)  # `rates` model only; a grey-box vehicle has its own rate loop
    slew_scale: float = limited(1.0, positive=True)  # of the angular acceleration limits, where the vehicle has a mixer
    command_delay_s: float = 0.0
    battery_sag_1_s: float = limited(0.0, least=0.0)  # fraction of the thrust lost per second at hover power
    ground_effect_radius_m: float = limited(0.0, least=0.0)  # of one rotor equivalent to all four; 0: no ground effect


@dataclass(frozen=True)
class CameraDeviation(Section):
    yaw_deg: float = 0.0  # mount, positive to the right
    tilt_deg: float = 0.0  # mount, positive up
    roll_deg: float = 0.0  # mount, clockwise about the optical axis
    position_m: Vector = ZERO  # mount, body FRD
    focal_scale: float = limited(1.0, positive=True)
    cx_px: float = 0.0
    cy_px: float = 0.0
    k1: float = 0.0  # radial distortion
    k2: float = 0.0
    dropout: float = 0.0  # fraction of the frames in which a corner is not detected (projected camera)
    dropout_frames: float = 1.0  # mean length of a dropout, frames
    CHAIN = "dropout"


@dataclass(frozen=True)
class ImuDeviation(Section):
    """IMU and attitude errors beyond the noise and bias of the vehicle's file."""

    accel_bias_m_s2: Vector = ZERO
    gyro_bias_rad_s: Vector = ZERO
    noise_scale: float = limited(1.0, positive=True)
    accel_scale: Vector = ZERO  # relative scale error per axis
    gyro_scale: Vector = ZERO
    misalignment_deg: Vector = ZERO  # rotation vector from the body's axes to the sensor's
    accel_age_s: float = limited(0.0, least=0.0)  # delay of the specific force, with its axes, relative to its stamp
    attitude_deg: Vector = ZERO  # rotation vector, body axes, error of the reported ATTITUDE
    north_deg: float = 0.0  # turn of the map's north, clockwise, from that of the reported ATTITUDE


@dataclass(frozen=True)
class LinkDeviation(Section):
    telemetry_delay_s: float = limited(0.0, least=0.0)  # rounded to whole ticks
    imu_drift_ppm: float = 0.0  # drift of the clock that stamps IMU and attitude
    video_offset_s: float = 0.0  # stamps of frames minus their exposure
    video_drift_ppm: float = 0.0
    video_latency_s: float = 0.0  # mean
    video_jitter_s: float = limited(0.0, least=0.0)  # standard deviation of the latency, a Gauss-Markov process
    video_jitter_tau_s: float = limited(1.0, positive=True)  # correlation time of that process
    frame_loss: float = 0.0  # fraction of the frames lost
    frame_loss_frames: float = 1.0  # mean length of a burst of losses, frames
    CHAIN = "frame_loss"


@dataclass(frozen=True)
class CourseDeviation(Section):
    """Deviations of the gates' poses. Each list is empty or has one entry per gate of the track, in its order."""

    scale: float = limited(1.0, positive=True)  # scale of all distances from the pad; gates keep their size
    gate_moved_m: tuple[Vector, ...] = ()
    gate_turned_deg: tuple[tuple[float, float], ...] = ()  # yaw, pitch


@dataclass(frozen=True)
class PadDeviation(Section):
    moved_m: Vector = ZERO
    yaw_deg: float = 0.0
    pitch_deg: float = 0.0
    roll_deg: float = 0.0


@dataclass(frozen=True)
class AirDeviation(Section):
    """Mean wind and Dryden gusts, see `sim.worlds.forces`."""

    wind_north_m_s: float = 0.0  # velocity of the air over ground
    wind_east_m_s: float = 0.0
    gust_m_s: float = limited(0.0, least=0.0)  # standard deviation along the wind
    # Above ground, which sets the turbulence's length scales.
    gust_height_m: float = limited(6.0, positive=True, most=1e5)


@dataclass(frozen=True)
class ViewDeviation(Section):
    """Deviations of the rendering: engine, lens, encoder and gate frames. The projected camera follows `readout_s`, `depth_m`
    and `outline_m` only."""

    softness_px: float = limited(0.0, least=0.0)
    bloom: float = limited(0.0, least=0.0)
    gamma_scale: float = limited(1.0, positive=True)
    exposure_s: float = limited(0.0, least=0.0)
    readout_s: float = limited(0.0, least=0.0)
    jpeg_quality: float = 0.0
    depth_m: float = 0.0  # added to the depth of the gates' frames in the style; their centre stays
    outline_m: float = 0.0  # added to the width of the frames' edge lines in the style; clipped at 0


@dataclass(frozen=True)
class Deviations:
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


class MarkovChain:
    """Array of two-state Markov chains, stationary from the start: on in a share of the steps, in bursts of mean length."""

    def __init__(self, share: float, mean_steps: float, shape: tuple[int, ...], rng: np.random.Generator):
        self._rng, self._leave = rng, 1 / mean_steps
        self._enter = share / (1 - share) / mean_steps
        self.on = rng.random(shape) < share

    def step(self) -> np.ndarray:
        """Advance one step and return the mask of chains that are on."""
        chance = self._rng.random(self.on.shape)
        self.on = np.where(self.on, chance >= self._leave, chance < self._enter)
        return self.on


class VideoTransport:
    """Losses, latency and time stamps of the frames; call once per frame, in order.

    Losses: the two-state Markov chain of Gilbert (1960). Latency in excess of the nominal one: a mean and a first-order
    Gauss-Markov process, clipped at zero, as under a varying load.
    """

    def __init__(self, link: LinkDeviation, video_hz: float, rng: np.random.Generator):
        self._link, self._rng = link, rng
        self._lost = MarkovChain(link.frame_loss, link.frame_loss_frames, (), rng) if link.frame_loss else None
        self._keep = math.exp(-1 / (video_hz * link.video_jitter_tau_s))
        self._swing = float(rng.standard_normal()) if link.video_jitter_s else 0.0

    def __call__(self, t: float) -> tuple[float, float] | None:
        """Return the stamp of a frame exposed at t (s, simulator clock), by the sender's clock with its offset and drift, and its
        latency beyond the nominal one, s; None if the frame is lost."""
        link = self._link
        if link.video_jitter_s:
            self._swing = self._keep * self._swing + math.sqrt(1 - self._keep**2) * float(self._rng.standard_normal())
        if self._lost is not None and self._lost.step():
            return None
        more = link.video_latency_s + link.video_jitter_s * self._swing
        return t * (1 + 1e-6 * link.video_drift_ppm) + link.video_offset_s, max(0.0, more)


NOMINAL = "as_believed"  # name of the world without deviations


@dataclass(frozen=True)
class World:
    """True track and vehicle. Made by `World.of`, which applies deviations, or by `as_believed`."""

    name: str
    deviations: Deviations
    track: Track
    vehicle: Vehicle  # with its true camera
    published: Track  # course as published, which a simulator sends as its map

    @classmethod
    def of(cls, name: str, deviations: Deviations, track: Track, vehicle: Vehicle) -> "World":
        """Apply deviations to a modelled track and vehicle. Raises UserError where they are for a track with other gates, or the
        resulting vehicle is invalid."""
        try:
            true = true_vehicle(vehicle, deviations)
        except ValueError as error:
            raise UserError(f"world {name}: {vehicle.name}: {error}") from None
        return cls(name, deviations, true_track(name, track, deviations), true, track)

    def seen(self, style: RenderingStyle) -> RenderingStyle:
        """Return the style with the rendering deviations of this world."""
        off = self.deviations.view
        added = "softness_px", "bloom", "exposure_s", "readout_s", "depth_m", "outline_m"
        return replace(
            style,
            gamma=style.gamma * off.gamma_scale,
            jpeg_quality=min(max(style.jpeg_quality + round(off.jpeg_quality), 1), 100),
            **{name: max(getattr(style, name) + getattr(off, name), 0.0) for name in added},
        )

    @cached_property
    def nominal(self) -> bool:
        """Whether the world equals the models: no deviations, and no plant beyond the `rates` model."""
        return self.deviations == AS_BELIEVED and not self.vehicle.grey_box

    def as_dict(self) -> dict[str, Any]:
        """Return name, whether it equals the models, and deviations, for logs and results."""
        return {"name": self.name, "nominal": self.nominal, "deviations": asdict(self.deviations)}

    def save(self, path: Path) -> None:
        """Write a file with every deviation, which `sim.worlds.distribution.resolve` reads."""
        source = f"{self.name}, for the track {self.track.name}"
        write(path, {"name": self.name, "source": source, "world": asdict(self.deviations)})


def as_believed(track: Track, vehicle: Vehicle) -> World:
    """Return the world without deviations from the pilot's models.

    Examples:
        >>> from gate_racer import as_believed
        >>> as_believed(track, vehicle).nominal
        True
    """
    return World(NOMINAL, AS_BELIEVED, track, vehicle, track)


def true_vehicle(vehicle: Vehicle, deviations: Deviations) -> Vehicle:
    """Return the true vehicle with its true camera. Raises ValueError when the result is invalid."""
    plant, curve = deviations.plant, vehicle.throttle
    changed = replace(
        vehicle,
        throttle=replace(
            curve,
            command=tuple(u ** (1 / plant.throttle_exponent) for u in curve.command),
            thrust_m_s2=tuple(c * plant.thrust_scale for c in curve.thrust_m_s2),
        ),
        thrust_lag_s=vehicle.thrust_lag_s * plant.thrust_lag_scale,
        rate_lag_s=as_vector(np.array(vehicle.rate_lag_s) * plant.rate_lag_scale),
        drag_linear_1_s=as_vector(np.array(vehicle.drag_linear_1_s) * plant.drag_scale + plant.drag_linear_1_s),
        drag_quadratic_1_m=vehicle.drag_quadratic_1_m * plant.drag_scale,
        mixer=vehicle.mixer and vehicle.mixer.scaled(plant.slew_scale),
        command_delay_s=max(0.0, vehicle.command_delay_s + plant.command_delay_s),
        camera=true_camera(vehicle.camera, deviations.camera),
    )
    if not vehicle.grey_box:
        return changed
    motors, _, _, aero = vehicle.require_grey_box()
    forces = {}
    for name, linear in (("fx", "v"), ("fy", "v"), ("fz", "vz")):
        scaled = {term: value * plant.drag_scale for term, value in asdict(getattr(aero, name)).items()}
        forces[name] = type(getattr(aero, name))(**scaled | {linear: scaled[linear] - plant.drag_linear_1_s})
    return replace(
        changed,
        motors=replace(
            motors,
            thrust_n_s2=motors.thrust_n_s2 * plant.thrust_scale,
            time_constant_s=motors.time_constant_s * plant.thrust_lag_scale,
        ),
        aero=replace(aero, **forces),
    )


def true_camera(camera: Camera, off: CameraDeviation) -> Camera:
    """Return the camera with the deviations of mount and lens."""
    added = "cx_px", "cy_px", "tilt_deg", "yaw_deg", "roll_deg", "k1", "k2"
    return replace(
        camera,
        fx_px=camera.fx_px * off.focal_scale,
        fy_px=camera.fy_px * off.focal_scale,
        p_bc_m=as_vector(np.add(camera.p_bc_m, off.position_m)),
        **{name: getattr(camera, name) + getattr(off, name) for name in added},
    )


def true_track(name: str, track: Track, deviations: Deviations) -> Track:
    """Return the track with true gates, obstacles and pad. Raises UserError where a list lacks one entry per gate."""
    course, pad = deviations.course, deviations.pad
    for what in ("gate_moved_m", "gate_turned_deg"):
        given, gates = len(getattr(course, what)), len(track.gates)
        if given not in (0, gates):
            raise UserError(
                f"world {name}: course.{what} has {given} entries, the track {track.name} has {gates} gates"
            )
    if deviations.course == AS_BELIEVED.course and pad == AS_BELIEVED.pad:
        return track
    origin, start = np.array(track.start.position_m), track.start
    still, straight = (ZERO,) * len(track.gates), ((0.0, 0.0),) * len(track.gates)

    def placed(point: Vector, moved: Vector = ZERO) -> Vector:
        return as_vector(origin + (np.array(point) - origin) * course.scale + moved)

    true = tuple(
        replace(gate, centre_m=placed(gate.centre_m, by), yaw_deg=gate.yaw_deg + yaw, pitch_deg=gate.pitch_deg + pitch)
        for gate, by, (yaw, pitch) in zip(
            track.gates, course.gate_moved_m or still, course.gate_turned_deg or straight, strict=True
        )
    )
    obstacles = tuple(Obstacle(placed(box.low_m), placed(box.high_m)) for box in track.obstacles)
    turned = start.yaw_deg + pad.yaw_deg, start.pitch_deg + pad.pitch_deg, start.roll_deg + pad.roll_deg
    start = Start(as_vector(origin + pad.moved_m), *turned)
    return replace(track, gates=true, obstacles=obstacles, start=start)
