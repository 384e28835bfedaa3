"""One flight from its settings to its result, in any of the three ways: lock-step, embedded in real time, live."""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from estimation.choice import make_estimator
from link.messages import Arm
from link.profile import Profile
from link.rflysim.vision import Vision, VisionReceiver
from link.udp import MavlinkClient, VideoReceiver
from mpc.make import make_controller
from mpc.solver import AUTO
from perception.association import Associator
from perception.detectors import open_detector
from pilot.embedded import EmbeddedSimulator
from pilot.excite import Exciter, ExcitingPilot
from pilot.flight import Phase
from pilot.flight_log import SCHEMAS, FlightLog
from pilot.live import LiveDriver
from pilot.lockstep import fly_lockstep, fly_lockstep_live, open_eye
from pilot.manoeuvres import Manoeuvres
from pilot.perceive import PerceptionProcess, Receiver
from pilot.pilot import Pilot
from pilot.preflight import Preflight
from pilot.recorder import Recorder
from pilot.result import Verdict, Wire, pilots_verdict, result
from pilot.status import StatusLine
from pilot.view import LiveView
from planner.plan import Plan
from sim.worlds.distribution import described, save
from sim.worlds.world import World
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.vehicle import Vehicle

Address = tuple[str, int]


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

    def pilot(self) -> Pilot:
        """A pilot on the pad. Raises UserError without a usable solver."""
        associator = Associator(self.track.gates, self.vehicle.camera)
        estimator = make_estimator(self.estimator, self.track.start, self.vehicle, associator.look)
        preflight = Preflight(self.profile, self.track) if self.check else None
        parts = self.track, self.vehicle, self.profile, estimator, associator
        if self.manoeuvres is not None:
            exciter = Exciter(self.vehicle, self.track, self.manoeuvres, self.seed)
            return ExcitingPilot(*parts, exciter, self.pose, preflight)
        assert self.plan is not None, "either a plan or manoeuvres"
        controller = make_controller(
            self.controller, self.plan, self.vehicle, self.track.course(self.laps), self.solver
        )
        return Pilot(*parts, controller, self.laps, self.pose, preflight, self.command == "rates")

    @property
    def described_world(self) -> dict[str, Any] | None:
        """For log and result; None of a simulator elsewhere."""
        return described(self.world) if self.world is not None else None

    def open_log(self) -> FlightLog:
        """A new log, and the live view of it. Raises UserError when either cannot be had."""
        view = LiveView(self.view, SCHEMAS, self.track, self.plan) if self.view is not None else None
        return FlightLog(self.log_path(), view)

    def log_path(self) -> Path:
        """A new file, named by track, time and seed."""
        stem = f"{self.track.name}-{time.strftime('%Y%m%d-%H%M%S')}-seed{self.seed}"
        path, number = self.log_folder / f"{stem}.mcap", 1
        while path.exists():
            number += 1
            path = self.log_folder / f"{stem}-{number}.mcap"
        return path


def fly(session: Session, mode: str, listen: Address, video: Address) -> dict[str, Any]:
    """Flies a plan and returns the result; Ctrl-C aborts the flight and still returns it.

    Args:
        mode: "lockstep", "embedded", "live" or "live-lockstep".
        listen, video: where to bind MAVLink and video when live.

    Raises:
        UserError: no solver, no camera, a port in use, no simulator within the time-out, or a contradiction before the start.
    """
    pilot, plan = session.pilot(), session.plan
    assert plan is not None
    log = session.open_log()
    recorder = Recorder(log)
    if session.world is not None and not session.world.nominal:
        save(log.path.with_suffix(".world.yaml"), session.world)
    try:
        wire, verdict = flown(session, pilot, mode, listen, video, recorder)
        log_verdict(log, verdict)
        parts = plan, session.track, session.vehicle, session.seed
        outcome = result(pilot, recorder.flight, verdict, wire, *parts, str(log.path), session.described_world)
    finally:
        log.close()
    if recorder.flight.t and pilot.go_t is not None:
        from pilot.picture import draw_flight  # matplotlib stays out of the process until the flight is over

        picture = log.path.with_suffix(".png")
        draw_flight(picture, recorder.flight, verdict, plan, session.track, session.vehicle, pilot.go_t)
    return outcome


def excite(session: Session, mode: str, listen: Address, video: Address) -> tuple[Path, str]:
    """Flies manoeuvres; the log, and why they were not flown to the end (empty if they were). Raises as `fly`."""
    pilot, log = session.pilot(), session.open_log()
    try:
        flown(session, pilot, mode, listen, video, Recorder(log))
    finally:
        log.close()
    return log.path, "" if pilot.phase is Phase.FINISHED else pilot.reason


def flown(
    session: Session, pilot: Pilot, mode: str, listen: Address, video: Address, recorder: Recorder
) -> tuple[Wire, Verdict]:
    """The flight itself, into a log. Arguments and errors as of `fly`."""
    # An orderly abort instead of an exception, which could strike anywhere.
    signal.signal(signal.SIGINT, lambda *_: pilot.abort("interrupted"))
    status = StatusLine()
    plan_hash = session.plan.hash if session.plan is not None else ""
    about = {"track": session.track.name, "vehicle": session.vehicle.name, "plan_hash": plan_hash}
    recorder.begin(**about, world=session.described_world or {}, seed=session.seed, profile=session.profile.name)
    if mode == "lockstep":
        status.command_hz = session.profile.command_hz
        done = _lockstep(session, pilot, recorder, status)
    elif mode == "embedded":
        done = _embedded(session, pilot, recorder, status)
    elif mode == "live-lockstep":
        done = _live_lockstep(session, pilot, recorder, status, listen, video)
    else:
        done = _live(session, pilot, recorder, status, listen, video)
    status.done()
    if pilot.refused:
        raise UserError(f"refused to start: {pilot.refused} (--no-check starts all the same)")
    return done


def _lockstep(session: Session, pilot: Pilot, recorder: Recorder, status: StatusLine) -> tuple[Wire, Verdict]:
    world, seed = session.world, session.seed
    assert world is not None
    eye = open_eye(session.camera, session.look, world, session.vehicle.camera, session.profile, seed, session.detector)
    try:
        return fly_lockstep(pilot, world, session.profile, eye, seed, session.laps, recorder, status)
    finally:
        eye.close()


def _embedded(session: Session, pilot: Pilot, recorder: Recorder, status: StatusLine) -> tuple[Wire, Verdict]:
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
    return wire, verdict or pilots_verdict(pilot)


def _live(
    session: Session, pilot: Pilot, recorder: Recorder, status: StatusLine, listen: Address, video: Address
) -> tuple[Wire, Verdict]:
    with (
        MavlinkClient(*listen, session.profile) as client,
        PerceptionProcess(_receiver(session, video), session.vehicle.camera, session.detector) as perception,
    ):
        wire = _drive(session, pilot, recorder, status, client, perception, None)
    return wire, pilots_verdict(pilot)


def _live_lockstep(
    session: Session, pilot: Pilot, recorder: Recorder, status: StatusLine, listen: Address, video: Address
) -> tuple[Wire, Verdict]:
    status.command_hz = session.profile.command_hz
    detector = open_detector(session.detector, session.vehicle.camera)
    with MavlinkClient(*listen, session.profile) as client, _receiver(session, video)() as receiver:
        wire = fly_lockstep_live(
            pilot, session.profile, client, receiver, detector, session.timeout_s, recorder, status
        )
    return wire, pilots_verdict(pilot)


def _receiver(session: Session, video: Address) -> Callable[[], Receiver]:
    """Opens the pictures' socket, maybe in another process."""
    return partial(VideoReceiver, *video) if session.vision is None else partial(VisionReceiver, session.vision)


def _drive(
    session: Session,
    pilot: Pilot,
    recorder: Recorder,
    status: StatusLine,
    client: MavlinkClient,
    perception: PerceptionProcess,
    simulator: EmbeddedSimulator | None,
) -> Wire:
    """The real-time flight; motors off at its end, whatever that was."""
    driver = LiveDriver(pilot, client, perception, session.profile, recorder)

    def tell(pilot: Pilot) -> None:
        status.command_hz = client.command_hz
        status(pilot)
        if simulator is not None and pilot.go_t is None:
            simulator.require_alive()

    wire = driver.fly(session.timeout_s, tell)
    client.send(Arm(False), time.monotonic(), pilot.estimator.t)
    return wire


def log_verdict(log: FlightLog, verdict: Verdict) -> None:
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


def write_result(path: Path, outcome: dict[str, Any]) -> None:
    """Writes the JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(outcome, indent=2) + "\n", encoding="utf-8")
