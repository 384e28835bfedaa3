"""A race is not started on what cannot be true, and is on everything else; a vehicle on the pad is told from a moved one."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import Attitude, Imu, MapGate, RaceStatus, TrackMap
from gate_racer.link.profile import load_profile
from gate_racer.pilot.flight import DetectedImage
from gate_racer.pilot.handshake import SAMPLES, STATUS_S, Preflight, RestWatch
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler, matrix
from gate_racer.vehicle.vehicle import load_vehicle
from tests.exploring import lockstep

SPEC, DCL = load_profile("spec"), load_profile("dcl")
VQ1 = load_track("tracks/vq1.yaml")
TILT = from_euler(0.0, np.radians(-17.8), np.pi)


def rest(n=120, q=TILT, scale=1.0, noise=0.0, step=1 / 120):
    rng = np.random.default_rng(0)
    force = -GRAVITY * scale * matrix(q)[2]
    return [Imu(k * step, tuple(force + rng.normal(0, noise, 3)), (0.0, 0.0, 0.0)) for k in range(1, n)]


def flipped(euler):
    return [Attitude(1.0, tuple(from_euler(*euler).tolist()))]


def mapped(scale=1.0, shift=(0.0, 0.0, 1.36), gates=VQ1.gates):
    places = [tuple(scale * np.array(gate.centre_m) + shift) for gate in gates]
    return [TrackMap(1.0, tuple(MapGate(n, p, (1.0, 0.0, 0.0, 0.0), 2.72, 2.72) for n, p in enumerate(places)))]


def filmed(messages, rate):
    """Messages of IMU with images between them whose stamps advance at `rate`."""
    return [m for imu in messages for m in (imu, DetectedImage(rate * imu.t, 0, []))]


@pytest.mark.parametrize(
    ("profile", "messages", "why"),
    [
        (SPEC, rest(scale=1 / GRAVITY), "wrong units"),
        (SPEC, rest(scale=0.7), "wrong units"),
        (SPEC, filmed(rest(), 1e-3), "not in nanoseconds"),
        (SPEC, rest() + flipped((0.3, 0.2, 0.0)), "ATTITUDE's pitch is +11.5 deg, by gravity -17.8: its unit or sign"),
        (SPEC, rest() + flipped((0.0, -17.8, np.pi)), "its unit or sign"),
        (DCL, rest(n=int(121 * STATUS_S)), "no race status"),
        (SPEC, rest(scale=-1.0), "its sign is not that of body FRD"),
        (SPEC, rest(step=1e-6), "not in microseconds"),
        (SPEC, rest() + flipped((0.0, np.radians(17.8), np.pi)), "ATTITUDE's pitch is +17.8 deg, by gravity -17.8"),
        (SPEC, rest() + [RaceStatus(1.0, 4.5, None, 0, None)], "false start"),
        (SPEC, rest() + [RaceStatus(1.0, None, None, 0, None)], "false start"),
        (DCL, rest() + mapped(gates=VQ1.gates[:4]), "map has 4 gates"),
        (DCL, rest() + mapped(scale=1.4), "relative to gate"),
        (SPEC, [], ""),
        (SPEC, rest(3), ""),
        (SPEC, [replace(m, t=m.t - 0.9 * (k > 200)) if k % 2 else m for k, m in enumerate(filmed(rest(), 1.0))], ""),
        (SPEC, rest(noise=2.0), ""),
        (SPEC, rest(q=from_euler(0.4, 0.3, 1.0)), ""),
        (SPEC, rest(q=from_euler(0.02, -0.05, 0.0)) + flipped((0.0, 0.05, 0.0)), ""),
        (SPEC, rest() + flipped((0.2, -0.1, 0.0)), ""),
        (SPEC, filmed(rest(), 1.5), ""),
        (DCL, rest(n=int(119 * STATUS_S)), ""),
        (SPEC, rest() + [RaceStatus(9.0, 4.5, None, 0, None)], ""),
        (SPEC, rest(step=1 / 1000), ""),
        (SPEC, rest() + [Imu(1e4 + k / 120, (0.0, 0.0, -9.8), (0.0,) * 3) for k in range(80)], ""),
        (SPEC, [Imu(1.0, (np.nan,) * 3, (0.0,) * 3)], ""),
        (DCL, rest() + [RaceStatus(1.0, 4.5, None, 0, None)] + mapped(), ""),
        (DCL, rest() + mapped(scale=1.0077), ""),
        (DCL, rest() + mapped(scale=0.0, shift=(0, 0, 0)), ""),
    ],
)
def test_contradictions_are_named_and_noise_a_tilted_pad_and_what_does_not_come_are_none(profile, messages, why):
    preflight = Preflight(profile, VQ1)
    for message in messages:
        preflight.receive(message)
    assert why in preflight.contradiction() and bool(why) == bool(preflight.contradiction())


def heard(actual, believed, course="vq1", world="as_believed", seconds=2.0):
    """Return what a client with profile `believed` finds at rest before a simulator with profile `actual`."""
    track, vehicle = load_track(course), load_vehicle("dcl")
    simulator = Simulator(resolve(world, track, vehicle), actual, 0, RunSetup(pose=True))
    station, codec = Station(simulator), ClientCodec(believed)
    preflight = Preflight(believed, track)
    for _ in range(int(seconds * actual.physics_hz)):
        packets, _ = station.tick()
        for message in (m for packet in packets for m in codec.decode(packet)):
            preflight.receive(message)
    return preflight.contradiction()


@pytest.mark.parametrize(
    ("actual", "believed", "why"),
    [
        (SPEC, DCL, "ATTITUDE's pitch"),
        (DCL, SPEC, "ATTITUDE's pitch"),
        (SPEC, replace(DCL, signs=SPEC.signs), "no race status"),
        (DCL, replace(SPEC, signs=DCL.signs), "counts down a race"),
        (SPEC, replace(SPEC, signs=replace(SPEC.signs, odometry_q=(1, -1, 1, 1))), "ODOMETRY's pitch"),
    ],
)
def test_a_profile_of_another_simulator_is_refused_at_rest(actual, believed, why):
    assert why in heard(actual, believed, seconds=STATUS_S + 1.0)


def test_a_mirrored_heading_is_refused_where_the_pad_shows_it():
    mirrored = replace(SPEC, signs=replace(SPEC.signs, euler=(1, 1, -1)))
    assert "ATTITUDE's yaw is -45.0 deg, by the track file +45.0" in heard(SPEC, mirrored, "splits_swift")
    assert heard(SPEC, mirrored, "vq1") == ""


@pytest.mark.parametrize("profile", [SPEC, DCL], ids=lambda profile: profile.name)
def test_unknown_worlds_do_not_contradict_their_own_profile(profile):
    for seed, course in enumerate(("vq1", "splits_swift", "vq2")):
        assert heard(profile, profile, course, f"unknown:{seed}") == ""


def test_run_mpc_refuses_in_one_line_and_can_be_told_not_to(plan, dcl, tmp_path, monkeypatch):
    from gate_racer.race.session import Session, fly

    believed = replace(DCL, signs=SPEC.signs)
    monkeypatch.setattr("gate_racer.race.lockstep.ClientCodec", lambda profile: ClientCodec(believed))
    race = Session(lockstep(tmp_path), VQ1, dcl, DCL, plan, world=as_believed(VQ1, dcl))
    words = r"^refused to start: ATTITUDE.s pitch .*--profile .*; --set link.check=false starts anyway$"
    with pytest.raises(UserError, match=words):
        fly(race, lambda outcome: None)


# The rest on the pad: what the IMU's noise explains is no motion.


def shaken(seed, accel_noise, gyro_noise, push=0.0, turn=0.0, n=240, hz=60.0):
    """Return samples at rest for the first half, then with a force (m/s^2) along x and a body rate (rad/s) about z."""
    rng = np.random.default_rng(seed)
    for k in range(n):
        late = k >= n // 2
        accel = np.array([push * late, 0.0, -9.81]) + rng.normal(0.0, accel_noise, 3)
        gyro = np.array([0.0, 0.0, turn * late]) + rng.normal(0.0, gyro_noise, 3)
        yield Imu(k / hz, tuple(accel), tuple(gyro))


def first_moved(watch, stream):
    """Number of the first sample that shows a motion; None without."""
    return next((k for k, sample in enumerate(stream) if watch.moved(sample)), None)


MOTIONS = {  # noise of accelerometer and gyro, and the motion in the second half
    "silent": (0.0, 0.0, {}),
    "quiet": (0.1, 0.01, {}),
    "loud": (1.5, 0.06, {}),
    "a push": (0.1, 0.01, {"push": 3.0}),
    "a harder one, with a loud accelerometer": (1.5, 0.01, {"push": -8.0}),
    "a turn": (0.1, 0.01, {"turn": 0.6}),
    "a turn, with a loud accelerometer": (1.5, 0.01, {"turn": -0.6}),
}


@pytest.mark.parametrize(("accel_noise", "gyro_noise", "motion"), MOTIONS.values(), ids=MOTIONS)
@pytest.mark.parametrize("seed", range(7))
def test_a_motion_is_seen_within_a_window_of_samples_and_noise_alone_is_none(accel_noise, gyro_noise, motion, seed):
    first = first_moved(RestWatch(), shaken(seed, accel_noise, gyro_noise, **motion))
    assert first is None if not motion else 120 <= first < 120 + SAMPLES
