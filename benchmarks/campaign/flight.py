"""Flight of one case: a pure function of case and course, reproducible on any worker."""

import time
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.benchmarks.campaign.case import Case, Flown, Outcome
from gate_racer.benchmarks.campaign.choice import CONTROLLERS, ESTIMATORS, SETTINGS, FlightConditions, PreparedCourse
from gate_racer.benchmarks.campaign.measure import EvaluationRecorder, measure
from gate_racer.benchmarks.campaign.steering import steering
from gate_racer.benchmarks.campaign.worlds import asked
from gate_racer.estimation.estimator import State
from gate_racer.link.messages import Arm, AttitudeTarget
from gate_racer.link.msp.profile import load_wire
from gate_racer.link.profile import Profile, load_profile
from gate_racer.mpc.policy.policy import load_policy
from gate_racer.perception.association import Associator
from gate_racer.pilot.drivers.betaflight import fly_betaflight
from gate_racer.pilot.drivers.lockstep import fly_lockstep
from gate_racer.pilot.drivers.lockstep_perception import open_perception
from gate_racer.pilot.flight import CommandRecord, FlightCounters
from gate_racer.pilot.make import make_learned, make_racer
from gate_racer.pilot.records.result import Verdict
from gate_racer.pilot.run import log_verdict
from gate_racer.sim.physics.observation import Realisation
from gate_racer.sim.physics.plant import P, Q, V, W
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.report import report
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.vehicle.rotation import Array

LOOK = "race"  # look of all flights


class NoLog:
    """`FlightLog` that discards its records."""

    def write(self, channel: str, t: float, **fields: Any) -> None:
        """Discard a record."""
        pass

    def image(self, t: float, jpeg: bytes) -> None:
        """Discard an image."""
        pass

    def close(self) -> None:
        """Do nothing."""
        pass


def attempt(case: Case, course: PreparedCourse) -> Flown:
    """Fly a case; any exception becomes its outcome `failed`, so that the campaign continues."""
    try:
        return fly(case, course, NoLog())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return Flown(Outcome("failed", reason, "could not be flown", len(course.gates_s)), np.empty((0, 5)))


def fly(case: Case, course: PreparedCourse, log: Any, plot: Path | None = None) -> Flown:
    """Fly a case and write its log; with `plot` also draw the flight there."""
    begin, conditions = time.process_time(), SETTINGS[case.setting]
    world = resolve(asked(case.world, case.seed), course.track, course.vehicle)
    log.write("flight", 0.0, track=case.track, vehicle=case.vehicle, world=world.as_dict(), seed=case.seed)
    recorder, tally, verdict, simulated_s = (_by_state if conditions.given else _by_sight)(
        case, course, conditions, world, log
    )
    log_verdict(log, verdict)
    flown = measure(course, world, recorder, tally, verdict, simulated_s, time.process_time() - begin)
    if plot is not None and recorder.flight.t:
        from gate_racer.pilot.records.plot import draw_flight  # matplotlib only when something is drawn

        go_t = float(verdict.t[0]) if verdict.t is not None and len(verdict.t) else recorder.flight.t[0]
        draw_flight(plot, recorder.flight, verdict, course.plan, world.track, course.vehicle, go_t)
    return flown


def _by_sight(
    case: Case, course: PreparedCourse, conditions: FlightConditions, world: World, log: Any
) -> tuple[EvaluationRecorder, FlightCounters, Verdict, float]:
    """Fly with IMU and camera only: the pilot in lock-step with its simulator."""
    wire, vehicle = load_wire(conditions.profile), course.vehicle
    profile = wire if isinstance(wire, Profile) else wire.wire
    estimator, associator = ESTIMATORS[case.estimator](course), Associator(course.track.gates, vehicle.camera)
    parts = course.track, vehicle, profile, estimator, associator
    if case.controller in CONTROLLERS:
        pilot = make_racer(*parts, CONTROLLERS[case.controller](course), case.laps)
    else:
        pilot = make_learned(*parts, load_policy(case.controller), case.laps)
    recorder = EvaluationRecorder(log, course.track, estimator)
    perception = open_perception(
        conditions.camera, LOOK, world, vehicle.camera, profile, case.seed, conditions.detector
    )
    try:
        flight = (perception, case.seed, case.laps, recorder, lambda _: None, conditions.simulated, course.residual)
        if isinstance(wire, Profile):
            _, verdict = fly_lockstep(pilot, world, wire, *flight)
        else:
            _, verdict = fly_betaflight(pilot, world, wire, *flight)
    finally:
        perception.close()
    return recorder, pilot.counters, verdict, pilot.estimator.t


def _by_state(
    case: Case, course: PreparedCourse, conditions: FlightConditions, world: World, log: Any
) -> tuple[EvaluationRecorder, FlightCounters, Verdict, float]:
    """Fly in the paper's settings: the controller receives the true state, or the state with one realisation of the errors."""
    profile, tally = load_profile(conditions.profile), FlightCounters()
    recorder = EvaluationRecorder(log, course.track, None)
    simulator = Simulator(world, profile, case.seed, case.laps, setting=conditions.simulated, residual=course.residual)
    steers = steering(case.controller, course, case.laps, profile.command_hz)
    errors = None
    if conditions.noisy:
        assert course.errors is not None
        errors = course.errors.sample(np.random.default_rng([case.seed, 1]))
    simulator.command(Arm(True))
    every, dt = ceil(profile.physics_hz / profile.command_hz - 1e-9), 1 / profile.command_hz
    while simulator.referee.race.status is RunStatus.RUNNING:
        if simulator.count % every == 0:
            state = _told(simulator.t, simulator.truth.x, errors)
            control, over = steers.step(state, dt)
            tally.fallbacks += control.source.name != "SOLVED"
            throttle = course.vehicle.throttle.throttle(control.u[3])
            target = AttitudeTarget(tuple(control.q_wb.tolist()), tuple(control.u[:3].tolist()), throttle)
            simulator.command(target)
            recorder.step(CommandRecord(state, control, target))
            if over:
                passed = len(simulator.referee.race.gate_times_s)
                simulator.referee.abort(f"{over}, but gate {passed} was not passed")
        simulator.tick()
    told_by = report(simulator)
    verdict = Verdict(told_by.status, told_by.cause, told_by.gate_times_s, told_by.gate_margins_m, told_by.t, told_by.x)
    return recorder, tally, verdict, simulator.t


def _told(t: float, x: Array, errors: Realisation | None) -> State:
    """Return the state that the controller receives for the true state x (14,)."""
    if errors is None:
        return State(t, x[P], x[Q], x[V], x[W], np.zeros((9, 9)), 0.0)
    seen = errors.observe(x)
    return State(t, seen.p_wb, seen.q_wb, seen.v_w, x[W], np.zeros((9, 9)), float(np.linalg.norm(seen.p_wb - x[P])))
