"""One flight from its settings to its result, in any of the three ways: lock-step, embedded in real time, live."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from estimation.registry import make_estimator
from link.options import Link
from link.profile import Profile
from link.rflysim.vision import Vision, VisionReceiver
from link.udp import MavlinkClient, VideoReceiver
from mpc.make import make_controller
from mpc.solvers.solver import AUTO
from perception.association import Associator
from perception.registry import open_detector
from pilot.drivers.embedded import EmbeddedSimulator
from pilot.drivers.ending import forgiving, interruptible, stop_motors
from pilot.drivers.eyes import open_eye
from pilot.drivers.live import LiveDriver
from pilot.drivers.lockstep import fly_lockstep, fly_lockstep_live
from pilot.drivers.perception_process import PerceptionProcess, Receiver
from pilot.flight import EndReason, Phase
from pilot.guidance.manoeuvres import Manoeuvres
from pilot.make import Racer, make_exciter, make_racer
from pilot.pilot import AnyPilot
from pilot.preflight import Preflight
from pilot.records.console import Console, warn
from pilot.records.flight_log import LIMIT_MB, SCHEMAS, FlightLog
from pilot.records.recorder import Recorder
from pilot.records.result import FlightResult, LinkReport, Verdict, flight_result, live_verdict
from pilot.records.status import StatusLine
from pilot.records.view import LiveView
from planner.plan import Plan
from sim.worlds.distribution import described, save
from sim.worlds.world import World
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.files import FileError, write_file
from vehicle.vehicle import Vehicle

Address = tuple[str, int]
SWITCH_S = 5e-4  # for which another thread (log, status) may hold the interpreter while the loop that flies wants it


@dataclass(frozen=True)
class Session:
    """What is to be flown, and where its traces go."""

    track: Track
    vehicle_name: str
    vehicle: Vehicle
    profile: Profile
    plan: Plan | None  # None: the track is the simulator's alone, see `pilot.exploring`
    laps: int
    seed: int
    log_folder: Path
    timeout_s: float
    look: str
    camera: str
    detector: str
    estimator: str
    pose: bool
    controller: str
    vision: Vision | None = None  # of RflySim, in place of the video stream
    check: bool = True  # whether contradictions before the start refuse it
    manoeuvres: Manoeuvres | None = None  # to be flown instead of a plan
    view: Address | None = None  # where the flight is shown live
    world: World | None = None  # of a simulator of our own; the rest of the session is what the pilot believes
    solver: str = AUTO
    command: str = "rates"  # or attitude
    log_limit_mb: float = LIMIT_MB
    json: Path | None = None  # where the result is written

    def pilot(self) -> Racer:
        """A pilot on the pad. Raises UserError without a usable solver."""
        associator = Associator(self.track.gates, self.vehicle.camera)
        estimator = make_estimator(self.estimator, self.track.start, self.vehicle, associator.appearance)
        preflight = Preflight(self.profile, self.track) if self.check else None
        parts = self.track, self.vehicle, self.profile, estimator, associator
        if self.manoeuvres is not None:
            return make_exciter(*parts, self.manoeuvres, self.seed, self.pose, preflight)
        assert self.plan is not None, "either a plan or manoeuvres"
        controller = make_controller(self.controller, self.plan, self.vehicle, self.track, self.solver)
        return make_racer(*parts, controller, self.laps, self.pose, preflight, self.command == "rates")

    @property
    def described_world(self) -> dict[str, Any] | None:
        """For log and result; None of a simulator elsewhere."""
        return described(self.world) if self.world is not None else None

    def open_log(self, mode: str, tell: Callable[[str], None]) -> FlightLog:
        """A new log, and the live view of it. Raises UserError when either cannot be had."""
        view = LiveView(self.view, SCHEMAS, self.track, self.plan) if self.view is not None else None
        return FlightLog(self.log_path(), view, self.log_limit_mb, "lockstep" in mode, tell)

    def log_path(self) -> Path:
        """A new file, named by track, time and seed."""
        stem = f"{self.track.name}-{time.strftime('%Y%m%d-%H%M%S')}-seed{self.seed}"
        path, number = self.log_folder / f"{stem}.mcap", 1
        while path.exists():
            number += 1
            path = self.log_folder / f"{stem}-{number}.mcap"
        return path


def fly(session: Session, mode: str, link: Link, tell: Callable[[FlightResult], None]) -> FlightResult:
    """Flies a plan and returns the result. Whatever ends the flight, signals included, there is a result.

    Args:
        mode: "lockstep", "embedded", "live" or "live-lockstep".
        link: where to listen, and to whom, when live.
        tell: is given the result, which is on the disk by then, before anything is drawn.

    Raises:
        UserError: no solver, no camera, a port in use, no simulator within the time-out, or a contradiction before the start.
            What there was of a flight is on the disk.
    """
    pilot, plan = session.pilot(), session.plan
    assert plan is not None
    with interruptible(pilot):
        with recorded(session, pilot, mode) as recorder:
            if session.world is not None and not session.world.nominal:
                save(recorder.path.with_suffix(".world.yaml"), session.world)
            failure, wire, verdict = None, LinkReport(0.0, 0, 0, {}), None
            try:
                with forgiving(pilot, recorder):
                    wire, verdict = flown(session, pilot, mode, link, recorder)
            except UserError as error:
                pilot.abort(EndReason.ERROR, str(error))
                failure = error
            verdict = verdict or live_verdict(pilot, recorder.scoreboard)
            log_verdict(recorder, verdict)
            recorder.calibration(pilot.estimator.t, pilot.estimator.calibration())
        outcome = flight_result(pilot, recorder, verdict, wire, plan, session)
        keep(session, outcome.as_dict())
    if failure is not None:
        raise failure
    tell(outcome)
    _draw(session, plan, pilot, recorder, verdict)
    return outcome


def _draw(session: Session, plan: Plan, pilot: AnyPilot, recorder: Recorder, verdict: Verdict) -> None:
    """The plot beside the log. One that cannot be written is missed, and nothing else."""
    if not recorder.flight.t or pilot.go_t is None:
        return
    from pilot.records.plot import draw_flight  # matplotlib stays out of the process until the flight is over

    plot = recorder.path.with_suffix(".png")
    try:
        draw_flight(plot, recorder.flight, verdict, plan, session.track, session.vehicle, pilot.go_t)
    except OSError as error:
        warn(f"{plot}: cannot be written ({error.strerror})")


def excite(session: Session, mode: str, link: Link) -> tuple[Path, str]:
    """Flies manoeuvres; the log, and why they were not flown to the end (empty if they were). Raises as `fly`."""
    pilot = session.pilot()
    with interruptible(pilot), recorded(session, pilot, mode) as recorder:
        flown(session, pilot, mode, link, recorder)
    return recorder.path, "" if pilot.phase is Phase.FINISHED else pilot.cause


@contextmanager
def recorded(session: Session, pilot: AnyPilot, mode: str) -> Iterator[Recorder]:
    """A log of its own; what is missing in it is noted once it is closed. Raises UserError when it cannot be had."""
    console = Console()
    log = session.open_log(mode, console.say)
    recorder = Recorder(log, console)
    plan_hash = session.plan.hash if session.plan is not None else ""
    about = {"track": session.track.name, "vehicle": session.vehicle.name, "plan_hash": plan_hash}
    recorder.begin(**about, world=session.described_world or {}, seed=session.seed, profile=session.profile.name)
    try:
        yield recorder
    finally:
        recorder.close()
        console.close()


def flown(session: Session, pilot: AnyPilot, mode: str, link: Link, recorder: Recorder) -> tuple[LinkReport, Verdict]:
    """The flight itself, into a log. Arguments and errors as of `fly`."""
    assert recorder.console is not None
    status = StatusLine(recorder.console)
    if mode == "lockstep":
        status.command_hz = session.profile.command_hz
        done = _lockstep(session, pilot, recorder, status)
    elif mode == "embedded":
        done = _embedded(session, pilot, recorder, status)
    elif mode == "live-lockstep":
        done = _live_lockstep(session, pilot, recorder, status, link)
    else:
        done = _live(session, pilot, recorder, status, link)
    if pilot.end is not None and pilot.end.reason is EndReason.REFUSED:
        raise UserError(f"{pilot.cause} (--no-check starts all the same)")
    return done


def _lockstep(session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine) -> tuple[LinkReport, Verdict]:
    world, seed = session.world, session.seed
    assert world is not None
    eye = open_eye(session.camera, session.look, world, session.vehicle.camera, session.profile, seed, session.detector)
    try:
        return fly_lockstep(pilot, world, session.profile, eye, seed, session.laps, recorder, status)
    finally:
        eye.close()


def _embedded(session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine) -> tuple[LinkReport, Verdict]:
    assert session.world is not None
    with (
        MavlinkClient("127.0.0.1", 0, session.profile) as client,
        PerceptionProcess(
            partial(VideoReceiver, "127.0.0.1", 0), session.vehicle.camera, session.detector
        ) as perception,
        EmbeddedSimulator(
            session.world,
            session.vehicle_name,
            session.profile.name,
            session.look,
            session.seed,
            session.laps,
            session.pose,
            client.address[1],
            perception.address[1],
        ) as simulator,
    ):
        wire = _drive(session, pilot, recorder, status, client, perception, simulator)
        verdict = simulator.verdict(pilot)
    return wire, verdict or live_verdict(pilot, recorder.scoreboard)


def _live(
    session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine, link: Link
) -> tuple[LinkReport, Verdict]:
    with (
        MavlinkClient(*link.mavlink, session.profile, link.peer, link.key) as client,
        PerceptionProcess(_receiver(session, link.video), session.vehicle.camera, session.detector) as perception,
    ):
        wire = _drive(session, pilot, recorder, status, client, perception, None)
    return wire, live_verdict(pilot, recorder.scoreboard)


def _live_lockstep(
    session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine, link: Link
) -> tuple[LinkReport, Verdict]:
    status.command_hz = session.profile.command_hz
    detector = open_detector(session.detector, session.vehicle.camera)
    with (
        MavlinkClient(*link.mavlink, session.profile, link.peer, link.key) as client,
        _receiver(session, link.video)() as receiver,
    ):
        wire = fly_lockstep_live(
            pilot, session.profile, client, receiver, detector, session.timeout_s, recorder, status
        )
    return wire, live_verdict(pilot, recorder.scoreboard)


def _receiver(session: Session, video: Address) -> Callable[[], Receiver]:
    """Opens the images' socket, maybe in another process."""
    return partial(VideoReceiver, *video) if session.vision is None else partial(VisionReceiver, session.vision)


def _drive(
    session: Session,
    pilot: AnyPilot,
    recorder: Recorder,
    status: StatusLine,
    client: MavlinkClient,
    perception: PerceptionProcess,
    simulator: EmbeddedSimulator | None,
) -> LinkReport:
    """The real-time flight; motors off at its end, whatever that was."""
    driver = LiveDriver(pilot, client, perception, session.profile, recorder)

    def tell(pilot: AnyPilot) -> None:
        status.command_hz = client.command_hz
        status(pilot)
        if simulator is not None and pilot.go_t is None:
            simulator.require_alive()

    sys.setswitchinterval(SWITCH_S)
    try:
        with forgiving(pilot, recorder):
            driver.fly(session.timeout_s, tell)
    finally:
        stop_motors(client, pilot, recorder, driver.admit)
    return driver.wire()


def log_verdict(log: Recorder | FlightLog, verdict: Verdict) -> None:
    """The true path, where it is known, and the verdict."""
    if verdict.t is not None and verdict.x is not None:
        for t, x in zip(verdict.t.tolist(), verdict.x, strict=True):
            log.write("truth", t, p=x[:3], q=x[3:7], v=x[7:10], w=x[10:13])
    end = float(verdict.t[-1]) if verdict.t is not None and len(verdict.t) else 0.0
    log.write(
        "referee",
        end,
        status=verdict.status,
        gate_times_s=verdict.gate_times_s,
        gate_margins_m=np.round(verdict.gate_margins_m, 6),
    )


class UnwrittenError(UserError):
    """A result that cannot be written, and stands in the message instead."""

    longest = 1 << 20


def keep(session: Session, outcome: dict[str, Any]) -> None:
    """Writes the result, if it is wanted, in one step.

    Raises:
        UserError: it cannot be written; the error holds it, so that it is not lost.
    """
    path = session.json
    if path is None:
        return
    try:
        write_file(path, json.dumps(outcome, indent=2) + "\n")
    except FileError as error:
        raise UnwrittenError(f"{error}; the result is {json.dumps(outcome)}") from None
