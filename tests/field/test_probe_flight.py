"""An unknown simulator is described by what it sends, and a short flight, which shows signs, gains and delays, ends with the
motors off whatever that does."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.field.probe.check import CheckVerdict
from gate_racer.field.probe.findings import best, flight_checks, probe
from gate_racer.field.probe.links import RawLink, listen
from gate_racer.field.probe.run import fly_probe
from gate_racer.link.options import Link
from gate_racer.link.profile import RateGain, Signs, load_profile
from gate_racer.link.sockets import LinkError
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.field.simulated import SimulatedRawLink, Sphere
from tests.flights import deviating
from tests.processes import free_port

SPEC, DCL = load_profile("spec"), load_profile("dcl")
FEW_IMAGES = 12.0  # Hz: drawing is what takes the time


def tapped(profile, vehicle, seed=0, video=True, drop=(), pose=False):
    slow = replace(profile, video_hz=FEW_IMAGES)
    simulator = Simulator(as_believed(load_track("tracks/vq1.yaml"), vehicle), slow, seed, RunSetup(pose=pose))
    return SimulatedRawLink(simulator, Sphere(vehicle.camera, seed) if video else None, drop)


def probed(link, against, vehicle):
    received = listen(link, 2.0, 10.0, to_fly=True)
    rest, found = probe(received, against)
    flown, found, why = fly_probe(link, received, against, vehicle, found)
    return named(rest, flown), found, why


def named(*tables):
    return {check.name: check for table in tables for check in table}


def of(checks, verdict):
    return {name for name, check in checks.items() if check.verdict is verdict}


@pytest.fixture(scope="module")
def real_build():
    """The real builds with all that the first qualifier tells, probed by someone who knows only the specification."""
    dcl, told = load_vehicle("dcl"), []

    def noted(flight, *rest):
        told.append(flight)
        return flight_checks(flight, *rest)

    link = tapped(DCL, dcl, pose=True)
    received = listen(link, 2.0, 10.0, to_fly=True)
    rest, found = probe(received, SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gate_racer.field.probe.run.flight_checks", noted)
        flown, found, why = fly_probe(link, received, SPEC, dcl, found)
    assert why == ""
    by_dcl = [*probe(received, DCL)[0], *flight_checks(told[0], DCL, dcl, DCL)[0]]
    return named(rest, flown), found, named(by_dcl), link, received


# Whatever the real builds do otherwise than the specification says: the line that tells of it, and what that line says.
TRAPS = {
    "component": ("component", "differs"),
    "stamp_hz": ("stamp clock, Hz", "differs"),
    "imu_hz": ("HIGHRES_IMU, Hz", "pass"),  # by no more than a busy host does
    "imu_fresh_hz": ("IMU samples that differ, Hz", "differs"),
    "attitude_hz": ("ATTITUDE, Hz", "pass"),
    "motors_hz": ("ACTUATOR_OUTPUT_STATUS, Hz", "differs"),
    "local_position_hz": ("LOCAL_POSITION_NED, Hz", "differs"),
    "odometry_hz": ("ODOMETRY, Hz", "differs"),
    "video_hz": ("images, Hz", "differs"),  # fewer are drawn here
    "video_copies": ("copies of an image", "differs"),
    "video_epoch_s": ("video clock's epoch, s", "differs"),
    "video_stamp_ns": ("video stamps' resolution, ns", "differs"),
    "collision_copies": ("copies of a COLLISION", "unknown"),
    "position_yaw": ("position set-points yaw the vehicle", "unknown"),
    "ground_station": ("ground station messages", "differs"),
    "rates_rad_s_bit": ("rates nearer to rad/s by mask 144", "differs"),
    "rates": ("rates by mask 128", "differs"),
    "rates_rad_s": ("rates by mask 144", "differs"),
    "timesync_in_tc1": ("TIMESYNC requests in tc1", "unknown"),  # both forms are answered here
    "race": ("race status", "differs"),
    "signs.gyro": ("signs of the gyro", "differs"),
    "signs.euler": ("signs of ATTITUDE's angles", "differs"),
    "signs.euler_rates": ("signs of ATTITUDE's rates", "differs"),
    "signs.odometry_q": ("signs of ODOMETRY's quaternion", "differs"),
    "signs.odometry_rates": ("signs of ODOMETRY's rates", "differs"),
}


def differences(a, b, within=""):
    """Names of the fields in which two profiles differ."""
    for field in fields(a):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, Signs):
            yield from differences(one, other, "signs.")
        elif one != other and field.name not in ("name", "source"):
            yield within + field.name


# Silence in flight is not tried; requests of the simulator are answered, and ODOMETRY is read, anyway.
UNTRIED = {"failsafe", "timesync_hz", "odometry_child"}


def test_every_trap_of_the_real_builds_has_a_line_in_the_table():
    assert set(differences(SPEC, DCL)) - UNTRIED == set(TRAPS)


def test_against_the_specification_all_are_found_and_against_their_own_profile_none(real_build):
    assert {line: real_build[0][line].verdict for line, _ in TRAPS.values()} == dict(TRAPS.values())
    assert of(real_build[2], CheckVerdict.DIFFERS) == {"images, Hz"}
    passed = {line for line, verdict in TRAPS.values() if verdict != "unknown"} - {"images, Hz"}
    assert passed | {"countdown, s", "GO disarms", "TIMESYNC answered"} <= of(real_build[2], CheckVerdict.PASS)


def test_the_real_builds_are_told_from_the_specification_and_from_a_changed_build(real_build):
    *_, received = real_build
    assert best(received, [SPEC, DCL]) is DCL
    checks, _ = probe(received, replace(DCL, video_copies=8, timesync=False))
    differs = {check.name for check in checks if check.verdict is CheckVerdict.DIFFERS and "Hz" not in check.name}
    assert differs == {"copies of an image", "TIMESYNC answered"}


def test_only_a_px4_is_described_by_the_profile_with_its_modes(real_build):
    received, px4 = real_build[-1], load_profile("px4")
    assert best(received, [px4]) is px4  # asked for by its name
    alike = replace(DCL, name="alike", offboard=px4.offboard)
    assert best(received, [alike, SPEC]) is SPEC
    beats = [
        (arrival, SimpleNamespace(**beat.to_dict() | {"autopilot": 12})) for arrival, beat in received["HEARTBEAT"]
    ]
    assert best(replace(received, messages=received.messages | {"HEARTBEAT": beats}), [alike, SPEC]) is alike


def test_a_start_that_is_published_late_is_no_negative_countdown(real_build):
    received = real_build[-1]
    at = next(k for k, (_, status) in enumerate(received.race) if status.start is not None)
    arrival, status = received.race[at]
    race = [*received.race[:at], (arrival, replace(status, start=status.t - 0.1))]
    _, found = probe(replace(received, race=race), SPEC)
    assert found.race.countdown_s == 0


def test_an_attitude_that_is_no_number_tells_no_sign(real_build):
    received = real_build[-1]
    nothing = [(arrival, SimpleNamespace(pitch=np.nan)) for arrival, _ in received["ATTITUDE"]]
    checks, found = probe(replace(received, messages=received.messages | {"ATTITUDE": nothing}), SPEC)
    assert "sign of ATTITUDE pitch" in of(named(checks), CheckVerdict.UNKNOWN) and found.signs == SPEC.signs


def test_silence_is_one_clear_line():
    ends = [("127.0.0.1", free_port()) for _ in range(2)]
    with RawLink(Link(*ends)) as link, pytest.raises(LinkError, match=r"no MAVLink within 0\.2 s"):
        listen(link, 1.0, 0.2)


def test_the_profile_that_is_written_says_what_the_real_builds_do(real_build):
    _, found, *_ = real_build
    for told, true in ((found.rates, DCL.rates), (found.rates_rad_s, DCL.rates_rad_s)):
        assert told.sign == true.sign and told.gain == pytest.approx(true.gain, rel=0.03)
        assert told.growth_s == pytest.approx(true.growth_s, abs=0.015)
    assert found.signs == DCL.signs and found.rates_rad_s_bit and found.race is not None
    assert found.race.disarm_at_go == DCL.race.disarm_at_go and found.race.countdown_s == DCL.race.countdown_s
    assert found.component == DCL.component and found.video_copies == DCL.video_copies
    assert found.stamp_hz == pytest.approx(DCL.stamp_hz, rel=0.03)
    assert found.video_epoch_s == pytest.approx(DCL.video_epoch_s, abs=2.0)
    assert found.imu_fresh_hz / found.imu_hz == pytest.approx(DCL.imu_fresh_hz / DCL.imu_hz, rel=0.1)


def test_the_motion_is_that_of_the_vehicle_and_ends_near_its_start_with_the_motors_off(real_build):
    checks, _, _, link, _ = real_build
    same = {"hover throttle", "command delay, s", "roll lag, s", "pitch lag, s", "yaw lag, s", "thrust lag, s"}
    assert not link.simulator.armed and np.linalg.norm(link.simulator.truth.p_wb) < 12.0
    assert same | {"camera rotation over gyro rotation", "camera tilt, deg"} <= of(checks, CheckVerdict.PASS)


def test_a_simulator_that_nobody_has_met_is_flown_by_the_camera_alone(dcl):
    """Other signs on each axis, commands that mean the opposite, no ATTITUDE, another vehicle; probed as the real builds."""
    signs = Signs((1, -1, -1), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1), (1, 1, 1))
    odd = RateGain((-1, 1, -1), (1.4, 1.6, 0.8), 0.0)
    profile = replace(SPEC, signs=signs, rates=odd, rates_rad_s=odd)
    other = replace(deviating(dcl, 1.2), command_delay_s=0.06)
    link = tapped(profile, other, seed=4, drop=("ATTITUDE",))
    checks, found, why = probed(link, DCL, dcl)
    assert why == "" and found.signs.gyro == signs.gyro
    for gain in (found.rates, found.rates_rad_s):
        assert gain.sign == odd.sign and gain.gain == pytest.approx(odd.gain, rel=0.03) and gain.growth_s == 0
    assert {"hover throttle", "command delay, s", "signs of the gyro"} <= of(checks, CheckVerdict.DIFFERS)
    assert "signs of ATTITUDE's angles" in of(checks, CheckVerdict.UNKNOWN) and not link.simulator.armed


@pytest.mark.parametrize(
    ("drop", "why"), [((), "signs of rotation cannot be determined"), (("HIGHRES_IMU",), "not at rest")]
)
def test_without_a_witness_it_stays_on_the_ground(drop, why, dcl):
    link = tapped(SPEC, dcl, video=False, drop=drop)
    _, found, told = probed(link, SPEC, dcl)
    assert why in told and found.rates == SPEC.rates and not link.simulator.path


def test_a_simulator_that_falls_silent_in_mid_hop_ends_it(dcl):
    link = tapped(SPEC, dcl)
    received = listen(link, 2.0, 10.0, to_fly=True)
    tick, begin = link._station.tick, link.now()
    link._station.tick = lambda: tick() if link.now() < begin + 2.0 else ([tick(), []][1], None)
    _, _, why = fly_probe(link, received, SPEC, dcl, SPEC)
    assert "no HIGHRES_IMU" in why and not link.simulator.armed
