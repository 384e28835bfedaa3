"""The guard flies when the pilot's process does not: it streams a descent, whatever the vehicle was doing."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.link.msp.codec import MspCodec
from gate_racer.link.msp.descent import Descent
from gate_racer.link.msp.framing import Direction, Frame, pack
from gate_racer.link.msp.guard import HELD_S, SILENT_S, StickWatch, bring_down
from gate_racer.link.msp.line import LATE_S, MspLine, neutral
from gate_racer.link.msp.messages import Code, RawAttitude
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.link.msp.sticks import sticks_by_rates
from gate_racer.sim.betaflight.pilot import HANDOVER_S
from gate_racer.sim.betaflight.port import StationPort
from gate_racer.sim.betaflight.station import BetaflightStation
from gate_racer.sim.worlds.deviations import Deviations, ImuDeviation, PlantDeviation
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Bounds, load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import matrix
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT

PROFILE = load_betaflight("betaflight")
ARCHER = load_vehicle("archer")
HOVER = ARCHER.throttle.throttle(GRAVITY)
OFF = Deviations()
WORLDS = {
    "as believed": OFF,
    "a drained battery": Deviations(plant=PlantDeviation(thrust_scale=0.85)),
    "a strong vehicle": Deviations(plant=PlantDeviation(thrust_scale=1.2)),
    "late, and a biased IMU": Deviations(
        plant=PlantDeviation(command_delay_s=0.05), imu=ImuDeviation(accel_bias_m_s2=(0.2, -0.2, 0.2), noise_scale=3.0)
    ),
}


class Abandoned:
    """A vehicle in the air whose pilot has died, over the open end of the hall."""

    def __init__(self, deviations, climb_s, turn, throttle, seconds):
        track = load_track(ROOT / "tracks/pq.yaml")
        outside = replace(track.start, position_m=(-100.0, 0.0, -0.06))  # far from all gates
        track = replace(track, start=outside, bounds=Bounds((-200.0, -200.0, -100.0), (200.0, 200.0, 0.0)))
        world = World.of("abandoned", deviations, track, ARCHER)
        self.station = BetaflightStation(world, PROFILE, seed=0)
        self.port, self.descent = StationPort(self.station), Descent(PROFILE, HOVER)
        line = MspLine(self.port, PROFILE, PROFILE.stick_hz, clock=self.port.clock)
        while not self.station.simulator.armed:
            line.exchange(0.02)
        self.fly(line, neutral(PROFILE), HANDOVER_S + 0.1)
        self.fly(line, sticks_by_rates(PROFILE, (0.0, 0.0, 0.0), 1.5 * HOVER), climb_s)
        self.fly(line, sticks_by_rates(PROFILE, turn, throttle * HOVER), seconds)

    def fly(self, line, sticks, seconds):
        line.sticks, until = sticks, self.port.t + seconds
        while self.port.t < until:
            for t, message in line.exchange(0.02):
                self.descent.receive(message, t)

    @property
    def truth(self):
        return self.station.simulator.truth


DYING = {
    "it climbs": (1.0, (0.0, 0.0, 0.0), 1.2, 0.4),
    "it rolls": (1.0, (4.0, 0.0, 0.0), 1.3, 0.3),
    "it is thrown over": (2.0, (0.0, -6.0, 0.0), 1.3, 0.5),
    "it turns and leans": (1.0, (1.0, 1.0, 4.0), 1.5, 0.5),
}


CASES = [
    ("it climbs", "a strong vehicle"),
    ("it rolls", "a drained battery"),
    ("it is thrown over", "as believed"),
    ("it turns and leans", "late, and a biased IMU"),
]


@pytest.mark.parametrize(("dying", "world"), CASES)
def test_whatever_it_was_doing_it_comes_down_upright_and_slowly_and_is_switched_off(dying, world):
    vehicle, path = Abandoned(WORLDS[world], *DYING[dying]), []
    serve = vehicle.station.tick

    def watched():
        path.append((vehicle.truth.p_wb[2], vehicle.truth.x[9], matrix(vehicle.truth.q_wb)[2, 2]))
        return serve()

    vehicle.station.tick = watched
    bring_down(vehicle.port, PROFILE, vehicle.descent, vehicle.port.clock)
    down, sinks, upright = np.array(path).T
    touched = int((down > -0.3).argmax())
    assert touched and sinks[touched] < 3.0 and upright[touched] > 0.9
    assert not vehicle.station.controller.armed


def test_who_is_silent_with_the_throttle_up_has_left_the_vehicle_and_who_keeps_it_low_may_go():
    watch, codec = StickWatch(PROFILE, HOVER), MspCodec()
    watch.said(codec.sticks(neutral(PROFILE)), 0.0)
    assert not watch.carries and not watch.silent(10.0)
    watch.said(codec.sticks(sticks_by_rates(PROFILE, (1.0, -3.0, 0.5), HOVER)), 10.0)
    assert watch.carries and not watch.silent(10.0 + 0.9 * SILENT_S) and watch.silent(10.0 + 1.1 * SILENT_S)
    held = codec.sticks(sticks_by_rates(PROFILE, (0.0, 0.0, 0.0), HOVER)) + codec.poll(PROFILE.polled)
    assert watch.held(10.0 + 0.9 * HELD_S) == b"" and watch.held(10.0 + 1.1 * HELD_S) == held
    assert watch.held(10.0 + 1.2 * HELD_S) == b"", "once in that time will do"
    watch.said(codec.request(Code.ATTITUDE), 10.0 + SILENT_S)
    assert watch.silent(10.0 + 1.1 * SILENT_S), "requests fly nothing"
    watch.said(codec.sticks(neutral(PROFILE)), 11.0)
    assert not watch.carries and not watch.silent(20.0)


def test_an_answer_that_has_waited_for_a_late_reader_is_dropped_for_nobody_knows_its_time():
    answer = pack(Frame(Code.ATTITUDE, RawAttitude(0, 0, 0).encode(), Direction.ANSWER))
    port = SimpleNamespace(read=lambda _: answer, write=lambda _: None)
    times = iter([0.0, *([0.01] * 3), *([0.02 + 2 * LATE_S] * 3), *([0.03 + 2 * LATE_S] * 3)])
    line = MspLine(port, PROFILE, PROFILE.stick_hz, clock=lambda: next(times))
    assert [len(line.exchange(0.02)) for _ in range(3)] == [1, 0, 1] and line.undated == 1
