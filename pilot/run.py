"""One run of a session, from its settings to its result (log, verdict, JSON and plot), however it ends."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.link.options import Link
from gate_racer.pilot.drivers.ending import forgiving, interruptible
from gate_racer.pilot.flight import EndReason, Phase
from gate_racer.pilot.modes import flown
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.console import Console, warn
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import FlightResult, LinkReport, Verdict, flight_result, live_verdict
from gate_racer.pilot.replanning.planners import RemainderPlanner
from gate_racer.pilot.session import Session
from gate_racer.planner.plan import Plan
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.files import FileError, write_file


def fly(session: Session, mode: str, link: Link, tell: Callable[[FlightResult], None]) -> FlightResult:
    """Fly a plan or a policy, and return the result. However the flight ends, signals included, there is a result.

    Args:
        mode: "lockstep", "embedded", "live" or "live-lockstep".
        link: where to listen, and to whom, when live.
        tell: called with the result once it is on disk, before anything is drawn.

    Raises:
        UserError: no solver, no camera, a port in use, no simulator within the time-out, or a contradiction before the start.
            The part of the flight that was flown is on disk.
    """
    with session.planner(mode) as planner:
        outcome, pilot, recorder, verdict = _flown(session, mode, link, planner)
    tell(outcome)
    _draw(session, pilot, recorder, verdict)
    return outcome


def _flown(
    session: Session, mode: str, link: Link, planner: RemainderPlanner | None
) -> tuple[FlightResult, AnyPilot, Recorder, Verdict]:
    """Fly, and write the result to disk. Raises as `fly`."""
    pilot, plan = session.pilot(planner), session.plan
    with interruptible(pilot):
        with recorded(session, pilot, mode) as recorder:
            session.save_world(recorder.path)
            failure, link_report, verdict = None, LinkReport(0.0, 0, 0, {}), None
            try:
                with forgiving(pilot, recorder):
                    link_report, verdict = flown(session, pilot, mode, link, recorder)
            except UserError as error:
                pilot.abort(EndReason.ERROR, str(error))
                failure = error
            verdict = verdict or live_verdict(pilot, recorder.scoreboard)
            log_verdict(recorder, verdict)
            recorder.calibration(pilot.estimator.t, pilot.estimator.calibration())
            recorder.learned(pilot.estimator.t, pilot.guidance.learned())
            recorder.replans(pilot.go_t, pilot.guidance.passages.replans)
            recorder.counters(pilot.estimator.t, pilot.counters, link_report.frames_dropped)
        outcome = flight_result(pilot, recorder, verdict, link_report, plan, session)
        keep(session, outcome.as_dict())
    if failure is not None:
        raise failure
    return outcome, pilot, recorder, verdict


def _draw(session: Session, pilot: AnyPilot, recorder: Recorder, verdict: Verdict) -> None:
    """Plot the flight beside the log. A plot that cannot be written causes a warning only."""
    if not recorder.flight.t or pilot.go_t is None:
        return
    from gate_racer.pilot.records.plot import draw_flight  # matplotlib is not loaded until the flight is over

    plot = recorder.path.with_suffix(".png")
    try:
        draw_flight(plot, recorder.flight, verdict, session.plan, session.track, session.vehicle, pilot.go_t)
    except FileError as error:
        warn(str(error))


def excite(session: Session, mode: str, link: Link) -> tuple[Path, str]:
    """Fly manoeuvres. Return the log, and why they were not completed (empty if they were). Raises as `fly`."""
    pilot = session.pilot()
    with interruptible(pilot), recorded(session, pilot, mode) as recorder:
        flown(session, pilot, mode, link, recorder)
    return recorder.path, "" if pilot.phase is Phase.FINISHED else pilot.cause


@contextmanager
def recorded(session: Session, pilot: AnyPilot, mode: str) -> Iterator[Recorder]:
    """Record into a new log; what is missing in it is noted when it is closed. Raises UserError where none can be opened."""
    console = Console()
    log = session.open_log(mode, console.say)
    recorder = Recorder(log, console)
    plan_hash = session.plan.hash if session.plan is not None else ""
    about = {"track": session.track.name, "vehicle": session.vehicle.name, "plan_hash": plan_hash}
    planned = _planned_s(session.plan, session.track) if session.plan is not None else []
    world, seed, profile = session.described_world or {}, session.seed, session.profile.name
    recorder.begin(**about, planned_gate_times_s=planned, world=world, seed=seed, profile=profile)
    try:
        yield recorder
    finally:
        recorder.close()
        console.close()


def _planned_s(plan: Plan, track: Track) -> list[float]:
    """Return the planned gate times, s, without a stop behind the gates."""
    return plan.gate_times_s[: len(track.course(plan.laps))].tolist()


def log_verdict(log: Recorder | FlightLog, verdict: Verdict) -> None:
    """Log the true path, where it is known, and the verdict."""
    if verdict.t is not None and verdict.x is not None:
        for t, x in zip(verdict.t.tolist(), verdict.x, strict=True):
            log.write("truth", t, p=x[:3], q=x[3:7], v=x[7:10], w=x[10:13])
    end = float(verdict.t[-1]) if verdict.t is not None and len(verdict.t) else 0.0
    log.write(
        "referee",
        end,
        status=verdict.status,
        cause=verdict.cause,
        by=verdict.by,
        gate_times_s=verdict.gate_times_s,
        gate_margins_m=np.round(verdict.gate_margins_m, 6),
    )


class UnwrittenError(UserError):
    """A result that cannot be written; the message contains it."""

    longest = 1 << 20


def keep(session: Session, outcome: dict[str, Any]) -> None:
    """Write the result as JSON, atomically, if a file is requested.

    Raises:
        UserError: the file cannot be written; the message holds the result.
    """
    path = session.json
    if path is None:
        return
    try:
        write_file(path, json.dumps(outcome, indent=2) + "\n")
    except FileError as error:
        raise UnwrittenError(f"{error}; the result is {json.dumps(outcome)}") from None
