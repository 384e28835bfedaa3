"""Races over UDP: ports of their own, time that waits for every client, and options that make no sense."""

import contextlib
import json
import threading
import time

import pytest

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import Arm, AttitudeTarget, Imu
from gate_racer.link.sockets import bind_udp
from gate_racer.race.race_sim import parser, run
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup
from gate_racer.sim.wire.server import Endpoint, LockstepServer, RealTimeServer
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import as_believed
from tests.sim.peer import SPEC


class NoCamera:
    def expose(self, exposure):
        return True


class Client:
    """Client on its own port that arms, then answers each IMU sample with the same set-point."""

    def __init__(self, throttle):
        self.ear = bind_udp("127.0.0.1", 0)
        self.ear.settimeout(0.05)
        self.codec, self.throttle, self.stamps = ClientCodec(SPEC), throttle, []
        self.mute = False

    def turn(self):
        """One datagram; whether there was one."""
        try:
            datagram, sender = self.ear.recvfrom(65535)
        except TimeoutError:
            return False
        for message in self.codec.decode(datagram):
            if isinstance(message, Imu) and not self.mute:
                if not self.stamps:
                    self.ear.sendto(self.codec.encode(Arm(True), message.t), sender)
                if message.t not in self.stamps:
                    self.stamps.append(message.t)
                target = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), self.throttle)
                self.ear.sendto(self.codec.encode(target, message.t), sender)
        return True


@contextlib.contextmanager
def racing(vq1, dcl, make):
    """A race of two behind sockets, its server and its clients."""
    race = MultiVehicleRace(as_believed(vq1, dcl), SPEC, 0, MultiVehicleSetup(pilots=2))
    with contextlib.ExitStack() as stack:
        clients = [Client(0.0), Client(0.9)]
        endpoints = []
        for simulator, client in zip(race.simulators, clients, strict=True):
            stack.callback(client.ear.close)
            bound = stack.enter_context(bind_udp("127.0.0.1", 0))
            endpoints.append(Endpoint(Station(simulator), bound, client.ear.getsockname()))
        server = make(race, endpoints)
        thread = threading.Thread(target=server.run, args=(True, lambda lag: None))
        thread.start()
        try:
            yield race, clients
        finally:
            server.stopped = True
            thread.join()


def test_time_waits_for_every_client(vq1, dcl):
    with racing(vq1, dcl, lambda race, endpoints: LockstepServer(race, endpoints, [None, None])) as (race, clients):
        while race.t < 0.6:
            assert any([client.turn() for client in clients])
        clients[1].mute = True
        while clients[1].turn():
            pass
        for _ in range(40):  # time stands: the one that still answers moves nothing
            clients[0].turn()
        stood = race.t
        for _ in range(10):
            clients[0].turn()
        assert race.t == stood
        assert race.simulators[0].landed and not race.simulators[1].landed
        go = {simulator.referee.race.go_t for simulator in race.simulators}
        assert len(go) == 1 and None not in go


def test_in_real_time_both_fly_on_one_clock(vq1, dcl):
    make = lambda race, endpoints: RealTimeServer(race, endpoints, [NoCamera(), NoCamera()], 5.0)  # noqa: E731
    with racing(vq1, dcl, make) as (race, clients):
        end = time.monotonic() + 20.0
        while race.simulators[1].landed and time.monotonic() < end:
            for client in clients:
                client.turn()
        assert not race.simulators[1].landed and race.simulators[0].landed
        assert len({simulator.count for simulator in race.simulators}) <= 2, "one may be a tick ahead just now"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pilots", "0"], "pilots 0: must lie between 1 and 8"),
        (["--pilots", "9"], "pilots 9: must lie between 1 and 8"),
        (["--set", "rivals.spacing_m=2"], "rivals: needs --pilots"),
        (["--set", "rivals.publish_states=true"], "rivals: needs --pilots"),
        (["--pilots", "2", "--set", "rivals.spacing_m=99"], "outside the bounds"),
        (["--pilots", "2", "--set", "rivals.spacing_m=-1"], "spacing -1 m: must be positive"),
        (["--pilots", "2", "--set", "record=x.mcap"], "record: cannot be used with --pilots 2"),
        (["--pilots", "2", "--set", "link.vision_protocol=rflysim"], "link.vision_protocol: cannot be used"),
        (["--pilots", "2", "--set", "rivals.rotor_radius_m=2"], "rotor_radius_m 2: must lie between"),
        (["--pilots", "2", "--set", "rivals.rotor_radius_m=0.06"], "has no `rotors` section"),
        (["--pilots", "2", "--profile", "betaflight"], "MSP profile"),
    ],
)
def test_what_a_race_of_several_cannot_be_is_said_in_a_line(options, said):
    with pytest.raises(Exception, match=said.replace("(", r"\(")) as raised:
        run(parser().parse_args(options))
    assert type(raised.value).__name__.endswith("Error") and "\n" not in str(raised.value)


def test_a_report_holds_the_order_and_the_contacts(vq1, dcl, tmp_path):
    from gate_racer.race.race_sim import MultiVehicleNarrator

    race = MultiVehicleRace(as_believed(vq1, dcl), SPEC, 0, MultiVehicleSetup(pilots=2))
    narrator = MultiVehicleNarrator(race, tmp_path / "race.json")
    for simulator in race.simulators:
        simulator.command(Arm(True))
    race.settle()
    for simulator in race.simulators:
        simulator.command(Arm(False))
    narrator(0.0)
    told = json.loads((tmp_path / "race.json").read_text())
    assert [one["status"] for one in told["standings"]] == ["aborted"] * 2 and told["contacts"] == []
