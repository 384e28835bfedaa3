"""`Racer` in loops of one's own: it flies what `run-mpc` flies, and on where gates turn out elsewhere."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer import Racer, RacerOptions, State, UserError
from gate_racer.estimation.registry import make_estimator
from gate_racer.link.messages import Arm, Attitude, Imu
from gate_racer.pilot.flight import DetectedImage, EndReason, set_point
from gate_racer.pilot.racer import rotor_thrusts
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.plan import read_plan
from gate_racer.race.campaign.case import Case
from gate_racer.race.campaign.choice import PreparedCourse
from gate_racer.race.campaign.flight import NoLog, fly
from gate_racer.race.lockstep import Entry, fly_lockstep
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.plant import P, Q, V, W, make_plant
from gate_racer.sim.physics.registry import SETTINGS
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import rotors
from gate_racer.vehicle.vehicle import load_vehicle
from tests.flights import SPEC, eye_of, racer_of

HZ, TICKS = 60.0, 2  # commands per second, physics steps per command
LIMIT_S = 30.0


def flown(racer, track, vehicle, surprise=None):
    """The true path (N, 14), at each physics step, of a racer in a bare loop over our plant, until its end."""
    plant = make_plant(vehicle, track.start, SETTINGS[1], Colliders(track))
    plant.armed = True
    path = []
    while racer.end is None and plant.t < LIMIT_S:
        x = plant.truth.x
        if surprise is not None and len(path) == surprise[0]:
            surprise[1](racer)
        command = racer.step(plant.t, State(plant.t, x[P], x[Q], x[V], x[W]))
        plant.command(plant.t, set_point(command.control, vehicle))
        for _ in range(TICKS):
            count = round(plant.t * HZ * TICKS) + 1
            assert not plant.advance(count / (HZ * TICKS))
            path.append(plant.truth.x)
    return np.array(path)


@pytest.fixture(scope="module")
def sprint_course(sprint):
    return load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")


class Blind:
    """Camera whose images show nothing."""

    clock = None

    def see(self, exposure, t, window):
        return [DetectedImage(exposure.t, exposure.id, [])]


class Steps(Recorder):
    """Recorder that keeps each command."""

    def __init__(self):
        super().__init__(NoLog())
        self.steps = []

    def step(self, step):
        super().step(step)
        self.steps.append(step)


def test_run_mpc_commands_what_a_racer_does_for_the_same_told_states(sprint_course, dcl):
    track, plan = sprint_course
    world, recorder, pilot = as_believed(track, dcl), Steps(), racer_of(track, dcl, plan, SPEC, pose=True)
    pilot.estimator.gate_covariance = lambda gate, at_w: None  # the map is told, too
    fly_lockstep(Entry(pilot, Blind(), recorder), world, SPEC, 0, RunSetup(pose=True))
    racer = Racer(track, dcl, RacerOptions(command_hz=SPEC.command_hz), plan)
    assert pilot.end.reason is EndReason.FINISHED and len(recorder.steps) > 100
    for step in recorder.steps:
        command = racer.step(step.state.t, step.state)
        racer.prepare()
        assert command.control.u == pytest.approx(step.control.u, rel=1e-4, abs=1e-4), "but for rounding of dt"
    assert racer.passages.times_s == pytest.approx(pilot.guidance.passages.times_s, abs=1 / HZ)


def test_an_estimated_state_is_flown_by_camera_and_imu(sprint_course, dcl):
    track, plan = sprint_course
    world = as_believed(track, dcl)
    simulator, eye = Simulator(world, SPEC, 0), eye_of(world, dcl, SPEC, 0)
    estimator = make_estimator("eskf", track.start, dcl)
    racer = Racer(track, dcl, plan=plan, estimator=estimator)
    while racer.end is None and simulator.t < LIMIT_S:
        if simulator.t == 1.5:
            simulator.command(Arm(True))
        if simulator.t >= 1.5 and simulator.count % TICKS == 0:
            command = racer.step(estimator.t)
            simulator.command(set_point(command.control, dcl))
        tick = simulator.tick()
        for message in tick.telemetry:
            if isinstance(message, Imu):
                estimator.imu(message)
            elif isinstance(message, Attitude):
                estimator.attitude(message)
        if tick.exposure is not None and simulator.t > 1.5:
            for image in eye.see(tick.exposure, simulator.t, None):
                racer.see(image.t, image.detections)
    assert racer.end.reason is EndReason.FINISHED and simulator.referee.race.status.value == "finished"
    assert estimator.health.gates_used > 10, "by images, too"


def moved(track, gate, by):
    x, y, z = (track.gates[gate].p_wg + by).tolist()
    gates = (*track.gates[:gate], replace(track.gates[gate], centre_m=(x, y, z)), *track.gates[gate + 1 :])
    return replace(track, gates=gates)


@pytest.mark.parametrize("replan", [True, False])
def test_a_gate_elsewhere_is_flown_where_it_stands(sprint_course, dcl, replan):
    track, plan = sprint_course
    elsewhere, why = moved(track, 1, [0.0, 0.6, 0.3]), []
    racer = Racer(track, dcl, RacerOptions(replan=replan), plan)
    flown(racer, elsewhere, dcl, (60, lambda racer: why.append(racer.update(elsewhere))))
    assert why == ["" if replan else "not asked for"]
    assert racer.end.reason is EndReason.FINISHED and not racer.passages.retries
    assert min(racer.passages.margins_m) > 0.3


def test_a_track_of_other_gates_is_refused(sprint_course, vq1, dcl):
    track, plan = sprint_course
    with pytest.raises(UserError, match="vq1: has 6 gates, not those of sprint"):
        Racer(track, dcl, plan=plan).update(vq1)


def test_nonsense_for_a_state_is_a_counted_fall_back(sprint_course, dcl):
    track, plan = sprint_course
    racer = Racer(track, dcl, plan=plan)
    command = racer.step(0.0, State(0.0, np.full(3, np.nan), track.start.q_wb))
    assert np.isfinite(command.control.u).all() and command.control.reason == "the state is not finite"
    assert racer.counters.fallbacks == 1


def test_rotor_thrusts_turn_the_body_as_its_rate_lags_do():
    swift, rng = load_vehicle("swift"), np.random.default_rng(0)
    for _ in range(20):
        omega, u = rng.normal(0, 1, 3), np.array([*rng.normal(0, 1, 3), rng.uniform(8, 25)])
        u[:2] = omega[:2] + 0.2 * (u[:2] - omega[:2])
        u[2] = omega[2]
        x = [0.0] * 3 + [1.0, 0.0, 0.0, 0.0] + [0.0] * 3 + omega.tolist()
        thrusts = rotor_thrusts(swift, swift.rotors, u, omega)
        turned = rotors(x, thrusts.tolist(), swift.rotors_parameters)[10:]
        assert turned == pytest.approx((u[:3] - omega) / swift.rate_lag_s, abs=1e-6)
        assert thrusts.sum() == pytest.approx(swift.rotors.mass_kg * u[3])


class Truth(NoLog):
    """Log of the true states only."""

    def __init__(self):
        self.x = []

    def write(self, channel, t, **fields):
        if channel == "truth":
            self.x.append(np.concatenate([fields[name] for name in "pqvw"]))


def test_a_bare_loop_flies_as_the_campaign_with_a_told_state(sprint_course, dcl):
    track, plan = sprint_course
    told, prepared = Truth(), PreparedCourse(track, dcl, plan, tuple(plan.passage_times_s(track)), None, None)
    outcome = fly(Case("sprint", "dcl", 1, "1", "mpcc", "given", 0), prepared, told).outcome
    racer = Racer(track, dcl, RacerOptions(retry=False), plan)
    path = flown(racer, track, dcl)[:, : W.stop]
    both = min(len(path), len(told.x))
    assert outcome.finished and racer.end.reason is EndReason.FINISHED and both > 200
    assert np.array_equal(path[:both], np.array(told.x)[:both])
    assert racer.passages.times_s == pytest.approx(outcome.gate_s, abs=1 / HZ)
