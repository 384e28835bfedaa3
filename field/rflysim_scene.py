"""`gate-racer rflysim-scene`: the gates and obstacles of a course as boxes in RflySim3D's scene."""

import argparse
import math

from gate_racer.common.command import write_json
from gate_racer.common.errors import UserError, say
from gate_racer.link.rflysim.client import parse_server
from gate_racer.link.rflysim.scene import CUBE, NUMBERS, SceneClient, SceneObject
from gate_racer.tracks.track import Track, gate_solids, load_track, of_obstacle
from gate_racer.vehicle.rotation import as_vector, from_matrix, to_euler

NOTHING, MODEL = "none", "model"  # in place of a course; option of the server's URL
SUNK_M = 1.0  # m, depth below the map's ground down to which a course is not raised: feet of gates (chosen)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "track", help=f"name or file of a course, or `{NOTHING}`, which removes all boxes of earlier ones"
    )
    parser.add_argument("server", nargs="?", default="rflysim", help="RflySim3D: `rflysim://HOST:PORT`")


def objects_of(track: Track, model: int = CUBE) -> tuple[list[SceneObject], int]:
    """Return the solids of a course, and how far it is raised so that none is below the map's ground, m.

    Raises:
        UserError: they are more than a scene may have.
    """
    boxes = [box for i in sorted(set(track.landmarks)) for box in gate_solids(track, i)]
    boxes += map(of_obstacle, track.obstacles)
    if len(boxes) > len(NUMBERS):
        raise UserError(f"{track.name}: {len(boxes)} boxes: a scene may have {len(NUMBERS)}")
    lowest = max((float(box.centre[2] + abs(box.axes[2]) @ box.half) for box in boxes), default=0.0)
    raised = math.ceil(lowest) if lowest > SUNK_M else 0
    return [
        SceneObject(number, model, 0.0, (x, y, z - raised), to_euler(from_matrix(box.axes)), as_vector(2 * box.half))
        for number, box in zip(NUMBERS, boxes, strict=False)
        for x, y, z in [box.centre.tolist()]
    ], raised


def run(arguments: argparse.Namespace) -> int:
    """Make the scene, and say what came of it; returns 1 if it is another one than asked for."""
    server, options = parse_server(arguments.server, MODEL)
    model = options.get(MODEL, str(CUBE))
    if not (model.isascii() and model.isdigit()) or int(model) >= 1 << 31:
        raise UserError(f"{arguments.server}: {MODEL}: must be the number of a model of RflySim3D, found {model!r}")
    objects = list[SceneObject]()
    if arguments.track != NOTHING:
        track = load_track(arguments.track)
        objects, raised = objects_of(track, int(model))
        north, east, down = track.start.position_m
        say(
            f"start the vehicle at north {north:g}, east {east:g}, up {raised - down:g} m, yaw {track.start.yaw_deg:g} deg"
        )
        if bare := [i for i in sorted(set(track.landmarks)) if not track.gates[i].has_frame]:
            say(f"gates without a frame are not placed: {', '.join(map(str, bare))}")
    with SceneClient(server) as client:
        host, port = client.server
        report = client.make(objects)
    write_json(arguments.json, report)
    if objects and len(report.missing) == len(objects):
        raise UserError(
            f"no state of any box from {host}:{port}: is RflySim3D running there, and may it send to UDP 20006 here?"
        )
    say(f"{report.placed} of {len(objects)} boxes placed, {report.removed} of earlier courses removed")
    for numbers, what in (
        (report.missing, "without a state"),
        (report.different, f"elsewhere, or of another size (is the model a cube of 1 m? ?{MODEL}=NUMBER)"),
        (report.left, "not removed, which a change of the map does"),
    ):
        if numbers:
            say(f"{what}: {', '.join(map(str, numbers))}")
    return int(bool(report.missing or report.different or report.left))
