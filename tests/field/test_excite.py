"""Identification of an unknown vehicle behind the real builds' wire: manoeuvres, log, vehicle file."""

import runpy
from dataclasses import replace

import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.profile import load_profile
from gate_racer.pilot.flight import Phase
from gate_racer.pilot.guidance.exciter import Manoeuvres, parse_manoeuvres
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.race.campaign.flight import NoLog
from gate_racer.race.lockstep import Entry, fly_lockstep, open_perception
from gate_racer.race.session import Session
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import Bounds, load_track
from tests.conftest import ROOT
from tests.exploring import lockstep

SEED = 7


def test_it_stays_within_a_small_room(tmp_path, dcl):
    """Fly a vehicle that the pilot takes for `dcl` in a room of 16 x 16 x 9 m: the steps are shortened to the space there is."""
    other = runpy.run_path(str(ROOT / "examples/unknown_simulator.py"))
    room = replace(load_track("vq1"), bounds=Bounds((-8.0, -8.0, -9.0), (8.0, 8.0, 1.0)))
    profile = replace(load_profile("dcl"), video_hz=10.0)
    about = {"manoeuvres": parse_manoeuvres("0.1,1"), "world": as_believed(room, other["draw_vehicle"](1))}
    session = Session(lockstep(tmp_path, seed=SEED), room, dcl, profile, **about)
    pilot, eye = session.pilot(), open_perception("projected", "race", session.world, dcl.camera, profile, SEED)
    fly_lockstep(Entry(pilot, eye, Recorder(NoLog())), session.world, profile, SEED)
    assert pilot.phase is Phase.FINISHED, pilot.cause
    assert pilot.estimator.t < 40.0


def test_manoeuvres_are_named_as_they_are_read():
    assert parse_manoeuvres("all") == Manoeuvres() == parse_manoeuvres(str(Manoeuvres()))
    for text in ("0.7,0.8,yaw,speed", "roll", "1"):
        assert str(parse_manoeuvres(text)) == text
    for text in ("loop", "1.5", "", "0.5,,yaw"):
        with pytest.raises(UserError, match="is not a manoeuvre; known: all, a throttle"):
            parse_manoeuvres(text)
