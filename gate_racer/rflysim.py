"""Checks of a running RflySim: each part that a flight needs is asked, and a remedy named where it is silent."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from gate_racer.common.errors import one_line
from gate_racer.doctor import Finding
from gate_racer.link.profile import load_profile
from gate_racer.link.rflysim.client import OPTIONS, SensorSocket, parse_server
from gate_racer.link.rflysim.config import load_sensors
from gate_racer.link.rflysim.desk import HEARTBEAT_PORT, HeartbeatReceiver, ImuReceiver
from gate_racer.link.rflysim.request import SENSORS, SensorRequest, imu_port
from gate_racer.link.sockets import ANYWHERE, Address, LinkError, UdpEndpoint, listening_host, reachable
from gate_racer.link.udp import MavlinkClient

LISTEN_S = 5.0  # s, longest wait for all parts: five requests (chosen)
POLL_S, IMU_HZ = 0.02, 100  # s between two looks; rate asked for


# What is found as long as a part is silent, how it is opened, and how it is noticed, which also asks again where that is due.
Part = tuple[Finding, Callable[[], UdpEndpoint], Callable[[Any], bool]]


def examine_rflysim(url: str, listen_s: float = LISTEN_S) -> list[Finding]:
    """Return whether each part is heard within listen_s; option `config` of the URL names the sensors.

    Raises:
        UserError: malformed URL or Config.json, or an unknown host.
    """
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
    remedy = (
        f"no frame from {host}:{port}: is RflySim3D running there, is SendProtocol[1..4] 0 or this machine, and does its"
        " firewall let UDP pass? From WSL set SendProtocol[6] to 1400"
    )
    for sensor in sensors:
        finding = silent(f"sensor {sensor.seq_id}, {SENSORS[sensor.type_id].name}", detail=remedy, needed=True)
        yield finding, partial(SensorSocket, sensor, server, lambda line: None), _samples
    remedy = (
        f"nothing on UDP {HEARTBEAT_PORT}: is CopterSim running, and IS_BROADCAST this machine? Stamps are estimated"
    )
    yield silent("CopterSim's heartbeat", detail=remedy), partial(HeartbeatReceiver, server, copter), _beats
    remedy = f"no answer from UDP {imu_port(copter)}; only the bridge's --imu needs it"
    yield silent("CopterSim's IMU", detail=remedy), partial(ImuReceiver, host, IMU_HZ, copter), _samples
    remedy = (
        f"no HEARTBEAT from {host}:{profile.simulator_port}: is UDPSIMMODE Mavlink_Full, and IS_BROADCAST this machine?"
    )
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
