"""Flight of one case, reproducible on any worker, and its figures.

Figures of a flight, and the rule that explains why it did not finish.
"""

import time
from contextlib import closing
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.estimation.registry import VIO
from gate_racer.link.messages import Arm
from gate_racer.link.msp.profile import load_wire
from gate_racer.link.profile import Profile, load_profile
from gate_racer.mpc.reference import Reference
from gate_racer.mpc.registry import make_controller, needs_plan
from gate_racer.pilot.flight import CommandRecord, EndReason, FlightCounters, FlightOptions, set_point
from gate_racer.pilot.pilot import PilotModels, build_free, build_racer
from gate_racer.pilot.racer import Racer, RacerOptions
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import Verdict, lap_times, off_path, rms, true_positions
from gate_racer.race.campaign.case import Case, Outcome, Row
from gate_racer.race.campaign.choice import FlightConditions, PreparedCourse, asked_world, conditions_of
from gate_racer.race.lockstep import Entry, fly_lockstep, open_perception
from gate_racer.race.session import log_verdict
from gate_racer.sim.physics.plant import P, Q, V, W
from gate_racer.sim.physics.residual import Realisation
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.report import report
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, conjugate, exp, log, normalised, product

LAST_S = 0.5  # s before the end in which the cause is sought (chosen)
NEES_EVERY = 10  # commands between samples of the NEES, since consecutive errors are correlated
PATH_HZ = 30.0  # Hz, rate of the stored path


class EvaluationRecorder(Recorder):
    """Recorder that also stores the estimates for their evaluation."""

    def __init__(self, log: FlightLog, track: Track, estimator: MapEstimator | None):
        """Set up the recorder; `estimator` is None where the state is given."""
        super().__init__(log)
        self._gates, self._estimator = track.gates, estimator
        self.states: list[State] = []
        self.offsets: list[Array] = []  # (G, 3) m, estimated offset of each gate from the map, world

    def step(self, step: CommandRecord) -> None:
        """Record a command, and the estimates at its time."""
        super().step(step)
        self.states.append(step.state)
        offset, gates = self._estimator.gate_offset if self._estimator else None, enumerate(self._gates)
        known = [offset(k, gate.p_wg) if offset else np.zeros(3) for k, gate in gates]
        self.offsets.append(np.array(known).reshape(-1, 3))

    def off_gates(self, world: World, truth: Array) -> Array:
        """Return the errors (N, G, 3) m of the positions relative to each gate, per command; truth (N, 3), NaN if unknown."""
        estimated = np.array([gate.p_wg for gate in self._gates]).reshape(-1, 3) + np.array(self.offsets)
        true = np.array([gate.p_wg for gate in world.track.gates]).reshape(-1, 3)
        return np.asarray((np.array(self.flight.p)[:, None] - estimated) - (truth[:, None] - true))


def measure(
    course: PreparedCourse,
    world: World,
    recorder: EvaluationRecorder,
    tally: FlightCounters,
    verdict: Verdict,
    flown_s: float,
    cpu_s: float,
) -> Outcome:
    """Compute the figures of a flight for tables and reports."""
    flight = recorder.flight
    t = np.array(flight.t)
    off = lost = estimate_error = np.full(len(t), np.nan)
    truth = true_positions(verdict, t) if len(t) else None
    gates, gate_s = len(course.track.gates), verdict.gate_times_s
    at_gates: list[float] = []
    crossings: list[tuple[float, float]] = []
    misjudged: list[tuple[float, float]] = []
    if truth is not None and verdict.t is not None:
        known = np.isfinite(truth).all(axis=1)
        off, relative = off.copy(), recorder.off_gates(world, truth)
        passed = np.searchsorted(verdict.t[0] + np.array(gate_s), t) % gates
        estimate_error = np.linalg.norm(np.array(flight.p) - truth, axis=1)
        lost = np.linalg.norm(relative[np.arange(len(t)), passed], axis=1)
        if any(flight.theta):  # zero throughout when a policy flew, without a plan
            off[known] = off_path(Reference(course.plan, course.vehicle), np.array(flight.theta)[known], truth[known])
        off_w = [
            np.array([np.interp(verdict.t[0] + at, t[known], axis) for axis in relative[known, k % gates].T])
            for k, at in enumerate(gate_s)
        ]
        at_gates = [float(np.linalg.norm(off)) for k, off in enumerate(off_w) if course.track.gates[k % gates].visible]
        crossings = _crossings(verdict, world)
        misjudged = [tuple((off @ world.track.gates[k % gates].R_wg)[1:].tolist()) for k, off in enumerate(off_w)]
    solve_ms = 1e3 * np.array(flight.solve_s)
    outcome = Outcome(
        status=verdict.status,
        cause=verdict.cause,
        gates_total=len(course.gates_s),
        planned_s=course.gates_s[-1],
        bound_s=course.bound_s,
        race_s=gate_s[-1] if verdict.status == "finished" else None,
        lap_s=lap_times(gate_s, gates),
        gate_s=gate_s,
        planned_gate_s=list(course.gates_s),
        margin_m=verdict.gate_margins_m,
        tracking_m=rms(off),
        estimate_m=rms(estimate_error),
        at_gates_m=at_gates,
        crossing_m=crossings,
        misjudged_m=misjudged,
        nees=_nees(recorder.states, verdict),
        solve_p50_ms=float(np.percentile(solve_ms, 50)) if len(solve_ms) else None,
        solve_p99_ms=float(np.percentile(solve_ms, 99)) if len(solve_ms) else None,
        fallbacks=tally.fallbacks,
        frames=tally.frames,
        sightings=tally.sightings,
        rejected=tally.rejected,
        flown_s=flown_s,
        cpu_s=cpu_s,
    )
    late = t > t[-1] - LAST_S if len(t) else np.zeros(0, bool)
    half_m = course.track.gates[len(gate_s) % gates].half
    return replace(outcome, rule=why(outcome, off[late], lost[late], half_m))


def _crossings(verdict: Verdict, world: World) -> list[tuple[float, float]]:
    """Return the crossing points of the true path with the true gates' planes, m right and down of each opening's centre."""
    assert verdict.t is not None and verdict.x is not None
    since_go, gates, found = verdict.t - verdict.t[0], world.track.gates, []
    for k, at in enumerate(verdict.gate_times_s):
        p_g = gates[k % len(gates)].local(verdict.x[:, :3])
        forward = np.flatnonzero((p_g[:-1, 0] < 0) & (p_g[1:, 0] >= 0))
        if not len(forward):  # a ball, passed before its centre plane
            forward = np.array([min(int(since_go.searchsorted(at)), len(p_g) - 2)])
        before, after = p_g[forward[np.abs(since_go[forward] - at).argmin()] + np.arange(2)]
        share = float(np.clip(before[0] / (before[0] - after[0]), 0.0, 1.0)) if before[0] != after[0] else 0.0
        _, right, down = (before + share * (after - before)).tolist()
        found.append((right, down))
    return found


def why(outcome: Outcome, off: Array, lost: Array, half_m: float) -> str:
    """Return the first rule that applies, given at the flight's end the distances `off` from the plan (m, NaN without one), and
    the errors `lost` of the position relative to the next gate, m."""
    if outcome.finished:
        return ""
    if outcome.cause.startswith("no solution"):
        return "no solution"
    if (lost > half_m).any():
        return "estimate lost: off by more than half a gate"
    if (off > half_m).any():
        return "tracking lost: off the plan by more than half a gate"
    if outcome.status == "crashed":
        return "clipped: near the plan, which left too little room" if np.isfinite(off).any() else "clipped"
    return outcome.status.replace("_", " ")


def _nees(states: list[State], verdict: Verdict) -> float | None:
    """Return the mean NEES of position, velocity and attitude (Bar-Shalom, Li and Kirubarajan 2001, 5.4)."""
    if verdict.t is None or verdict.x is None or len(verdict.t) < 2:
        return None
    found = []
    for state in states[::NEES_EVERY]:
        if not verdict.t[0] <= state.t <= verdict.t[-1] or not state.cov.diagonal().all():  # known exactly
            continue
        x = np.array([np.interp(state.t, verdict.t, column) for column in verdict.x.T])
        error = state_error(state, x[P], x[Q], x[V])
        found.append(float(error @ np.linalg.solve(state.cov, error)))
    return float(np.mean(found)) if found else None


def state_error(state: State, p: Array, q: Array, v: Array) -> Array:
    """Return true minus estimated position, velocity and attitude (9,)."""
    turn = log(normalised(product(conjugate(state.q_wb), q)))
    return np.concatenate([p - state.p_wb, v - state.v_w, turn])


def path_of(verdict: Verdict) -> Array:
    """Return the downsampled true path (M, 5): time since GO (s), position (m, world NED), speed (m/s)."""
    if verdict.t is None or verdict.x is None or len(verdict.t) < 2:
        return np.empty((0, 5))
    every = max(1, round(1 / (PATH_HZ * np.diff(verdict.t).mean())))
    t, x = verdict.t[::every], verdict.x[::every]
    return np.column_stack([t - verdict.t[0], x[:, :3], np.linalg.norm(x[:, 7:10], axis=1)])


STYLE = "race"  # style of all flights


class NoLog(FlightLog):
    """Log that discards its records."""

    def __init__(self) -> None: ...

    def write(self, channel: str, t: float, **fields: Any) -> None: ...

    def image(self, t: float, jpeg: bytes) -> None: ...

    def close(self) -> None: ...


def attempt(case: Case, course: PreparedCourse) -> Row:
    """Fly a case; any exception becomes its outcome `failed`, so that the campaign continues."""
    try:
        return fly(case, course, NoLog())
    except Exception as error:
        return not_flown(case, course, f"{type(error).__name__}: {error}".splitlines()[0])


def not_flown(case: Case, course: PreparedCourse, reason: str) -> Row:
    return Row(case, Outcome("failed", reason, "could not be flown", len(course.gates_s)))


def fly(case: Case, course: PreparedCourse, log: FlightLog, plot: Path | None = None) -> Row:
    """Fly a case and write its log; with `plot` also draw the flight there."""
    begin, conditions = time.process_time(), conditions_of(case.setting)
    world = resolve(asked_world(case.world, case.seed), course.track, course.vehicle)
    log.write("flight", 0.0, track=case.track, vehicle=case.vehicle, world=world.as_dict(), seed=case.seed)
    by = _by_state if conditions.given else _by_sight
    recorder, tally, verdict, simulated_s = by(case, course, conditions, world, log)
    log_verdict(log, verdict)
    outcome = measure(course, world, recorder, tally, verdict, simulated_s, time.process_time() - begin)
    if plot is not None and recorder.flight.t:
        from gate_racer.pilot.records.plot import draw_flight  # matplotlib only when something is drawn

        go_t = float(verdict.t[0]) if verdict.t is not None and len(verdict.t) else recorder.flight.t[0]
        draw_flight(plot, recorder.flight, verdict, course.plan, world.track, course.vehicle, go_t)
    return Row(case, outcome, path_of(verdict))


def _run(case: Case, course: PreparedCourse) -> RunSetup:
    vio = course.errors if case.estimator == VIO else None
    return RunSetup(laps=case.laps, setting=conditions_of(case.setting).simulated, residual=course.residual, vio=vio)


def _by_sight(
    case: Case, course: PreparedCourse, conditions: FlightConditions, world: World, log: FlightLog
) -> tuple[EvaluationRecorder, FlightCounters, Verdict, float]:
    """Fly with IMU and camera only: the pilot in lock-step with its simulator."""
    wire, vehicle = load_wire(conditions.profile), course.vehicle
    profile = wire if isinstance(wire, Profile) else wire.wire
    models, options = PilotModels.of(course.track, vehicle, profile, case.estimator), FlightOptions(laps=case.laps)
    if needs_plan(case.controller):
        controller = make_controller(case.controller, course.plan, vehicle, course.track)
        pilot = build_racer(models, controller, options)
    else:
        pilot = build_free(models, case.controller, options)
    recorder = EvaluationRecorder(log, course.track, models.estimator)
    seen = conditions.camera, STYLE, world, vehicle.camera, profile, case.seed
    with closing(open_perception(*seen, conditions.detector)) as perception:
        _, verdict = fly_lockstep(Entry(pilot, perception, recorder), world, wire, case.seed, _run(case, course))
    pilot.counters.fallbacks += pilot.estimator.health.fallbacks
    return recorder, pilot.counters, verdict, pilot.estimator.t


def _by_state(
    case: Case, course: PreparedCourse, conditions: FlightConditions, world: World, log: FlightLog
) -> tuple[EvaluationRecorder, FlightCounters, Verdict, float]:
    """Fly in the paper's settings: the controller receives the true state, or the state with one realisation of the errors."""
    profile = load_profile(conditions.profile)
    recorder = EvaluationRecorder(log, course.track, None)
    simulator = Simulator(world, profile, case.seed, _run(case, course))
    options = RacerOptions(laps=case.laps, command_hz=profile.command_hz, controller=case.controller, retry=False)
    racer = Racer(course.track, course.vehicle, options, course.plan)
    errors = None
    if conditions.noisy:
        assert course.errors is not None
        errors = course.errors.sample(np.random.default_rng([case.seed, 1]))
    simulator.command(Arm(True))
    every = ceil(profile.physics_hz / profile.command_hz - 1e-9)
    while simulator.referee.race.status is RunStatus.RUNNING:
        if simulator.count % every == 0:
            state = told_state(simulator.t, simulator.truth.x, errors)
            control = racer.step(simulator.t, state).control
            target = set_point(control, course.vehicle)
            simulator.command(target)
            recorder.step(CommandRecord(state, control, target))
            if racer.end is not None and racer.end.reason is not EndReason.FINISHED:
                simulator.referee.abort(racer.end.cause)
        simulator.tick()
    end = report(simulator)
    verdict = Verdict(end.status, end.cause, end.gate_times_s, end.gate_margins_m, end.t, end.x)
    return recorder, racer.counters, verdict, simulator.t


def told_state(t: float, x: Array, errors: Realisation | None) -> State:
    """Return the state that the controller receives for the true state x (14,)."""
    if errors is None:
        return State(t, x[P], x[Q], x[V], x[W])
    error = errors.errors(x)[0]
    p_wb, q_wb = x[P] + error[:3], np.array(product(exp(error[6:9]), x[Q]))
    return State(t, p_wb, q_wb, x[V] + error[3:6], x[W], np.zeros((9, 9)), float(np.linalg.norm(p_wb - x[P])))
