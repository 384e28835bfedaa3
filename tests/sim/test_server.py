"""Lock-step, clients of all kinds, what no bytes can do, and the end of a simulator whose flight has ended."""

import contextlib
import math
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pymavlink.dialects.v20 import common as dialect
from pymavlink.generator.mavcrc import x25crc

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import UNASKED, Ack, Arm, Farewell, Heartbeat, Imu, LocalPosition, PositionTarget
from gate_racer.link.sockets import bind_udp
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.wire.server import Endpoint, LockstepServer
from gate_racer.sim.wire.station import CLIENT_SILENCE_S, COMMAND_RATE, Station
from gate_racer.sim.worlds.world import as_believed
from tests.conftest import ROOT
from tests.processes import running, survivors, waiting
from tests.sim.peer import DCL, HOVER, ME, OTHER, SPEC, Peer, of


@pytest.fixture
def lockstep(vq1, dcl):
    """Make the server of a race of one and its end of the link, a bound socket; its client is at an address."""

    def make(bound, client, track=vq1, **setup):
        race = MultiVehicleRace(as_believed(track, dcl), SPEC, 0, MultiVehicleSetup(**setup))
        endpoint = Endpoint(Station(race.simulators[0]), bound, client)
        return LockstepServer(race, [endpoint], [None]), endpoint

    return make


def serve(server, once, over):
    """Run a server until `over()` holds after a tick or a pause."""

    def stop(*_):
        server.stopped = over()

    server.run(once, stop)


def fly_by_position(ear, legs, over) -> None:
    """Arm, then ask for one point after the other, each once the last is near."""
    client, legs, armed = ClientCodec(SPEC), list(legs), False
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            datagram, server = ear.recvfrom(65535)
            for message in client.decode(datagram):
                armed = armed or isinstance(message, Ack)
                if isinstance(message, LocalPosition) and len(legs) > 1 and math.dist(legs[0], message.p_wb) < 1.0:
                    legs.pop(0)
                if isinstance(message, Imu):
                    said = PositionTarget(legs[0], UNASKED) if armed else Arm(True)
                    for answer in (client.heartbeat(), client.encode(said, message.t), client.hold(message.t)):
                        ear.sendto(answer, server)


def test_position_targets_fly_through_a_gate_over_udp_in_lock_step(vq1, lockstep):
    gate, track, over = vq1.gates[0], replace(vq1, gates=vq1.gates[:1]), threading.Event()
    legs = [tuple(gate.p_wg + ahead * gate.R_wg[:, 0]) for ahead in (-4.0, 1.5)]
    with bind_udp("127.0.0.1", 0) as bound, bind_udp("127.0.0.1", 0) as ear:
        ear.settimeout(0.5)
        server, endpoint = lockstep(bound, ear.getsockname(), track, pose=True)
        client = threading.Thread(target=fly_by_position, args=(ear, legs, over))
        client.start()
        try:
            serve(server, True, lambda: endpoint.station.simulator.t > 120)
        finally:
            over.set()
            client.join()
    referee = endpoint.station.simulator.referee
    race, told = referee.race, referee.violations
    assert race.status is RunStatus.FINISHED and min(race.gate_margins_m) > 0.4, race
    assert told.keys() == {COMMAND_RATE}, "it answers every sample with a set-point, 120 times a second"


def test_time_stands_until_the_sample_is_answered_by_its_stamp(vq1, dcl):
    station, client = Station(Simulator(as_believed(vq1, dcl), SPEC, 0)), ClientCodec(SPEC)
    station.tick()
    t = station.simulator.t
    assert not station.answered
    for stale in (t - 1.0, t + 1.0, 4e6):
        station.receive(client.hold(stale), ME, 0.0)
        assert not station.answered
    station.receive(client.hold(t), ME, 0.0)
    assert station.answered
    station.tick()
    assert not station.answered
    station.receive(client.encode(HOVER, station.simulator.t), ME, 0.0)
    assert station.answered


def test_a_silent_client_is_told_the_tick_again_and_time_stands(lockstep):
    with bind_udp("127.0.0.1", 0) as bound, bind_udp("127.0.0.1", 0) as ear:
        ear.settimeout(5.0)
        server, endpoint = lockstep(bound, ear.getsockname())
        serve(server, False, lambda: server.pauses >= 2)
        said = [ear.recv(300) for _ in range(5)]
    assert endpoint.station.simulator.count == 1
    first, beat, again = said[:2], said[2], said[3:]
    assert ClientCodec(SPEC).decode(beat) == [Heartbeat(0.0, False)], "first of all, so that who comes late can meet it"
    assert [packet[7:-2] for packet in first] == [packet[7:-2] for packet in again]


@pytest.mark.parametrize("profile", [SPEC, DCL], ids=lambda profile: profile.name)
def test_the_same_seed_and_commands_give_the_same_bytes(peer, profile):
    def flight(seed):
        pilot = peer(profile, seed=seed, pose=True)
        pilot.beat()
        for n in range(60):
            pilot.ticks(0.1)
            if n == 50:
                pilot.say(Arm(True))
            if n > 50:
                pilot.say(replace(HOVER, omega=(0.1, -0.1, n / 100)))
        return pilot.sent

    assert flight(3) == flight(3) != flight(4)


def test_one_client_commands_until_it_falls_silent(vq1, dcl):
    station, client = Station(Simulator(as_believed(vq1, dcl), SPEC, 0)), ClientCodec(SPEC)
    station.receive(client.heartbeat(), ME, 0.0)
    station.receive(client.encode(Arm(True), 0.0), OTHER, 1.0)
    assert not station.simulator.armed and station.foreign == 1
    station.receive(client.encode(Arm(True), 0.0), OTHER, CLIENT_SILENCE_S + 0.1)
    assert station.simulator.armed


def test_the_receiver_of_the_telemetry_may_take_over(vq1, dcl):
    station, client = Station(Simulator(as_believed(vq1, dcl), SPEC, 0), client=ME), ClientCodec(SPEC)
    for now in range(20):
        station.receive(client.heartbeat(), OTHER, float(now))
    station.receive(client.encode(Arm(True), 0.0), ME, 20.0)
    assert station.simulator.armed
    station.receive(client.encode(Arm(False), 0.0), OTHER, 20.1)
    assert station.simulator.armed and station.foreign == 1


def test_only_the_clients_host_is_heard_and_others_are_told_of(lockstep):
    client = ClientCodec(SPEC)
    with bind_udp("0.0.0.0", 0) as bound, bind_udp("127.0.0.2", 0) as stranger:
        server, endpoint = lockstep(bound, ("127.0.0.1", 14550))
        for _ in range(3):
            stranger.sendto(client.encode(Arm(True), 0.0), ("127.0.0.1", bound.getsockname()[1]))
        serve(server, False, lambda: True)
    assert not endpoint.station.simulator.armed and endpoint.foreign_datagrams == {"127.0.0.2": 3}


def packet(message_id: int, payload: bytes, crc_extra: int) -> bytes:
    """A MAVLink 2 packet with a right checksum, whatever is in it."""
    head = bytes([len(payload), 0, 0, 0, 255, 190]) + message_id.to_bytes(3, "little")
    crc = x25crc(head + payload)
    crc.accumulate(bytes([crc_extra]))
    return b"\xfd" + head + payload + crc.crc.to_bytes(2, "little")


@pytest.mark.parametrize("profile", [SPEC, DCL], ids=lambda profile: profile.name)
def test_no_packet_of_any_kind_upsets_the_vehicle(vq1, dcl, profile):
    """Every message of the dialect with random fields, cut, padded or from a stranger, while it flies."""
    rng, pilot = random.Random(0), Peer(vq1, dcl, profile)
    pilot.beat()
    pilot.ticks(5.0)
    pilot.say(Arm(True))
    pilot.say(HOVER)
    kinds = [(number, kind.crc_extra) for number, kind in dialect.mavlink_map.items()]
    frequent = [(82, 49), (84, 143), (76, 152), (75, 158), (11, 89), (111, 34), (2, 137)]
    for n in range(3000):
        number, crc_extra = rng.choice(frequent if n % 2 else kinds)
        payload = bytearray(rng.randbytes(rng.choice((0, 1, 20, 39, 53, 255))))
        if rng.random() < 0.5 and len(payload) > 32:  # NaN, infinity and zero where numbers are
            payload[:32] = rng.choice((b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\0\0\0\0", b"\xff\xff\x7f\x7f")) * 8
        datagram = packet(number, bytes(payload), crc_extra)
        cut = rng.choice((len(datagram),) * 3 + (rng.randrange(len(datagram)),))
        pilot.station.receive(datagram[:cut] + rng.randbytes(rng.choice((0, 0, 7))), ME if n % 9 else OTHER, 0.0)
        if pilot.simulator.referee.race.over:
            pilot.simulator.reset()
        if not pilot.simulator.armed:
            pilot.say(Arm(True))
        if n % 10 == 0:
            received = pilot.ticks(1 / 120)
            assert np.isfinite(pilot.simulator.truth.x).all() and np.isfinite(pilot.simulator.truth.accel_b).all()
            assert all(np.isfinite(imu.accel + imu.gyro).all() for imu in of(Imu, received))
    counters = pilot.station.counters
    assert counters.malformed and counters.unsupported and counters.invalid and counters.wrong_target
    assert pilot.station.foreign


def test_a_client_that_arms_and_falls_silent_ends_the_only_run(lockstep, monkeypatch):
    """After 10 s, as docs/reliability.md says, on a clock that runs while it is waited for."""
    client, now = ClientCodec(SPEC), [0.0]
    monkeypatch.setattr("gate_racer.sim.wire.server.time", SimpleNamespace(monotonic=lambda: now[0]))
    with bind_udp("127.0.0.1", 0) as ear, bind_udp("127.0.0.1", 0) as bound:
        ear.sendto(client.encode(Arm(True), 0.0), bound.getsockname())
        server, endpoint = lockstep(bound, ear.getsockname())
        listen = server._listen

        def pass_by(until):
            if heard := listen(now[0]):
                return heard
            now[0] = until
            return False

        monkeypatch.setattr(server, "_listen", pass_by)
        server.run(True, lambda _: None)
        said = [message for datagram in waiting(ear) for message in client.decode(datagram)]
    race = endpoint.station.simulator.referee.race
    assert race.status is RunStatus.ABORTED and race.cause == "the client stopped answering"
    assert said[-1] == Farewell(said[-1].t, "aborted: the client stopped answering")
    assert now[0] == pytest.approx(10.0, abs=0.6)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs processes by session")
def test_an_orphaned_simulator_ends_by_itself():
    with subprocess.Popen([sys.executable, "-m", "tests.race_orphan"], cwd=ROOT, stdout=subprocess.PIPE) as parent:
        try:
            simulator = int(parent.stdout.readline())
            until = time.monotonic() + 60
            while len(running(simulator)) < 2 and time.monotonic() < until:
                time.sleep(0.05)  # until it draws images in a process of its own
            assert len(running(simulator)) >= 2
        finally:
            parent.kill()
    assert not survivors(simulator)
