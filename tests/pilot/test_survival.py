"""Troubles of the link in flight that must not end it: whole races of VQ1 in lock-step, by sight."""

from dataclasses import dataclass, replace

import pytest

from benchmarks.campaign.flight import NoLog
from estimation.choice import DEFAULT, make_estimator
from link.messages import Imu
from link.profile import load_profile
from mpc.make import make_controller
from perception.association import Associator
from pilot.lockstep import _fly, _InProcess, open_eye
from pilot.pilot import Pilot
from pilot.recorder import Recorder
from sim.referee import Status
from sim.simulator import Simulator
from sim.worlds.distribution import resolve
from sim.worlds.world import NOMINAL


@dataclass(frozen=True)
class Trouble:
    """What happens to the link for some time, `begin` s after the simulator's start (GO is at 1.1 s)."""

    name: str
    begin: float
    seconds: float
    no_telemetry: bool = False
    no_pictures: bool = False
    imu_ahead_s: float = 0.0

    def strikes(self, t):
        return self.begin <= t < self.begin + self.seconds


class TroubledWire(_InProcess):
    """A lock-step link that a trouble strikes; time goes on without news."""

    def __init__(self, simulator, eye, trouble):
        super().__init__(simulator, eye)
        self._trouble = trouble

    def tick(self, expected):
        heard, trouble = super().tick(expected), self._trouble
        if not trouble.strikes(self.t):
            return heard
        if trouble.no_pictures:
            self.pictures = []
        if trouble.no_telemetry:
            return []
        ahead = trouble.imu_ahead_s
        return [replace(m, t=m.t + ahead) if isinstance(m, Imu) else m for m in heard]


TROUBLES = [
    *(
        Trouble(f"all silent at {t:g} s", t, 0.5, no_telemetry=True, no_pictures=True)
        for t in (1.3, 2.4, 3.9, 5.2, 6.6)
    ),
    Trouble("telemetry silent, pictures not", 3.1, 0.5, no_telemetry=True),
    Trouble("no pictures", 3.3, 1.0, no_pictures=True),
    Trouble("one sample a second ahead", 3.3, 1 / 120, imu_ahead_s=1.0),
    Trouble("one sample of long ago", 3.3, 1 / 120, imu_ahead_s=-3.0),
    Trouble("a clock that was set an hour ahead", 3.3, 99.0, imu_ahead_s=3600.0),
    Trouble("a clock that was set back", 3.3, 99.0, imu_ahead_s=-2.0),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
def test_the_race_is_finished_all_the_same(trouble, vq1, dcl, plan):
    profile, associator = load_profile("spec"), Associator(vq1.gates, dcl.camera)
    estimator = make_estimator(DEFAULT, vq1.start, dcl, associator.look)
    controller = make_controller("mpcc", plan, dcl, vq1.course(1), "auto")
    pilot = Pilot(vq1, dcl, profile, estimator, associator, controller, 1)
    world = resolve(NOMINAL, vq1, dcl)
    eye = open_eye("projected", "race", world, dcl.camera, profile, seed=2)
    simulator = Simulator(world, profile, seed=2, laps=1)
    _fly(pilot, profile, TroubledWire(simulator, eye, trouble), Recorder(NoLog()), lambda _: None, [])
    race = simulator.referee.race
    assert race.status is Status.FINISHED, (race.status, race.cause, pilot.reason)
    assert len(race.gate_times_s) == 6
