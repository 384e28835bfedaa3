"""What `gate-racer` does with a running RflySim: the boxes of a course in its scene, and checks of its parts."""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from gate_racer.about import NOTHING
from gate_racer.common.command import write_json
from gate_racer.common.errors import UserError, one_line, say
from gate_racer.doctor import Finding
from gate_racer.link.client import MavlinkClient
from gate_racer.link.profile import load_profile
from gate_racer.link.rflysim import desk
from gate_racer.link.rflysim.client import OPTIONS, SensorSocket, parse_server
from gate_racer.link.rflysim.desk import HeartbeatReceiver, ImuReceiver, SceneClient, SceneObject, imu_port
from gate_racer.link.rflysim.request import SENSORS, SensorRequest, load_sensors
from gate_racer.link.sockets import ANYWHERE, Address, LinkError, UdpEndpoint, listening_host, reachable
from gate_racer.tracks.track import Track, gate_solids, load_track, of_obstacle
from gate_racer.vehicle.rotation import as_vector, from_matrix, to_euler

MODEL = "model"  # option of the server's URL
SUNK_M = 1.0  # m, depth below the map's ground down to which a course is not raised: feet of gates (chosen)


def objects_of(track: Track, model: int = desk.CUBE) -> tuple[list[SceneObject], int]:
    """Return the solids of a course, and how far it is raised so that none is below the map's ground, m. Raises UserError."""
    boxes = [box for i in sorted(set(track.landmarks)) for box in gate_solids(track, i)]
    boxes += map(of_obstacle, track.obstacles)
    if len(boxes) > len(desk.NUMBERS):
        raise UserError(f"{track.name}: {len(boxes)} boxes: a scene may have {len(desk.NUMBERS)}")
    lowest = max((float(box.centre[2] + abs(box.axes[2]) @ box.half) for box in boxes), default=0.0)
    raised = math.ceil(lowest) if lowest > SUNK_M else 0
    return [
        SceneObject(number, model, 0.0, (x, y, z - raised), to_euler(from_matrix(box.axes)), as_vector(2 * box.half))
        for number, box in zip(desk.NUMBERS, boxes, strict=False)
        for x, y, z in [box.centre.tolist()]
    ], raised


def make_scene(arguments: argparse.Namespace) -> int:
    """Make the scene, and say what came of it; returns 1 if it is another one than asked for."""
    server, options = parse_server(arguments.server, MODEL)
    model = options.get(MODEL, str(desk.CUBE))
    if not (model.isascii() and model.isdigit() and len(model) < 10):
        raise UserError(f"{arguments.server}: {MODEL}: must be the number of a model of RflySim3D, found {model!r}")
    objects = list[SceneObject]()
    if arguments.track != NOTHING:
        track = load_track(arguments.track)
        objects, raised = objects_of(track, int(model))
        (north, east, down), yaw = track.start.position_m, track.start.yaw_deg
        say(f"start the vehicle at north {north:g}, east {east:g}, up {raised - down:g} m, yaw {yaw:g} deg")
        if bare := [i for i in sorted(set(track.landmarks)) if not track.gates[i].has_frame]:
            say(f"gates without a frame are not placed: {', '.join(map(str, bare))}")
    with SceneClient(server) as client:
        host, port = client.server
        report = client.make(objects)
    write_json(arguments.json, report)
    if objects and len(report.missing) == len(objects):
        raise UserError(f"no state of any box from {host}:{port}: does RflySim3D run, and send to UDP 20006 here?")
    say(f"{report.placed} of {len(objects)} boxes placed, {report.removed} of earlier courses removed")
    for numbers, what in (
        (report.missing, "without a state"),
        (report.different, f"elsewhere, or of another size (is the model a cube of 1 m? ?{MODEL}=NUMBER)"),
        (report.left, "not removed, which a change of the map does"),
    ):
        if numbers:
            say(f"{what}: {', '.join(map(str, numbers))}")
    return int(bool(report.missing or report.different or report.left))


LISTEN_S = 5.0  # s, longest wait for all parts: five requests (chosen)
POLL_S, IMU_HZ = 0.02, 100  # s between two looks; rate asked for


# What is found as long as a part is silent, how it is opened, and how it is noticed, which also asks again where that is due.
Part = tuple[Finding, Callable[[], UdpEndpoint], Callable[[Any], bool]]


def examine_rflysim(url: str, listen_s: float = LISTEN_S) -> list[Finding]:
    """Return whether each part is heard within listen_s; option `config` of the URL names the sensors. Raises UserError."""
    server, options = parse_server(url, *OPTIONS)
    sensors = load_sensors(options["config"]) if options.get("config") else ()
    parts = list(_parts(reachable(server, ANYWHERE), sensors))
    found, opened = [finding for finding, _, _ in parts], dict[int, UdpEndpoint]()
    with ExitStack() as closing:
        for k, (finding, open_, _) in enumerate(parts):
            try:
                opened[k] = closing.enter_context(open_())
            except LinkError as error:
                found[k] = replace(finding, detail=one_line(str(error)))
        end = time.monotonic() + listen_s
        while opened and time.monotonic() < end:
            for k in [k for k, endpoint in opened.items() if parts[k][2](endpoint)]:
                found[k] = replace(found[k], good=True, detail=f"heard on UDP {opened.pop(k).address[1]}")
            time.sleep(POLL_S)
    return found


def _parts(server: Address, sensors: tuple[SensorRequest, ...]) -> Iterator[Part]:
    """Yield the sensors, CopterSim's heartbeat and IMU, and PX4; of the copter of the first sensor."""
    (host, port), copter = server, max(sensors[0].copter, 1) if sensors else 1
    profile, silent = load_profile("px4").of_copter(copter), partial(Finding, good=False)
    remedy = f"no frame from {host}:{port}: is RflySim3D running there, SendProtocol[1..4] 0 or this machine,"
    remedy += " and UDP let through its firewall? From WSL set SendProtocol[6] to 1400"
    for sensor in sensors:
        finding = silent(f"sensor {sensor.seq_id}, {SENSORS[sensor.type_id].name}", detail=remedy, needed=True)
        yield finding, partial(SensorSocket, sensor, server, lambda line: None), _samples
    remedy = f"nothing on UDP {desk.HEARTBEAT_PORT}: does CopterSim run, with this IS_BROADCAST? Stamps are estimated"
    yield silent("CopterSim's heartbeat", detail=remedy), partial(HeartbeatReceiver, server, copter), _beats
    remedy = f"no answer from UDP {imu_port(copter)}; only the bridge needs it"
    yield silent("CopterSim's IMU", detail=remedy), partial(ImuReceiver, host, IMU_HZ, copter), _samples
    remedy = f"no HEARTBEAT from {host}:{profile.simulator_port}: UDPSIMMODE Mavlink_Full, IS_BROADCAST this machine?"
    client = partial(MavlinkClient, listening_host(server), profile.mavlink_port, profile, (host, 0))
    yield silent("PX4 by MAVLink", detail=remedy, needed=True), client, _autopilot


def _samples(endpoint: SensorSocket | ImuReceiver) -> bool:
    return bool([*endpoint.samples()])


def _beats(endpoint: HeartbeatReceiver) -> bool:
    endpoint.listen(time.time() - time.monotonic())
    return endpoint.from_heartbeat


def _autopilot(endpoint: MavlinkClient) -> bool:
    endpoint.keep_alive(time.monotonic())
    endpoint.receive(0.0)
    return endpoint.peer is not None
