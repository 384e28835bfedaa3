"""`map-track`: positions of a course's gates from flights past them, by images and IMU alone."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.config import write
from gate_racer.common.errors import UserError
from gate_racer.common.files import write_figure
from gate_racer.common.settings import settings_of
from gate_racer.field.files import DIGITS
from gate_racer.field.mapping.bundle import LEAST_SIGHTINGS, Map, MappedGate, map_gates, passed_in_order
from gate_racer.field.mapping.cli import MappingSettings
from gate_racer.field.mapping.flight import MapError, read_flight
from gate_racer.perception.registry import open_detector
from gate_racer.pilot.records.imported import equipped
from gate_racer.tracks.track import GateFrame, Start
from gate_racer.vehicle.rotation import from_euler, matrix
from gate_racer.vehicle.vehicle import load_vehicle

ROOM_M = 12.0  # m around gates and start, to the sides and up, assumed for the bounds
BELOW_M = 0.1  # m below the lowest of frames and start: the floor may begin there
DOUBT_M, DOUBT_DEG = 1.0, 5.0  # standard deviations above which a gate is refused
VIEWS = ((1, 0, "east [m]", "north [m]"), (0, 2, "north [m]", "down [m]"))  # axes of the plot's views, and their names


def run(arguments: argparse.Namespace) -> int:
    """Map the gates, write the track's file and a plot, and return the exit code. Raises UserError for unusable logs."""
    settings = settings_of(arguments, MappingSettings)
    count, out = settings.gates, settings.out
    if count is None or out is None:
        raise UserError("--gates N and --out FILE are needed")
    require_outputs((out, out.with_suffix(".png"), arguments.json), *arguments.log, settings.vehicle)
    vehicle, look = equipped(load_vehicle(settings.vehicle), arguments.log[0])
    frame = settings.frame
    detector = open_detector(settings.detector, vehicle.camera) if settings.detector else None
    at = _numbers(settings.start)
    flights = [read_flight(path, detector) for path in arguments.log]
    for flight in flights:
        if flight.cut:
            remark(f"{flight.path}: used only up to {flight.readings[-1].t:.2f} s: {flight.cut}")
    found = map_gates(flights, vehicle, frame, look)
    gates = known(found, passed_in_order(found, frame), count)
    start = start_of(found, at)
    placed = [moved(gate, start, found) for gate in gates]
    print(table(placed, found))
    cut = [flight.path for flight in flights if flight.cut]
    write(out, track_fields(placed, start, frame, out.stem, arguments.log, cut), DIGITS)
    draw_map(out.with_suffix(".png"), placed, found, start, frame)
    names = "tilt_deg", "delay_s", "edge_offset_m", "extra_depth_m", "residual_px", "calibrated", "focal"
    write_json(arguments.json, {"gates": placed, **{name: getattr(found, name) for name in names}})
    remark(f"wrote {out} and {out.with_suffix('.png')}")
    return 0


def known(found: Map, passed: list[MappedGate], count: int) -> list[MappedGate]:
    """Return the first `count` gates of the course. Raises MapError if there are fewer, or one is too uncertain."""
    if len(found.gates) < count:
        seen = f"only {len(found.gates)} gates were seen at least {LEAST_SIGHTINGS} times"
        raise MapError(f"--gates {count}: {seen}; fly slowly past the others (explore)")
    if len(passed) < count:
        flown = f"only {len(passed)} of {len(found.gates)} gates were flown through"
        raise MapError(f"--gates {count}: {flown}; order and direction of the others are unknown")
    for i, gate in enumerate(passed[:count]):
        if gate.sigma_m > DOUBT_M or gate.sigma_yaw_deg > DOUBT_DEG:
            sigmas = f"standard deviations of {gate.sigma_m:.2f} m and {gate.sigma_yaw_deg:.1f} deg"
            raise MapError(f"gate {i}: {sigmas} from {gate.sightings} sightings are too large; fly past it again")
    return passed[:count]


def moved(gate: MappedGate, start: Start, found: Map) -> MappedGate:
    """Transform a gate from the pad's frame, in which the map was made, to the start."""
    turn = math.radians(start.yaw_deg) - found.pad[2]
    R = matrix(from_euler(0.0, 0.0, turn))
    cov = gate.cov.copy()
    cov[:3] = R @ cov[:3]
    cov[:, :3] = cov[:, :3] @ R.T
    yaw = math.remainder(gate.yaw + turn, 2 * math.pi)
    return MappedGate(start.p_wb + R @ gate.p_w, yaw, cov, gate.sightings, gate.pitch)


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (3, 4) or not np.isfinite(numbers).all():
        raise UserError(f"start {text!r}: expected X,Y,Z or X,Y,Z,YAW")
    return numbers


def start_of(found: Map, numbers: Sequence[float] = (0.0, 0.0, 0.0)) -> Start:
    """Return the vehicle's pose on the pad, at X, Y, Z (m) and, if given, at that yaw (deg)."""
    (x, y, z, *yaw_deg), (_, pitch, yaw) = numbers, found.pad
    return Start((x, y, z), yaw_deg[0] if yaw_deg else math.degrees(yaw), math.degrees(pitch))


def track_fields(
    gates: list[MappedGate], start: Start, frame: GateFrame, name: str, logs: list[Path], cut: Sequence[Path] = ()
) -> dict[str, Any]:
    """Return the track file: gates with covariances, and assumed bounds around them; truncated logs are marked."""
    centres = np.array([gate.p_w for gate in gates])
    points = np.vstack([centres - frame.outer_m / 2, centres + frame.outer_m / 2, start.p_wb])
    low, high = points.min(axis=0) - ROOM_M, points.max(axis=0) + [ROOM_M, ROOM_M, BELOW_M]
    worst = max(gate.sigma_m for gate in gates)
    names = ", ".join(log.name + " (in part)" * (log in cut) for log in logs)
    return {
        "name": name,
        "source": f"map-track from {names}; gates within {worst:.2f} m of the pad's frame"
        " (largest standard deviation). The bounds are assumed.",
        "start": {"position_m": list(start.position_m), "yaw_deg": start.yaw_deg, "pitch_deg": start.pitch_deg},
        "bounds": {"low_m": low.tolist(), "high_m": high.tolist()},
        "frame": {"opening_m": frame.opening_m, "outer_m": frame.outer_m, "depth_m": frame.depth_m},
        "gates": [
            {
                "centre_m": gate.p_w.tolist(),
                "yaw_deg": math.degrees(gate.yaw),
                "cov_m2": gate.cov[:3, :3].tolist(),
                "sigma_yaw_deg": gate.sigma_yaw_deg,
            }
            for gate in gates
        ],
    }


def table(gates: list[MappedGate], found: Map) -> str:
    lines = [
        f"gate {i}: ({g.p_w[0]:8.2f}, {g.p_w[1]:7.2f}, {g.p_w[2]:7.2f}) m +- {g.sigma_m:.2f},"
        f" yaw {math.degrees(g.yaw):6.1f} +- {g.sigma_yaw_deg:.1f} deg, seen {g.sightings} times"
        for i, g in enumerate(gates)
    ]
    more = len(found.gates) - len(gates)
    if more:
        lines.append(f"{more} more gates were seen and are not in the track")
    lines.append(
        f"camera tilt {found.tilt_deg:.2f} deg, images {found.delay_s * 1e3:+.1f} ms after their stamps, openings"
        f" {2e3 * found.edge_offset_m:+.0f} mm relative to opening_m, frame depth {1e3 * found.extra_depth_m:+.0f} mm relative to"
        f" depth_m, corner residual {found.residual_px:.2f} px (median)"
    )
    if found.calibrated:
        focal = f"focal length x{1 + found.focal:.3f}"
        lines.append(f"camera and IMU differ from the vehicle's file ({focal}) and were estimated")
    return "\n".join(lines)


def draw_map(path: Path, gates: list[MappedGate], found: Map, start: Start, frame: GateFrame) -> None:
    """Write gates, in the track's frame, with ellipses of three standard deviations, and the flights, as PNG."""
    from matplotlib.figure import Figure  # which takes longer to load than a message to be shown
    from matplotlib.patches import Ellipse

    figure = Figure(figsize=(14, 7))
    axes = figure.subplots(1, len(VIEWS))
    figure.subplots_adjust(left=0.05, right=0.98, bottom=0.07, top=0.97, wspace=0.15)
    R = matrix(from_euler(0.0, 0.0, math.radians(start.yaw_deg) - found.pad[2]))
    for axis, (i, j, across, up) in zip(axes, VIEWS, strict=True):
        for chain in found.chains:
            p = start.p_wb + chain.path()[1] @ R.T
            axis.plot(p[:, i], p[:, j], linewidth=0.8, label=chain.flight.path.stem)
        for n, gate in enumerate(gates):
            side = frame.outer_m / 2 * np.array([-math.sin(gate.yaw), math.cos(gate.yaw), 0.0])
            down = np.array([0.0, 0.0, frame.outer_m / 2])
            square = gate.p_w + np.array([side - down, side + down, -side + down, -side - down, side - down])
            axis.plot(square[:, i], square[:, j], color="tab:red")
            variance, turn = np.linalg.eigh(gate.cov[np.ix_([i, j], [i, j])])
            height, width = 6 * np.sqrt(np.maximum(variance, 0.0))
            angle = math.degrees(math.atan2(turn[1, 1], turn[0, 1]))
            axis.add_patch(Ellipse(tuple(gate.p_w[[i, j]]), width, height, angle=angle, alpha=0.3))
            axis.annotate(str(n), gate.p_w[[i, j]], xytext=(6, 6), textcoords="offset points")
        axis.set(xlabel=across, ylabel=up, aspect="equal")
        axis.grid(alpha=0.3)
    axes[1].invert_yaxis()
    axes[0].legend(loc="upper right", fontsize="small")
    write_figure(path, figure)
