"""`race-bench make-errors`: residual file with odometry errors of published or given size."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import remark, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.files import require_output
from gate_racer.race.campaign.tables import odometry_errors
from gate_racer.sim.physics.residual import SAMPLES, ObservationModel, Residuals
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import load_vehicle

NAME = "make-errors"
# Correlation length of the errors: about the distance between gates, where drift is corrected (a guess).
LENGTH_M = 10.0


def add_parser(commands: Any) -> None:
    """Add the sub-command to those of `race-bench`."""
    add = commands.add_parser(
        NAME, help="write observation errors of a chosen size, for race-bench and race-sim"
    ).add_argument
    add("vehicle", help="name or YAML file of the vehicle")
    add("track", help="name or YAML file of the track")
    known = ", ".join(odometry_errors())
    add("size", nargs="?", default="swift", help=f"{known}, or deviations per axis as M,M/S,RAD (default: swift)")
    add("--out", type=Path, default=Path("errors.npz"), metavar="FILE", help="output file (default: errors.npz)")


def run(arguments: argparse.Namespace) -> None:
    """Write the residual file and print a summary. Raises UserError."""
    vehicle, track = load_vehicle(arguments.vehicle), load_track(arguments.track)
    require_output(arguments.out, Path(arguments.vehicle), Path(arguments.track))
    if arguments.out.suffix != ".npz":
        raise UserError(f"--out {arguments.out}: must end in .npz")
    sigmas = sizes(arguments.size)
    observation = ObservationModel.of_size(waypoints(track), sigmas, LENGTH_M)
    Residuals(vehicle.hash, vehicle.grey_box, None, observation).save(arguments.out)
    print("standard deviations per axis: {:g} m, {:g} m/s and {:g} rad".format(*sigmas))
    of_axis = dict(zip(("position_m", "velocity_m_s", "attitude_rad"), sigmas, strict=True))
    write_json(arguments.json, {"file": arguments.out, "sigmas": of_axis})
    remark(f"written: {arguments.out}")


def sizes(text: str) -> tuple[float, float, float]:
    """Return the standard deviations of position (m), velocity (m/s) and attitude (rad) on each axis. Raises UserError."""
    if text in (known := odometry_errors()):
        return known[text].position_m, known[text].velocity_m_s, known[text].attitude_rad
    try:
        position_m, velocity_m_s, attitude_rad = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"size {text}: must be {', '.join(known)}, or three numbers such as 0.2,0.3,0.03") from None
    if not (
        np.isfinite([position_m, velocity_m_s, attitude_rad]).all() and min(position_m, velocity_m_s, attitude_rad) > 0
    ):
        raise UserError(f"size {text}: the three numbers must be positive")
    return position_m, velocity_m_s, attitude_rad


def waypoints(track: Track) -> Array:
    """Return points (SAMPLES, 3) m, evenly spaced on straight lines from the start through the gates."""
    corners = np.array(
        [track.start.p_wb, *(gate.p_wg for gate in track.gates), *([track.gates[0].p_wg] if track.closed else [])]
    )
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    s = np.linspace(0.0, along[-1], SAMPLES)
    return np.column_stack([np.interp(s, along, column) for column in corners.T])
