"""Checks of a running RflySim: each part that a flight needs is asked, and a remedy named where it is silent."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from gate_racer.common.errors import one_line
from gate_racer.doctor import Finding
from gate_racer.link.profile import load_profile
from gate_racer.link.rflysim.client import SensorSocket, parse_server
from gate_racer.link.rflysim.config import load_sensors
from gate_racer.link.rflysim.desk import HEARTBEAT_PORT, HeartbeatReceiver, ImuReceiver
from gate_racer.link.rflysim.request import SENSORS, SensorRequest, imu_port
from gate_racer.link.sockets import ANYWHERE, Address, LinkError, UdpEndpoint, listening_host, reachable
from gate_racer.link.udp import MavlinkClient

LISTEN_S = 5.0  # s, longest wait for all parts: five requests (chosen)
POLL_S, IMU_HZ = 0.02, 100  # s between two looks; rate asked for


@dataclass(frozen=True)
class _Part:
    """Part of RflySim: how it is reached, and how it is noticed."""

    what: str
    open: Callable[[], UdpEndpoint]
    hears: Callable[[Any], bool]  # asks again where that is due
    remedy: str
    needed: bool = True


def examine_rflysim(url: str, listen_s: float = LISTEN_S) -> list[Finding]:
    """Return whether each part is heard within listen_s; option `config` of the URL names the sensors.

    Raises:
        UserError: malformed URL or Config.json, or an unknown host.
    """
    server, options = parse_server(url)
    server = reachable(server, ANYWHERE)
    sensors = load_sensors(options["config"]) if options.get("config") else ()
    found, opened = dict[str, Finding](), dict[str, tuple[_Part, UdpEndpoint]]()
    with ExitStack() as closing:
        for part in _parts(server, sensors):
            try:
                opened[part.what] = part, closing.enter_context(part.open())
                found[part.what] = Finding(part.what, False, part.remedy, part.needed)
            except LinkError as error:
                found[part.what] = Finding(part.what, False, one_line(str(error)), part.needed)
        end = time.monotonic() + listen_s
        while opened and time.monotonic() < end:
            for what, (part, endpoint) in list(opened.items()):
                if part.hears(endpoint):
                    found[what] = Finding(what, True, f"heard on UDP {endpoint.address[1]}", part.needed)
                    del opened[what]
            time.sleep(POLL_S)
    return list(found.values())


def _parts(server: Address, sensors: tuple[SensorRequest, ...]) -> Iterator[_Part]:
    """Yield the sensors, CopterSim's heartbeat and IMU, and PX4; of the copter of the first sensor."""
    host, copter = server[0], max(sensors[0].copter, 1) if sensors else 1
    for sensor in sensors:
        yield _Part(
            f"sensor {sensor.seq_id}, {SENSORS[sensor.type_id].name}",
            partial(SensorSocket, sensor, server, lambda line: None),
            _samples,
            f"no frame from {host}:{server[1]}: is RflySim3D running there, is SendProtocol[1..4] 0 or this machine, and does"
            " its firewall let UDP pass? From WSL set SendProtocol[6] to 1400",
        )
    yield _Part(
        "CopterSim's heartbeat",
        partial(HeartbeatReceiver, server, copter),
        _beats,
        f"nothing on UDP {HEARTBEAT_PORT}: is CopterSim running, and IS_BROADCAST this machine? Stamps are estimated without",
        needed=False,
    )
    yield _Part(
        "CopterSim's IMU",
        partial(ImuReceiver, host, IMU_HZ, copter),
        _samples,
        f"no answer from UDP {imu_port(copter)}; only the bridge's --imu needs it",
        needed=False,
    )
    profile = load_profile("px4").of_copter(copter)
    yield _Part(
        "PX4 by MAVLink",
        partial(MavlinkClient, listening_host(server), profile.mavlink_port, profile, (host, 0)),
        _autopilot,
        f"no HEARTBEAT from {host}:{profile.simulator_port}: is UDPSIMMODE Mavlink_Full, and IS_BROADCAST this machine?",
    )


def _samples(endpoint: SensorSocket | ImuReceiver) -> bool:
    return bool([*endpoint.samples()])


def _beats(endpoint: HeartbeatReceiver) -> bool:
    endpoint.listen(time.time() - time.monotonic())
    return endpoint.from_heartbeat


def _autopilot(endpoint: MavlinkClient) -> bool:
    endpoint.keep_alive(time.monotonic())
    endpoint.receive(0.0)
    return endpoint.peer is not None
