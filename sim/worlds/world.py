"""`World`: the truth that a simulator flies, made of the pilot's models and `Deviations` from them.

A pilot receives Track, Vehicle and Profile; a simulator receives a World. A world equal to the models has to be requested
explicitly: `as_believed`.
"""

import math
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.sim.view.look import Look
from gate_racer.sim.worlds.deviations import AS_BELIEVED, Deviations
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Obstacle, Start, Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.config import write
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Vector
from gate_racer.vehicle.vehicle import Vehicle

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
        """Apply deviations to a modelled track and vehicle.

        Raises:
            UserError: the deviations are for a track with other gates, or the resulting vehicle is invalid.
        """
        try:
            true = true_vehicle(vehicle, deviations)
        except ValueError as error:
            raise UserError(f"world {name}: {vehicle.name}: {error}") from None
        return cls(name, deviations, true_track(name, track, deviations), true, track)

    def seen(self, look: Look) -> Look:
        """Return the look with the rendering deviations of this world."""
        off = self.deviations.view
        return replace(
            look,
            softness_px=look.softness_px + off.softness_px,
            bloom=look.bloom + off.bloom,
            gamma=look.gamma * off.gamma_scale,
            exposure_s=look.exposure_s + off.exposure_s,
            readout_s=look.readout_s + off.readout_s,
            jpeg_quality=min(max(look.jpeg_quality + round(off.jpeg_quality), 1), 100),
            depth_m=max(look.depth_m + off.depth_m, 0.0),
            outline_m=max(look.outline_m + off.outline_m, 0.0),
        )

    @cached_property
    def nominal(self) -> bool:
        """Whether the world equals the models."""
        return self.deviations == AS_BELIEVED

    def as_dict(self) -> dict[str, Any]:
        """Return name and deviations, for logs and results."""
        return {"name": self.name, "deviations": asdict(self.deviations)}

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
        rate_lag_s=_scaled_vector(vehicle.rate_lag_s, plant.rate_lag_scale),
        drag_linear_1_s=_moved(_scaled_vector(vehicle.drag_linear_1_s, plant.drag_scale), (plant.drag_linear_1_s,) * 3),
        drag_quadratic_1_m=vehicle.drag_quadratic_1_m * plant.drag_scale,
        mixer=vehicle.mixer and vehicle.mixer.scaled(plant.slew_scale),
        command_delay_s=max(0.0, vehicle.command_delay_s + plant.command_delay_s),
        camera=true_camera(vehicle.camera, deviations),
    )
    if not vehicle.grey_box:
        return changed
    motors, _, _, aero = vehicle.require_grey_box()
    forces = {name: _scaled(getattr(aero, name), plant.drag_scale) for name in ("fx", "fy", "fz")}
    for name, field in (("fx", "v"), ("fy", "v"), ("fz", "vz")):
        forces[name] = replace(forces[name], **{field: getattr(forces[name], field) - plant.drag_linear_1_s})
    return replace(
        changed,
        motors=replace(
            motors,
            thrust_n_s2=motors.thrust_n_s2 * plant.thrust_scale,
            time_constant_s=motors.time_constant_s * plant.thrust_lag_scale,
        ),
        aero=replace(aero, **forces),
    )


def true_camera(camera: Camera, deviations: Deviations) -> Camera:
    """Return the camera with the deviations of mount and lens."""
    off = deviations.camera
    return replace(
        camera,
        fx_px=camera.fx_px * off.focal_scale,
        fy_px=camera.fy_px * off.focal_scale,
        cx_px=camera.cx_px + off.cx_px,
        cy_px=camera.cy_px + off.cy_px,
        tilt_deg=camera.tilt_deg + off.tilt_deg,
        yaw_deg=camera.yaw_deg + off.yaw_deg,
        roll_deg=camera.roll_deg + off.roll_deg,
        k1=camera.k1 + off.k1,
        k2=camera.k2 + off.k2,
        p_bc_m=_moved(camera.p_bc_m, off.position_m),
    )


def true_track(name: str, track: Track, deviations: Deviations) -> Track:
    """Return the track with true gates, obstacles and pad. Raises UserError where a list lacks one entry per gate."""
    course, pad = deviations.course, deviations.pad
    for what in ("gate_moved_m", "gate_turned_deg"):
        if len(getattr(course, what)) not in (0, len(track.gates)):
            raise UserError(
                f"world {name}: course.{what} has {len(getattr(course, what))} entries,"
                f" the track {track.name} has {len(track.gates)} gates"
            )
    if deviations.course == AS_BELIEVED.course and pad == AS_BELIEVED.pad:
        return track
    still, straight = ((0.0, 0.0, 0.0),) * len(track.gates), ((0.0, 0.0),) * len(track.gates)
    origin = track.start.position_m
    gates = tuple(
        _placed(gate, _moved(_from(origin, gate.centre_m, course.scale), moved), *turned)
        for gate, moved, turned in zip(
            track.gates, course.gate_moved_m or still, course.gate_turned_deg or straight, strict=True
        )
    )
    obstacles = tuple(
        Obstacle(_from(origin, box.low_m, course.scale), _from(origin, box.high_m, course.scale))
        for box in track.obstacles
    )
    start = Start(
        _moved(origin, pad.moved_m),
        track.start.yaw_deg + pad.yaw_deg,
        track.start.pitch_deg + pad.pitch_deg,
        track.start.roll_deg + pad.roll_deg,
    )
    return replace(track, gates=gates, obstacles=obstacles, start=start)


def _placed(gate: Gate, centre_m: Vector, yaw_deg: float, pitch_deg: float) -> Gate:
    return replace(gate, centre_m=centre_m, yaw_deg=gate.yaw_deg + yaw_deg, pitch_deg=gate.pitch_deg + pitch_deg)


def _from(origin: Vector, point: Vector, scale: float) -> Vector:
    """Return a point with its distance from the origin scaled."""
    return _moved(origin, _scaled_vector(_moved(point, _scaled_vector(origin, -1.0)), scale))


def _moved(a: Vector, b: Vector) -> Vector:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _scaled_vector(a: Vector, factor: float) -> Vector:
    return a[0] * factor, a[1] * factor, a[2] * factor


def _scaled(part: Any, factor: float) -> Any:
    """Return a dataclass of numbers with all fields scaled."""
    return replace(part, **{field.name: getattr(part, field.name) * factor for field in fields(part)})


def rotation_vector(degrees: Vector) -> np.ndarray:
    """Convert a rotation vector from degrees to rad (3,)."""
    return np.array([math.radians(angle) for angle in degrees])
