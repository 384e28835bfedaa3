"""A start that refuses, on an aircraft that is read, compared and written into one file; the handover is rehearsed."""

import re
import time
from contextlib import closing
from dataclasses import astuple, replace

import pytest

from gate_racer.common.errors import UserError
from gate_racer.field.preflight import cli, run
from gate_racer.field.preflight.run import STEP_US, Rehearsal, RehearsalStage, at_rest, rehearse
from gate_racer.field.probe.check import CheckVerdict
from gate_racer.link.msp import preflight as file_of
from gate_racer.link.msp.client import MspLine, neutral
from gate_racer.link.msp.messages import Channels, Code, DisableFlag, StatusEx
from gate_racer.link.msp.ports import open_port
from gate_racer.link.msp.preflight import changes, load_preflight, read_steady
from gate_racer.link.msp.profile import OWN_ORDER, STICKS, load_betaflight
from gate_racer.race import run_mpc
from gate_racer.sim.betaflight.flight_controller import settings
from gate_racer.sim.betaflight.station import BetaflightStation, SafetyPilot, StationPort
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.preflights import LEVEL, running

BF, ARCHER = load_betaflight("betaflight"), load_vehicle("archer")
OWN = replace(BF, rates=replace(BF.rates, roll=replace(BF.rates.roll, rate=80)))
SWITCHED = replace(BF, aux=replace(BF.aux, override=replace(BF.aux.override, channel=6)))


def preflight(*arguments):
    return run.run(cli.parser().parse_args(list(map(str, arguments))))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return the file that preflight writes for an aircraft that matches its profile."""
    path = tmp_path_factory.mktemp("preflight") / "archer.yaml"
    with running(BF) as where, pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "LATE", 100.0)  # a busy machine is no slow line
        assert preflight(where, "--set", "seconds=1", "--out", path) == 0
    return path


def test_the_file_holds_what_the_aircraft_is_set_to(file):
    told = load_preflight(file)
    assert told.constants.firmware == "BTFL 4.4.3" and told.constants.channel_map == "AETR1234"
    modes = [(n, k, 1700, 2100) for n, k in ((0, 1), (1, 2), (50, 5))]
    assert [astuple(mode) for mode in told.constants.modes] == modes
    assert told.constants.rates == BF.rates and told.constants.receiver.min_check_us == 1050
    assert told.at_rest.accel_m_s2[2] == pytest.approx(-9.81, abs=0.5) and told.line.interval_p95_s > 0.0
    file_of.require_meant(file, told, BF, ARCHER)


def test_an_aircraft_that_contradicts_the_profile_gets_no_file(tmp_path, capsys):
    own = replace(OWN, aux=SWITCHED.aux)
    with running(own) as where:
        keys = "seconds=1", f"own_profile={tmp_path / 'mine.yaml'}"
        assert preflight(where, "--out", tmp_path / "own.yaml", "--set", *keys) == 1
    told = capsys.readouterr().out
    assert re.search(r"differs +rates of roll", told) and re.search(r"differs +switch: override", told)
    assert "no file is written" in told
    assert "BTFL 4.4.3, MSP 1.45, board STM32H743" in told and "with 40 Hz of sticks:" in told
    (written,) = tmp_path.iterdir()
    read = load_betaflight(str(written))
    assert read == replace(BF, name="mine", source=read.source, rates=own.rates)


WRONG_AT_REST = {
    "specific force, m/s^2": replace(LEVEL, accel_m_s2=(0.0, 0.0, -4.9)),
    "specific force points": replace(LEVEL, accel_m_s2=(0.0, 0.0, 9.81)),
    "gyro bias, rad/s": replace(LEVEL, gyro_rad_s=(0.0, -0.2, 0.0)),
    "noise of accel, m/s^2": replace(LEVEL, accel_noise_m_s2=5.0),
    "noise of gyro, rad/s": replace(LEVEL, gyro_noise_rad_s=0.5),
    "roll by gravity, deg": replace(LEVEL, accel_m_s2=(0.0, -1.7, -9.66), roll_rad=-0.174),
    "pitch by gravity, deg": replace(LEVEL, accel_m_s2=(1.7, 0.0, -9.66), pitch_rad=-0.174),
}


@pytest.mark.parametrize("name, found", WRONG_AT_REST.items(), ids=WRONG_AT_REST)
def test_an_aircraft_at_rest_shows_signs_scales_and_noise(name, found):
    """The last two: a sign of the flight controller's angles that is not the accelerometer's."""
    assert all(check.verdict is CheckVerdict.PASS for check in at_rest(LEVEL, ARCHER.imu))
    assert name in [check.name for check in at_rest(found, ARCHER.imu) if check.verdict is CheckVerdict.DIFFERS]


class Told:
    """A line on which an aircraft's settings are told; `drifting` is told otherwise every other time."""

    def __init__(self, armed=False, aux=(), silent=(), drifting=None, profile=BF):
        us = [1500] * STICKS + [1000] * 10
        for channel in aux:
            us[STICKS + channel - 1] = 1900
        now = {Code.STATUS_EX: StatusEx(int(armed), DisableFlag(0)), Code.RC: Channels(tuple(us))}
        self._messages = settings(profile) | now
        self._silent, self._drifting, self._asked = silent, drifting, 0

    def ask(self, code, timeout_s):
        if code == Code.RC_TUNING and self._drifting is not None:
            self._asked += 1
            return self._messages[code] if self._asked % 2 else self._drifting
        return None if code in self._silent else self._messages.get(code)


REFUSED = {
    "armed": (Told(armed=True), "is armed"),
    "override on": (Told(aux=[5]), "override is on"),
    "the aircraft's own override on": (Told(aux=[6], profile=SWITCHED), "override is on"),
    "status not told": (Told(silent=[Code.STATUS_EX]), "does not report whether it is armed"),
    "switches not told": (Told(silent=[Code.RC]), "does not report whether it is armed"),
    "a setting not told": (Told(silent=[Code.MODE_RANGES]), "does not answer MSP_MODE_RANGES"),
    "a drift": (Told(drifting=settings(OWN)[Code.RC_TUNING]), r"two readings differ: tuning\.rate_roll was 75, is 80"),
}


@pytest.mark.parametrize("line, words", REFUSED.values(), ids=REFUSED)
def test_an_aircraft_that_is_not_safe_to_read_is_refused(line, words):
    assert isinstance(read_steady(Told(), BF), file_of.AircraftConstants)
    with pytest.raises(UserError, match=words):
        read_steady(line, BF)


class SharedLine:
    """A line with bytes of an earlier program, `silent_s` after which another client speaks."""

    def __init__(self, silent_s):
        self.left, self.speaks_t = [b"old"], time.monotonic() + silent_s

    def read(self, timeout_s):
        time.sleep(timeout_s)
        return self.left.pop() if self.left else b"$M" * (time.monotonic() > self.speaks_t)


def test_a_line_on_which_another_client_speaks_is_refused():
    file_of.require_alone(SharedLine(9.0), 0.05)
    with pytest.raises(UserError, match="end the other client on this line"):
        file_of.require_alone(SharedLine(0.01), 0.05)


def test_changes_since_the_file_are_named(file):
    words = r"archer\.yaml: tuning\.rate_roll was 75, is 80: run preflight again"
    with running(OWN) as where, closing(open_port(where, BF.baud)) as port, pytest.raises(UserError, match=words):
        file_of.require_unchanged(port, file, load_preflight(file), BF)
    before = read_steady(Told(), BF)
    assert changes(before, before) == []
    assert changes(before, replace(before, modes=before.modes[:2]))[0] == "modes.2.mode was 50, is missing"


def test_a_file_changed_by_hand_is_refused(file, tmp_path):
    bent = tmp_path / "bent.yaml"
    bent.write_text(file.read_text().replace("rate_roll: 75", "rate_roll: 80"))
    assert bent.read_text() != file.read_text()
    with pytest.raises(UserError, match=r"bent\.yaml: sha256: does not match the file"):
        load_preflight(bent)


@pytest.mark.parametrize(
    ("profile", "vehicle", "words"),
    [
        (OWN, ARCHER, "profile: made for betaflight, which has changed since"),
        (BF, load_vehicle("dcl"), "vehicle: made for archer, which is not dcl"),
    ],
)
def test_another_profile_or_vehicle_than_the_files_is_refused(profile, vehicle, words, file):
    with pytest.raises(UserError, match=words):
        file_of.require_meant(file, load_preflight(file), profile, vehicle)


STARTS = {
    "what may be real, without a file": (
        ["link.msp=/dev/ttyNONE", "link.i_have_read=docs/safety.md"],
        "may be a real aircraft: run preflight --out FILE, then add --set link.preflight=FILE",
    ),
    "a file and no line": (["link.preflight=FILE"], "link.preflight: needs --live and link.msp"),
    "a file of another vehicle": (["link.msp=tcp:127.0.0.1:1", "link.preflight=FILE"], "which is not swift"),
    "a file that is none": (["link.msp=tcp:127.0.0.1:1", "link.preflight=docs/none.yaml"], "cannot be read"),
}


@pytest.mark.parametrize("arguments, words", STARTS.values(), ids=STARTS)
def test_a_flight_is_refused_before_anything_is_planned(arguments, words, file):
    given = [word for text in arguments for word in ("--set", text.replace("FILE", str(file)))]
    live = ["--live"] * any("link.msp" in text for text in arguments)
    with pytest.raises(UserError, match=words):
        words = ["pq", "--profile", "betaflight", "--vehicle", "swift", *live, *given]
        run_mpc.run(run_mpc.parser().parse_args(words))


def test_no_line_is_opened_without_consent():
    with pytest.raises(UserError, match=r"a real aircraft: read docs/safety\.md, then add --set link\.i_have_rea"):
        preflight("/dev/ttyTHS1")


# The handover, rehearsed with propellers off: on a simulated aircraft's own clock, and message by message.


BOOTED = replace(load_betaflight("betaflight"), boot_s=1.0)
THROTTLE = BOOTED.channel("T")


class WatchedPort(StationPort):
    """Port that records the largest throttle that the flight controller ever received."""

    most_us = 0.0

    def read(self, timeout_s):
        data = super().read(timeout_s)
        self.most_us = max(self.most_us, self._station.controller.receiver.channels[THROTTLE])
        return data


def rehearsed(patience_s, limit_s=20.0, wired=BOOTED):
    """A rehearsal with a simulated aircraft `wired` so, what was said, and the port."""
    world, pilot = as_believed(load_track("pq"), load_vehicle("archer")), SafetyPilot(wired, patience_s=patience_s)
    station = BetaflightStation(world, wired, 0, pilot=pilot)
    port, said = WatchedPort(station), []
    line = MspLine(port, BOOTED, BOOTED.stick_hz, clock=port.clock)
    return rehearse(line, BOOTED, limit_s, said.append, port.clock), said, port


def test_a_handover_is_rehearsed_stick_by_stick_and_the_throttle_stays_low():
    rehearsal, said, port = rehearsed(patience_s=3.0)
    assert rehearsal.cause == "" and rehearsal.stage is RehearsalStage.OVER
    assert said == [f"{stage.value} ..." for stage in RehearsalStage if stage is not RehearsalStage.OVER]
    names = [check.name for check in rehearsal.checks]
    assert names[0] == "override to effect of sticks, ms" and float(rehearsal.checks[0].found) < 100.0
    assert names[1:] == [f"{name} stick appears on" for name in ("roll", "pitch", "yaw", "throttle")]
    assert all(check.verdict is CheckVerdict.PASS for check in rehearsal.checks)
    assert port.most_us == 1000 + STEP_US < BOOTED.throttle.min_check_us


REHEARSAL_ENDS = [
    ({"patience_s": 0.05}, "taken back before every stick was tried"),
    ({"patience_s": 100, "limit_s": 5.0}, "not done within 5 s: take back: switch the override off"),
    ({"patience_s": 10, "wired": replace(BOOTED, channel_map="EATR")}, "the roll stick appeared on: pitch"),
]


@pytest.mark.parametrize(("how", "cause"), REHEARSAL_ENDS)
def test_it_ends_where_it_cannot_be_done(how, cause):
    rehearsal, _, port = rehearsed(**how)
    assert rehearsal.cause == cause and port.most_us <= 1000 + STEP_US


def feed(rehearsal, t, armed, handed_over, **off):
    """Feed the flight controller's state at t; sticks by letter are deflected."""
    sticks = [(1000 if letter == "T" else 1500) + off.get(letter, 0) for letter in OWN_ORDER]
    aux = [1000] * 8
    aux[BOOTED.aux.override.channel - 1] = 1900 if handed_over else 1000
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
    rehearsal = Rehearsal(BOOTED, 0.0)
    feed(rehearsal, 0.0, True, False)
    assert rehearsal.stage is RehearsalStage.HAND_OVER and len(rehearsal.sticks) == STICKS
    feed(rehearsal, 1.0, True, True)
    assert rehearsal.stage is RehearsalStage.MOVE and rehearsal.sticks != neutral(BOOTED)
    feed(rehearsal, 2.1, armed, True, **off)
    assert rehearsal.stage is RehearsalStage.OVER and rehearsal.cause.startswith(cause)
    assert rehearsal.sticks == neutral(BOOTED)
