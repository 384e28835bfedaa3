"""The handover, rehearsed with propellers off: on a simulated aircraft's own clock, and message by message."""

from dataclasses import replace

import pytest

from gate_racer.field.preflight.run import STEP_US, Rehearsal, RehearsalStage, rehearse
from gate_racer.field.probe.check import CheckVerdict
from gate_racer.link.msp.client import MspLine, neutral
from gate_racer.link.msp.messages import Channels, DisableFlag, StatusEx
from gate_racer.link.msp.profile import OWN_ORDER, STICKS, load_betaflight
from gate_racer.sim.betaflight.station import BetaflightStation, SafetyPilot, StationPort
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle

BF = replace(load_betaflight("betaflight"), boot_s=1.0)
THROTTLE = BF.channel("T")


class WatchedPort(StationPort):
    """Port that records the largest throttle that the flight controller ever received."""

    most_us = 0.0

    def read(self, timeout_s):
        data = super().read(timeout_s)
        self.most_us = max(self.most_us, self._station.controller.receiver.channels[THROTTLE])
        return data


def rehearsed(patience_s, limit_s=20.0, wired=BF):
    """A rehearsal with a simulated aircraft `wired` so, what was said, and the port."""
    world, pilot = as_believed(load_track("pq"), load_vehicle("archer")), SafetyPilot(wired, patience_s=patience_s)
    station = BetaflightStation(world, wired, 0, pilot=pilot)
    port, said = WatchedPort(station), []
    line = MspLine(port, BF, BF.stick_hz, clock=port.clock)
    return rehearse(line, BF, limit_s, said.append, port.clock), said, port


def test_a_handover_is_rehearsed_stick_by_stick_and_the_throttle_stays_low():
    rehearsal, said, port = rehearsed(patience_s=3.0)
    assert rehearsal.cause == "" and rehearsal.stage is RehearsalStage.OVER
    assert said == [f"{stage.value} ..." for stage in RehearsalStage if stage is not RehearsalStage.OVER]
    names = [check.name for check in rehearsal.checks]
    assert names[0] == "override to effect of sticks, ms" and float(rehearsal.checks[0].found) < 100.0
    assert names[1:] == [f"{name} stick appears on" for name in ("roll", "pitch", "yaw", "throttle")]
    assert all(check.verdict is CheckVerdict.PASS for check in rehearsal.checks)
    assert port.most_us == 1000 + STEP_US < BF.throttle.min_check_us


ENDS = [
    ({"patience_s": 0.05}, "taken back before every stick was tried"),
    ({"patience_s": 100, "limit_s": 5.0}, "not done within 5 s: take back: switch the override off"),
    ({"patience_s": 10, "wired": replace(BF, channel_map="EATR")}, "the roll stick appeared on: pitch"),
]


@pytest.mark.parametrize(("how", "cause"), ENDS)
def test_it_ends_where_it_cannot_be_done(how, cause):
    rehearsal, _, port = rehearsed(**how)
    assert rehearsal.cause == cause and port.most_us <= 1000 + STEP_US


def received(rehearsal, t, armed, handed_over, **off):
    """Feed the flight controller's state at t; sticks by letter are deflected."""
    sticks = [(1000 if letter == "T" else 1500) + off.get(letter, 0) for letter in OWN_ORDER]
    aux = [1000] * 8
    aux[BF.aux.override.channel - 1] = 1900 if handed_over else 1000
    rehearsal.receive(StatusEx(int(armed), DisableFlag(0)), t)
    rehearsal.receive(Channels((*sticks, *aux)), t)


UNEXPECTED = [
    (True, {"T": 100}, "the throttle is up: take back at once"),
    (True, {}, "the roll stick appeared on: none"),
    (True, {"A": 20, "R": 20}, "the roll stick appeared on: roll and yaw"),
    (True, {"A": -20}, "the roll stick appeared on: roll"),
    (False, {}, "disarmed too early"),
]


@pytest.mark.parametrize(("armed", "off", "cause"), UNEXPECTED)
def test_an_unexpected_state_ends_the_rehearsal_with_neutral_sticks(armed, off, cause):
    rehearsal = Rehearsal(BF, 0.0)
    received(rehearsal, 0.0, True, False)
    assert rehearsal.stage is RehearsalStage.HAND_OVER and len(rehearsal.sticks) == STICKS
    received(rehearsal, 1.0, True, True)
    assert rehearsal.stage is RehearsalStage.MOVE and rehearsal.sticks != neutral(BF)
    received(rehearsal, 2.1, armed, True, **off)
    assert rehearsal.stage is RehearsalStage.OVER and rehearsal.cause.startswith(cause)
    assert rehearsal.sticks == neutral(BF)
