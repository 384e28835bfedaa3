"""`gate-racer rflysim-scene`: the gates and obstacles of a course as boxes in RflySim3D's scene."""

import argparse
import math

import numpy as np

from gate_racer.common.command import remark, write_json
from gate_racer.common.errors import UserError, say
from gate_racer.link.rflysim.client import parse_server
from gate_racer.link.rflysim.scene import CUBE, NUMBERS, SceneClient, SceneObject, SceneReport
from gate_racer.link.sockets import Address
from gate_racer.tracks.track import Track, gate_solids, load_track, of_obstacle
from gate_racer.vehicle.rotation import as_vector, from_matrix, to_euler

NOTHING = "none"  # in place of a course
OPTIONS = {"north": 0.0, "east": 0.0, "up": 0.0, "model": float(CUBE)}  # of the server's URL
FARTHEST_M = 1e4  # m, of an origin (chosen)
TRACK = f"name or file of a course, or `{NOTHING}`, which removes all boxes of earlier ones"
SERVER = "`rflysim://HOST:PORT?north=0&east=0&up=30`: server, and the course's origin in its map, m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("track", help=TRACK)
    parser.add_argument("server", nargs="?", default="rflysim", help=SERVER)


def objects_of(track: Track, origin_w: tuple[float, float, float], model: int = CUBE) -> list[SceneObject]:
    """Return the solids of a course, whose origin is at origin_w in the map, m, NED.

    Raises:
        UserError: they are more than a scene may have.
    """
    gates = sorted(set(track.landmarks))
    boxes = [box for i in gates for box in gate_solids(track, i)] + [of_obstacle(one) for one in track.obstacles]
    if len(boxes) > len(NUMBERS):
        raise UserError(f"{track.name}: {len(boxes)} boxes: a scene may have {len(NUMBERS)}")
    return [
        SceneObject(
            number,
            model,
            0.0,
            as_vector(box.centre + origin_w),
            to_euler(from_matrix(box.axes)),
            as_vector(2 * box.half),
        )
        for number, box in zip(NUMBERS, boxes, strict=False)
    ]


def run(arguments: argparse.Namespace) -> int:
    """Make the scene, and say what came of it; returns 1 if it is another one than asked for."""
    server, (north, east, up, model) = _options(arguments.server)
    origin_w, objects = (north, east, -up), list[SceneObject]()
    if arguments.track != NOTHING:
        track = load_track(arguments.track)
        objects = objects_of(track, origin_w, round(model))
        tell(track, objects, origin_w)
    with SceneClient(server) as client:
        report = client.make(objects)
    write_json(arguments.json, report)
    return judge(report, objects, server)


def _options(url: str) -> tuple[Address, list[float]]:
    """Return the server of a URL and the values of OPTIONS. Raises UserError."""
    server, given = parse_server(url)
    values = dict(OPTIONS)
    for name, text in given.items():
        if name not in OPTIONS:
            raise UserError(f"{url}: unknown option {name!r}; known: {', '.join(OPTIONS)}")
        try:
            values[name] = float(text)
        except ValueError:
            values[name] = math.nan
        if not abs(values[name]) <= (FARTHEST_M if name != "model" else 2**31 - 1):
            raise UserError(
                f"{url}: {name}: expected a number, in m within {FARTHEST_M:g}, or of a model, found {text!r}"
            )
    return server, list(values.values())


def tell(track: Track, objects: list[SceneObject], origin_w: tuple[float, float, float]) -> None:
    """Say where the vehicle starts, and what stands below the ground, or nowhere."""
    x, y, z = track.start.p_wb + origin_w
    say(f"start the vehicle at north {x:.2f}, east {y:.2f}, up {0 - z:.2f} m, yaw {track.start.yaw_deg:g} deg")
    bare = [i for i in sorted(set(track.landmarks)) if not track.gates[i].has_frame]
    if bare:
        remark(f"without a frame, and not placed: gates {', '.join(map(str, bare))}")
    below = max((one.p_w[2] + one.scale[2] / 2 for one in objects), default=0.0)
    if below > 1.0:
        up = math.ceil(below - origin_w[2])
        remark(f"{track.name} reaches {below:.1f} m below the map's origin: ?up={up} raises it, and its start")


def judge(report: SceneReport, objects: list[SceneObject], server: Address) -> int:
    """Print a report; returns the exit code."""
    host, port = server
    if objects and len(report.missing) == len(objects):
        raise UserError(
            f"no state of any box from {host}:{port}: is RflySim3D running there, and may it send to UDP 20006 here?"
        )
    say(f"{report.placed} of {len(objects)} boxes placed, {report.removed} of earlier courses removed")
    if report.missing:
        say(f"without a state: {', '.join(map(str, report.missing))}")
    for state in report.different[:1]:
        size = " x ".join(f"{2 * half:.2f}" for half in state.half_m)
        place = np.round(state.p_w, 2).tolist()
        others = f", and {len(report.different) - 1} more" if len(report.different) > 1 else ""
        say(f"box {state.number} is of {size} m at {place}{others}: is the model no cube of 1 m? (?model=)")
    if report.left:
        say(f"not removed: {', '.join(map(str, report.left))}; a change of the map removes them")
    return int(bool(report.missing or report.different or report.left))
