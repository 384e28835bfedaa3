"""Identification of an unknown vehicle behind the real builds' wire: manoeuvres, log, vehicle file."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.profile import load_profile
from gate_racer.pilot.flight import Phase
from gate_racer.pilot.guidance.exciter import Manoeuvres, parse_manoeuvres
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.race.lockstep import Entry, fly_lockstep
from gate_racer.race.perception import open_perception
from gate_racer.race.session import Session
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import Bounds, load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.exploring import lockstep

DCL, VQ1 = load_profile("dcl"), load_track("tracks/vq1.yaml")
SEED = 7


def random_vehicle(seed):
    """Another thrust curve, other drag, delay and lags, within what the real vehicle might be."""
    dcl, rng = load_vehicle("dcl"), np.random.default_rng(seed)
    scale, bend = rng.uniform(0.85, 1.15), rng.uniform(0.9, 1.1)
    points = zip(dcl.throttle.command, dcl.throttle.thrust_m_s2, strict=True)
    thrust = tuple(scale * c * max(u, 1e-9) ** (bend - 1) for u, c in points)
    return replace(
        dcl,
        name="random",
        throttle=replace(dcl.throttle, thrust_m_s2=thrust),
        drag_quadratic_1_m=rng.uniform(0.035, 0.065),
        rate_lag_s=tuple(rng.uniform(0.02, 0.06, 3)),
        thrust_lag_s=rng.uniform(0.02, 0.05),
        command_delay_s=rng.uniform(0.03, 0.06),
    )


def flown(track, vehicle, wanted, folder):
    """Pilot, log and verdict of manoeuvres with a vehicle that the pilot takes for `dcl`."""
    dcl = load_vehicle("dcl")
    about = {"manoeuvres": parse_manoeuvres(wanted), "world": as_believed(track, vehicle)}
    session = Session(lockstep(folder, seed=SEED), track, dcl, DCL, **about)
    pilot, log = session.pilot(), FlightLog(session.log_path())
    eye = open_perception("projected", "race", session.world, dcl.camera, DCL, SEED)
    try:
        _, verdict = fly_lockstep(Entry(pilot, eye, Recorder(log)), session.world, DCL, SEED)
    finally:
        log.close()
    return pilot, log.path, verdict


def test_it_stays_within_a_small_room(tmp_path):
    """Fly in a room of 16 x 16 x 9 m: the steps are shortened to the available space."""
    room = replace(VQ1, bounds=Bounds((-8.0, -8.0, -9.0), (8.0, 8.0, 1.0)))
    pilot, _, verdict = flown(room, random_vehicle(1), "0.1,1", tmp_path)
    assert pilot.phase is Phase.FINISHED, verdict.cause
    assert pilot.estimator.t < 40.0


def test_manoeuvres_are_named_as_they_are_read():
    assert parse_manoeuvres("all") == Manoeuvres() == parse_manoeuvres(str(Manoeuvres()))
    for text in ("0.7,0.8,yaw,speed", "roll", "1"):
        assert str(parse_manoeuvres(text)) == text
    for text in ("loop", "1.5", "", "0.5,,yaw"):
        with pytest.raises(UserError, match="is not a manoeuvre; known: all, a throttle"):
            parse_manoeuvres(text)
