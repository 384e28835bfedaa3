"""A client's violations are reported once, counted, and disqualify if the referee is strict. VADR-TS-002, 4 to 6."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.messages import UNASKED, Arm, PositionTarget
from gate_racer.link.server import Fault
from gate_racer.race.serving import Narrator
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.report import read_report, report, write_report
from gate_racer.sim.wire.station import COMMAND_RATE, DISARMED, DROPPED, HEARTBEAT_RATE, LINK_LOSS
from gate_racer.vehicle.rotation import to_euler
from tests.mavlink import attitude_target, command_long, packed, position_target
from tests.sim.peer import DCL, HOVER, SPEC, Peer

HZ = SPEC.physics_hz
POSITION_ALONE = 3576  # mask of SET_POSITION_TARGET_LOCAL_NED
ON_PAD, ALOFT = replace(HOVER, throttle=0.1), replace(HOVER, throttle=0.4)


@pytest.fixture
def peer(vq1, dcl):
    return lambda profile=SPEC, **options: Peer(vq1, dcl, profile, **options)


def streaming(pilot, hz, seconds, command=ON_PAD):
    """Set-points at a rate, as evenly as the ticks allow."""
    begin = pilot.simulator.t
    sent = 0
    while pilot.simulator.t - begin < seconds:
        while sent < (pilot.simulator.t - begin) * hz:
            pilot.say(command)
            sent += 1
        pilot.ticks(1 / HZ)


def beating(pilot, gap_s, seconds):
    """Heartbeats with a gap between them, and set-points at 50 Hz."""
    for _ in range(round(seconds / gap_s)):
        pilot.beat()
        streaming(pilot, 50, gap_s)


def armed(pilot):
    pilot.beat()
    pilot.say(Arm(True))
    return pilot


@pytest.mark.parametrize(("gap_s", "told"), [(0.25, False), (0.5, False), (0.525, True), (0.7, True)])
def test_heartbeats_come_twice_a_second_at_least(peer, gap_s, told):
    pilot = armed(peer())
    beating(pilot, gap_s, 6.0)
    assert (HEARTBEAT_RATE in pilot.violations) == told, pilot.violations


def test_one_gap_counts_once_and_two_count_twice(peer):
    pilot = armed(peer())
    for _ in range(2):
        streaming(pilot, 50, 2.0)
        pilot.beat()
    assert pilot.violations == {HEARTBEAT_RATE: 2}


def test_a_client_disarmed_by_the_race_has_time_to_react(peer):
    pilot = armed(peer(replace(DCL, race=replace(DCL.race, disarm_at_go=True)), beats=True))
    pilot.ticks(0.1)
    assert pilot.simulator.armed
    pilot.ticks(DCL.race.lobby_s + DCL.race.countdown_s)
    assert not pilot.simulator.armed and pilot.race.status is RunStatus.RUNNING
    streaming(pilot, 50, 0.3)
    assert not pilot.violations
    streaming(pilot, 50, 0.5)
    assert DISARMED in pilot.violations
    pilot.say(Arm(True))
    pilot.ticks(0.1)
    assert pilot.simulator.armed and pilot.race.status is RunStatus.RUNNING


UNFLOWN = {
    "SET_ACTUATOR_CONTROL_TARGET": dialect.MAVLink_set_actuator_control_target_message(0, 0, 1, 1, [0.5] * 8),
    "MANUAL_CONTROL": dialect.MAVLink_manual_control_message(1, 0, 0, 500, 0, 0),
    "RC_CHANNELS_OVERRIDE": dialect.MAVLink_rc_channels_override_message(1, 1, *[1500] * 8),
    "SET_POSITION_TARGET_GLOBAL_INT": dialect.MAVLink_set_position_target_global_int_message(
        0, 1, 1, 5, 0, 0, 0, *[0.0] * 9
    ),
    "MAV_CMD_NAV_TAKEOFF": command_long(dialect.MAV_CMD_NAV_TAKEOFF),
    "MAV_CMD_DO_SET_ACTUATOR": command_long(dialect.MAV_CMD_DO_SET_ACTUATOR),
    "MAV_CMD_CONDITION_YAW": command_long(dialect.MAV_CMD_CONDITION_YAW),
}


@pytest.mark.parametrize("name", UNFLOWN)
@pytest.mark.parametrize("profile", [SPEC, DCL], ids=["spec", "dcl"])
def test_a_control_message_not_flown_is_named_once_and_counted(peer, profile, name, capsys):
    pilot, narrate = peer(profile, beats=True), Narrator(None)
    for _ in range(20):
        pilot.bytes(packed(UNFLOWN[name]))
        pilot.ticks(1 / HZ)
        narrate(pilot.simulator, 0.0)
    assert pilot.violations == {f"{DROPPED}: {Fault.MESSAGE}": 20}
    (said,) = capsys.readouterr().err.splitlines()
    assert name in said and "SET_ATTITUDE_TARGET" in said


@pytest.mark.parametrize("command", [dialect.MAV_CMD_SET_MESSAGE_INTERVAL, dialect.MAV_CMD_REQUEST_MESSAGE, 31010])
def test_a_command_that_moves_nothing_is_answered_and_not_judged(peer, command):
    pilot = peer(DCL)
    assert pilot.bytes(packed(command_long(command))) and not pilot.violations


LIMITED = {
    "velocity": (PositionTarget(UNASKED, (-12.0, 0.0, -1.0)), SPEC, "12.0 m/s is flown at 6 m/s"),
    "acceleration": (PositionTarget(UNASKED, UNASKED, a=(20.0, 0.0, 0.0)), SPEC, "limited"),
    "yaw": (PositionTarget((0.0, 0.0, -3.0), UNASKED, yaw_rate=0.5), DCL, "not followed"),
}


@pytest.mark.parametrize("field", LIMITED)
def test_an_altered_set_point_is_reported_and_never_disqualifies(peer, field, capsys):
    command, profile, reason = LIMITED[field]
    pilot, narrate = armed(peer(profile, beats=True, strict=True)), Narrator(None)
    for _ in range(3):
        pilot.say(command)
    narrate(pilot.simulator, 0.0)
    (said,) = capsys.readouterr().err.splitlines()
    assert reason in said and "VADR" not in said and not pilot.race.over
    assert pilot.violations == {f"not flown as sent: {field}": 3}


def test_heartbeats_are_judged_from_go_on(peer):
    pilot = peer()
    for _ in range(12):  # as MAVSDK's own, 1 Hz
        pilot.beat()
        pilot.ticks(1.0)
    armed(pilot)
    beating(pilot, 0.5, 6.0)
    assert not pilot.violations


DROPS = {
    Fault.MESSAGE: list(UNFLOWN.values()),
    Fault.MASK: [attitude_target(8), attitude_target(128 | 64 | 7), *map(position_target, (4095, 4096, 512))],
    Fault.FRAME: [position_target(POSITION_ALONE, frame) for frame in (0, 4, 20, 255)],
    Fault.NOT_FINITE: [
        attitude_target(128, thrust=math.nan),
        attitude_target(0, q=(math.inf, 0, 0, 0)),
        position_target(POSITION_ALONE, p=(math.nan, 0, 0)),
    ],
    Fault.VALUE: [attitude_target(0, q=(0, 0, 0, 0))],
    Fault.TARGET: [attitude_target(128, system=7)],
}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("strict", [False, True])
def test_each_kind_of_dropped_set_point_has_its_count_and_reason(peer, fault, strict):
    pilot = armed(peer(beats=True, strict=strict))
    for message in DROPS[fault]:
        pilot.bytes(packed(message))
    pilot.ticks(0.1)
    (violation,) = report(pilot.simulator).violations
    assert violation.rule == f"{DROPPED}: {fault}" and violation.reason
    assert violation.count == (1 if strict else len(DROPS[fault]))
    assert (pilot.race.status is RunStatus.DISQUALIFIED) == strict
    assert pilot.simulator.armed != strict


@pytest.mark.parametrize(
    ("rule", "act"),
    [
        (COMMAND_RATE, lambda pilot: streaming(armed(pilot), 200, 1.0)),
        (HEARTBEAT_RATE, lambda pilot: armed(pilot).ticks(0.7)),
        (DISARMED, lambda pilot: pilot.say(HOVER)),
    ],
)
def test_a_strict_referee_disqualifies_and_stops_the_motors(peer, rule, act):
    pilot = peer(strict=True)
    act(pilot)
    pilot.ticks(0.1)
    assert pilot.race.status is RunStatus.DISQUALIFIED and pilot.race.cause.startswith(rule)
    assert not pilot.simulator.armed
    pilot.say(Arm(True))
    pilot.ticks(0.1)
    assert not pilot.simulator.armed, "the run is over"
    pilot.simulator.reset()
    pilot.ticks(1.0)
    assert pilot.race.status is RunStatus.WAITING and not pilot.violations, "another one begins with a clean sheet"
    beating(armed(pilot), 0.4, 1.2)
    assert pilot.race.status is RunStatus.RUNNING and not pilot.violations


def test_each_rule_is_said_once_and_stands_in_the_report(peer, capsys, tmp_path):
    pilot = peer(beats=True)
    narrate = Narrator(None)
    for _ in range(40):
        pilot.say(HOVER)
        pilot.bytes(packed(position_target(POSITION_ALONE, frame=4)))
        pilot.ticks(1 / HZ)
        narrate(pilot.simulator, 0.0)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and all("VADR-TS-002" in line for line in said), said
    file = tmp_path / "report.json"
    write_report(file, report(pilot.simulator))
    assert {v.rule: v.count for v in read_report(file).violations} == {DISARMED: 40, f"{DROPPED}: {Fault.FRAME}": 40}


def aloft(pilot, seconds=1.0):
    """Climb, so that the vehicle is still rising at the client's last message."""
    armed(pilot)
    streaming(pilot, 50, seconds, ALOFT)
    pilot.beat()
    return pilot


def test_the_failsafe_sinks_until_the_next_set_point(peer):
    pilot = aloft(peer())
    assert pilot.simulator.truth.x[9] < -1, "it climbs"
    pilot.ticks(SPEC.failsafe.after_s + 2.0)
    assert LINK_LOSS in pilot.violations and HEARTBEAT_RATE in pilot.violations
    v_w = pilot.simulator.truth.x[7:10]
    assert np.hypot(*v_w[:2]) < 0.3 and v_w[2] == pytest.approx(SPEC.failsafe.sink_m_s, abs=0.3), v_w
    pilot.beat()
    streaming(pilot, 50, 0.5, ALOFT)
    assert pilot.simulator.truth.x[9] < -1, "it climbs again"


def test_silence_counts_from_arming(peer):
    pilot = peer()
    pilot.ticks(5.0)
    pilot.say(Arm(True))
    pilot.ticks(0.4)
    assert not pilot.violations
    pilot.ticks(SPEC.failsafe.after_s - 0.5)
    assert HEARTBEAT_RATE in pilot.violations and LINK_LOSS not in pilot.violations
    pilot.ticks(0.2)
    assert LINK_LOSS in pilot.violations


ALIVE = {
    "heartbeats": (SPEC, Peer.beat),
    "set-points": (SPEC, lambda pilot: pilot.say(ALOFT)),
    "a profile without failsafe": (replace(SPEC, failsafe=None), lambda pilot: None),
}


@pytest.mark.parametrize(("profile", "act"), ALIVE.values(), ids=ALIVE)
def test_it_stays_in_the_client_s_hands_by(peer, profile, act):
    pilot = aloft(peer(profile), 0.5)
    for _ in range(5):
        act(pilot)
        pilot.ticks(0.4)
    assert LINK_LOSS not in pilot.violations and pilot.simulator.truth.x[9] < -1


def test_no_bytes_make_the_sheet_grow_without_bound(peer):
    pilot, rng = peer(beats=True), np.random.default_rng(0)
    for k in range(2000):
        frame, mask, system = (int(rng.integers(most)) for most in (256, 65536, 3))
        q = tuple(rng.choice([0.0, np.nan, 1.0], 4))
        pilot.bytes(packed(position_target(mask, frame, p=(float(k), 0, 0))))
        pilot.bytes(packed(attitude_target(mask % 256, q, system=system)))
    assert len(pilot.violations) <= len(Fault) + 4


@pytest.mark.parametrize(("every", "rate"), [(0, 0.5), (12, -2.0), (1, 0.5)], ids=["once", "10 Hz", "120 Hz"])
def test_a_yaw_rate_turns_the_vehicle_however_often_it_is_sent(peer, rate, every):
    """4.3: SET_POSITION_TARGET_LOCAL_NED with a yaw rate for 2 s, from a hover."""
    pilot = armed(peer(beats=True))
    pilot.say(PositionTarget((0.0, 0.0, -3.0), UNASKED))
    pilot.ticks(1.0)
    turned, last = 0.0, to_euler(pilot.simulator.truth.q_wb)[2]
    for tick in range(round(2 * HZ)):
        if not tick or (every and not tick % every):
            pilot.say(PositionTarget((0.0, 0.0, -3.0), UNASKED, yaw_rate=rate))
        pilot.ticks(1 / HZ)
        yaw = to_euler(pilot.simulator.truth.q_wb)[2]
        turned, last = turned + math.remainder(yaw - last, math.tau), yaw
    assert turned == pytest.approx(2 * rate, rel=0.03)


def test_a_yaw_rate_on_the_pad_does_not_wind_up(peer):
    pilot = armed(peer(beats=True))
    begin = to_euler(pilot.simulator.truth.q_wb)[2]
    for _ in range(200):
        pilot.say(PositionTarget(UNASKED, (0.0, 0.0, 1.0), yaw_rate=1.0))
        pilot.ticks(1 / HZ)
    pilot.say(PositionTarget((0.0, 0.0, -3.0), UNASKED))
    pilot.ticks(3.0)
    assert abs(math.remainder(to_euler(pilot.simulator.truth.q_wb)[2] - begin, math.tau)) < 0.6
