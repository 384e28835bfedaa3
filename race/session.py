"""`Session`: one run, from its settings and models to its result, in every mode, however it ends."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import complain, plain, write_json
from gate_racer.common.config import names
from gate_racer.common.errors import UserError, escaped, say
from gate_racer.common.files import FileError
from gate_racer.common.parts import LIVE_PATIENCE_S, PATIENCE_S
from gate_racer.link.camera import CameraReceiver
from gate_racer.link.client import MavlinkClient, VideoReceiver
from gate_racer.link.msp.client import MspClient
from gate_racer.link.msp.guard import GuardedPort
from gate_racer.link.msp.ports import Port, open_port
from gate_racer.link.msp.preflight import PreflightFile, require_unchanged
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.link.options import NOWHERE, VIEW_PORT, Link
from gate_racer.link.profile import FOLDER as PROFILES
from gate_racer.link.profile import Profile
from gate_racer.link.rflysim.client import Vision, VisionReceiver
from gate_racer.link.sockets import LOOPBACK, parse_address
from gate_racer.mpc.names import AUTO
from gate_racer.mpc.registry import make_controller
from gate_racer.perception.registry import open_detector
from gate_racer.pilot.flight import EndReason, FlightOptions, Phase
from gate_racer.pilot.guidance.exciter import Manoeuvres
from gate_racer.pilot.guidance.explorer import NAME, OPEN, parse_room
from gate_racer.pilot.guidance.rivals import StartGrid
from gate_racer.pilot.handshake import Preflight
from gate_racer.pilot.live import AnyClient, LiveDriver, forgiving, interruptible, stop_motors
from gate_racer.pilot.lockstep import LockstepFlight, UdpLink
from gate_racer.pilot.perception_process import ImageReceiver, PerceptionProcess
from gate_racer.pilot.pilot import (
    AnyPilot,
    PilotModels,
    RacingPilot,
    build_exciter,
    build_explorer,
    build_free,
    build_racer,
)
from gate_racer.pilot.records.flight_log import SCHEMAS, FlightLog
from gate_racer.pilot.records.recorder import Console, Recorder, StatusLine
from gate_racer.pilot.records.result import FlightResult, LinkReport, Verdict, flight_result, live_verdict, world_name
from gate_racer.pilot.records.view import LiveView
from gate_racer.pilot.replanning import InlinePlanner, PlannerProcess, RemainderPlanner, Replanning
from gate_racer.planner.plan import Plan
from gate_racer.planner.replanning import Remainder
from gate_racer.planner.task import PlanOptions
from gate_racer.race.lockstep import EmbeddedSimulator, Entry, fly_lockstep, open_perception
from gate_racer.race.settings import RunSettings
from gate_racer.sim.physics.registry import plant_setting
from gate_racer.sim.simulator import RunSetup
from gate_racer.sim.worlds.world import AS_BELIEVED, World
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import Vehicle

LOG_SUFFIX = ".mcap"


@dataclass(frozen=True)
class Session:
    """Settings and models of a run, and its output files."""

    settings: RunSettings
    track: Track
    vehicle: Vehicle
    profile: Profile
    # None: an exploration, in which only the simulator has the track, or the controller needs none.
    plan: Plan | None = None
    link: Link = NOWHERE  # where to listen, and to whom, when live
    msp: BetaflightProfile | None = None  # flight controller behind the profile, if it speaks MSP
    preflight: tuple[Path, PreflightFile] | None = None  # file that the aircraft must not contradict, with its path
    vision: Vision | None = None  # RflySim's camera, in place of the video stream
    manoeuvres: Manoeuvres | None = None  # flown instead of a plan
    world: World | None = None  # world of the built-in simulator; the rest of the session is the pilot's model
    json: Path | None = None  # where the result is written
    grid: StartGrid | None = None  # start grid of a race of several
    replan: PlanOptions | None = None  # options of the plan, to replan with in flight; None: no replanning

    def pilot(self, planner: RemainderPlanner | None = None) -> RacingPilot:
        """Create a pilot on the pad; without a planner its plan is fixed. Raises UserError without a usable solver."""
        settings, command = self.settings, self.settings.controller.command
        models = PilotModels.of(self.track, self.vehicle, self.profile, settings.perception.estimator, self.patience_s)
        options = FlightOptions(
            laps=self.laps,
            pose=settings.perception.pose,
            preflight=Preflight(self.profile, self.track) if settings.link.check else None,
            by_rates=(self.profile.command if command == AUTO else command) == "rates",
            retry=settings.guidance.retry,
            lands=self.msp is not None,
            grid=self.grid,
            shadow=settings.link.shadow,
            patience_s=self.patience_s,
        )
        if self.manoeuvres is not None:
            return build_exciter(models, self.manoeuvres, self.seed, options)
        name, solver = settings.controller.name, settings.controller.solver
        if self.plan is None:
            return build_free(models, name, options)
        controller = make_controller(name, self.plan, self.vehicle, self.track, solver, options.patience_s)
        if planner is not None and self.replan is not None:
            replanning = Replanning(controller, self.plan, self.track, self.vehicle, self.replan, planner)
            options = replace(options, replanning=replanning)
        return build_racer(models, controller, options)

    @property
    def laps(self) -> int:
        return self.plan.laps if self.plan is not None else self.settings.laps

    @property
    def seed(self) -> int:
        """Seed of the built-in simulator, and of the order of manoeuvres."""
        return self.settings.world.seed

    @property
    def patience_s(self) -> float:
        """Longest call of a user's class, s."""
        return PATIENCE_S if self.settings.link.lockstep else LIVE_PATIENCE_S

    def planner(self) -> AbstractContextManager[RemainderPlanner | None]:
        """Return the planner in flight: beside the loop, or in lock-step while time stands still; None if not requested."""
        if self.replan is None or self.plan is None:
            return nullcontext()
        if self.settings.link.lockstep:
            return closing(InlinePlanner())
        first_s, x = float(self.plan.gate_times_s[0]), self.plan.x[self.plan.gate_nodes[0]]
        return closing(PlannerProcess(Remainder(self.plan, first_s, x, self.track, self.vehicle, self.replan)))

    @property
    def described(self) -> dict[str, Any]:
        """The run for log and result: its settings as a run file has them, and the world, None for an external simulator."""
        return {
            "track": self.track.name,
            "vehicle": self.vehicle.name,
            "plan_hash": self.plan.hash if self.plan is not None else "",
            "seed": self.seed,
            "world": self.world.as_dict() if self.world is not None else None,
            "settings": plain(self.settings),
        }

    def open_log(self, tell: Callable[[str], None]) -> FlightLog:
        """Open a new log, and its live view if requested. Raises UserError where either cannot be opened."""
        record, view = self.settings.record, None
        if record.view:
            view = LiveView(parse_address(record.view, VIEW_PORT), SCHEMAS, self.track, self.plan)
        return FlightLog(self.log_path(), view, record.limit_mb, self.settings.link.lockstep, tell)

    def log_path(self) -> Path:
        """Return the path of the log, that of a new, empty file in a folder."""
        log = self.settings.record.log
        if log.suffix == LOG_SUFFIX:
            return log
        stem = f"{self.track.name}-{time.strftime('%Y%m%d-%H%M%S')}-seed{self.seed}"
        for number in count(1):
            path = log / f"{stem}{f'-{number}' if number > 1 else ''}{LOG_SUFFIX}"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.open("x").close()  # two flights that begin in one second have a file each
            except FileExistsError:
                continue
            except OSError:
                break  # FlightLog tells why
            return path
        return path


SWITCH_S = 5e-4  # s, longest hold of the interpreter by another thread (log, status) while the flight loop waits


def _flown(session: Session, pilot: AnyPilot, recorder: Recorder) -> tuple[LinkReport, Verdict]:
    """Fly and log. Errors as in `fly`."""
    assert recorder.console is not None
    status, link = StatusLine(recorder.console), session.settings.link
    fly = _in_real_time
    if link.lockstep:
        status.command_hz = session.profile.command_hz
        fly = _live_lockstep if link.live else _lockstep
    done = fly(session, pilot, recorder, status)
    if pilot.end is not None and pilot.end.reason is EndReason.REFUSED:
        others = " or ".join(name for name in names(PROFILES) if name != session.profile.name)
        fit = f"another profile may fit (--profile {others}), or probe-link measures one"
        raise UserError(f"{pilot.cause}; {fit}; --set link.check=false starts anyway")
    return done


def _lockstep(session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine) -> tuple[LinkReport, Verdict]:
    world, seed, settings = session.world, session.seed, session.settings
    assert world is not None
    seen = settings.world.camera, settings.world.style, world, session.vehicle.camera, session.profile, seed
    eye = open_perception(*seen, settings.perception.detector)
    try:
        entry, profile = Entry(pilot, eye, recorder, status), session.msp or session.profile
        pose, vio = settings.perception.pose, settings.world.vio_errors(world.track)
        setup = RunSetup(session.laps, pose, plant_setting(settings.world.plant), vio=vio)
        return fly_lockstep(entry, world, profile, seed, setup, settings.link.sitl)
    finally:
        if eye.refused:
            recorder.note("detector", f"no answer to {eye.refused} images, on which it failed")
        eye.close()


def _in_real_time(
    session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine
) -> tuple[LinkReport, Verdict]:
    """Fly a live simulator, or an embedded one, and stop the motors at the end, however the flight ended."""
    settings, simulator = session.settings, None
    with ExitStack() as stack:
        client: AnyClient
        if session.world is None:
            client, receiver = stack.enter_context(closing(_client(session))), _receiver(session)
        else:
            client = own = stack.enter_context(closing(MavlinkClient(LOOPBACK, 0, session.profile)))
            receiver = partial(VideoReceiver, LOOPBACK, 0)
        detector = session.vehicle.camera, settings.perception.detector
        perception = stack.enter_context(PerceptionProcess(receiver, *detector))
        if session.world is not None:
            keys = {
                "vehicle": settings.vehicle,
                "laps": session.laps,
                "plant": settings.world.plant,
                "world.style": settings.world.style,
                "world.seed": session.seed,
                "world.vio": settings.world.vio,
                "link.profile": settings.link.profile,
                "link.pose": str(settings.perception.pose).lower(),
            }
            ports = own.address[1], perception.address[1]
            simulator = stack.enter_context(EmbeddedSimulator(session.world, keys, ports))
        driver = LiveDriver(pilot, client, perception, session.profile, recorder)

        def tell(pilot: AnyPilot) -> None:
            status.command_hz = client.rates.mean_hz
            status(pilot)
            if simulator is not None and pilot.go_t is None:
                simulator.require_alive()

        sys.setswitchinterval(SWITCH_S)
        try:
            with forgiving(pilot, recorder):
                driver.fly(settings.link.wait_s, tell)
        finally:
            stop_motors(client, pilot, recorder, driver.admit)
        verdict = simulator.verdict(pilot) if simulator is not None else None
        if simulator is not None and simulator.trouble:
            recorder.note("simulator", simulator.trouble)
    return driver.link_report(), verdict or live_verdict(pilot, recorder.scoreboard)


def _live_lockstep(
    session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine
) -> tuple[LinkReport, Verdict]:
    settings, link = session.settings, session.link
    detector = open_detector(settings.perception.detector, session.vehicle.camera)
    with (
        MavlinkClient(*link.mavlink, session.profile, link.peer, link.key) as client,
        _receiver(session)() as receiver,
    ):
        wire = UdpLink(client, receiver, session.profile, detector, settings.link.wait_s, lambda: pilot.over)
        flight = LockstepFlight(pilot, session.profile, wire, recorder, status)
        try:
            with forgiving(pilot, recorder):
                flight.fly()
        finally:
            stop_motors(client, pilot, recorder, lockstep=True)
    counters = {f"mavlink_{name}": count for name, count in asdict(client.counters).items()}
    return flight.report(receiver.counters.evicted, counters), live_verdict(pilot, recorder.scoreboard)


def _client(session: Session) -> AnyClient:
    link, asked = session.link, session.settings.link
    if session.msp is not None:
        hover = session.vehicle.throttle.throttle(GRAVITY)
        if asked.shadow:  # without sticks there is nothing to guard
            port: Port = open_port(asked.msp, session.msp.baud, asked.i_have_read)
        else:
            port = GuardedPort(asked.msp, session.msp, hover, asked.i_have_read, session.vehicle.accel_loss(GRAVITY))
        try:
            if session.preflight is not None:
                require_unchanged(port, *session.preflight, session.msp)
        except UserError:
            port.close()
            raise
        return MspClient(port, session.msp, shadow=asked.shadow)
    return MavlinkClient(*link.mavlink, session.profile, link.peer, link.key)


def _receiver(session: Session) -> Callable[[], ImageReceiver]:
    """Return a function that opens camera or image socket, possibly in another process."""
    if session.vision is not None:
        return partial(VisionReceiver, session.vision)
    if source := session.settings.link.camera:
        camera = session.vehicle.camera
        return partial(CameraReceiver, source, (camera.width_px, camera.height_px), session.profile.video_hz)
    return partial(VideoReceiver, *session.link.video)


def fly(session: Session, tell: Callable[[FlightResult], None]) -> FlightResult:
    """Fly a track, and return the result. However the flight ends, signals included, there is a result.

    Args:
        tell: called with the result once it is on disk, before anything is drawn.

    Raises:
        UserError: no solver, no camera, a port in use, no simulator within the time-out, or a contradiction before the start.
            The part of the flight that was flown is on disk; a flight that has not begun leaves no log.
    """
    with session.planner() as planner, interruptible(pilot := session.pilot(planner)):
        with recorded(session, pilot) as recorder:
            if session.world is not None and session.world.deviations != AS_BELIEVED:
                session.world.save(recorder.log.path.with_suffix(".world.yaml"))
            failure, link_report, verdict = None, LinkReport(0.0, 0, 0, {}), None
            try:
                with forgiving(pilot, recorder):
                    link_report, verdict = _flown(session, pilot, recorder)
            except UserError as error:
                pilot.abort(EndReason.ERROR, str(error))
                failure = error
            verdict = verdict or live_verdict(pilot, recorder.scoreboard)
            log_verdict(recorder.log, verdict)
            recorder.conclude(pilot, link_report.frames_dropped)
        models = session.track, session.vehicle, session.plan
        outcome = flight_result(pilot, recorder, verdict, link_report, *models, session.described)
        _keep(session, asdict(outcome))
    if failure is not None:
        _remove_unbegun(pilot, recorder.log.path)
        raise failure
    tell(outcome)
    _draw(session, pilot, recorder, verdict)
    return outcome


def _draw(session: Session, pilot: AnyPilot, recorder: Recorder, verdict: Verdict) -> None:
    """Plot the flight beside the log. A plot that cannot be written causes a warning only."""
    if not recorder.flight.t or pilot.go_t is None:
        return
    from gate_racer.pilot.records.plot import draw_flight  # matplotlib is not loaded until the flight is over

    plot = recorder.log.path.with_suffix(".png")
    try:
        draw_flight(plot, recorder.flight, verdict, session.plan, session.track, session.vehicle, pilot.go_t)
    except FileError as error:
        complain(f"warning: {escaped(str(error))}")


def excite(session: Session) -> tuple[Path, str]:
    """Fly manoeuvres. Return the log, and why they were not completed (empty if they were). Raises as `fly`."""
    pilot = session.pilot()
    with interruptible(pilot), recorded(session, pilot) as recorder:
        _flown(session, pilot, recorder)
    return recorder.log.path, "" if pilot.phase is Phase.FINISHED else pilot.cause


def explore(session: Session) -> dict[str, Any]:
    """Fly by sight; return the JSON: the gates passed, as estimated in flight, m from the pad, world NED. Raises as `fly`."""
    # Only the simulator gets the track; logs do not name it, since the pilot has none.
    session = replace(session, track=replace(session.track, name=NAME))
    settings = session.settings
    preflight = Preflight(session.profile, None) if settings.link.check else None
    room = parse_room(settings.explore.room) if settings.explore.room else OPEN
    asked = settings.explore.opening_m, session.manoeuvres, session.seed
    pilot, explorer = build_explorer(session.vehicle, session.profile, *asked, preflight, room)
    with interruptible(pilot):
        with recorded(session, pilot) as recorder:
            verdict = None
            with forgiving(pilot, recorder):
                _, verdict = _flown(session, pilot, recorder)
            log_verdict(recorder.log, verdict or live_verdict(pilot, recorder.scoreboard))
        gates = {gate.number: gate for gate in pilot.estimator.landmarks}
        found = [gates[number] for number in explorer.passed if number in gates]
        outcome = {
            "status": "explored" if pilot.phase is Phase.FINISHED and explorer.passed else "aborted",
            "cause": pilot.cause,
            "gates_passed": len(explorer.passed),
            "gates_seen": len(gates),
            "time_s": pilot.estimator.t - pilot.go_t if pilot.go_t is not None else None,
            "gates": [
                {"position_m": np.round(g.p_w, 3).tolist(), "yaw_deg": round(float(np.degrees(g.yaw)), 2)}
                for g in found
            ],
            "world": session.described["world"],  # None where it is unknown
            "settings": session.described["settings"],
            "log": str(recorder.log.path),
            "troubles": recorder.troubles,
        }
        _keep(session, outcome)
    return outcome


def summary(outcome: dict[str, Any]) -> str:
    lines = [
        f"{outcome['status']}: {outcome['cause']}; world {world_name(outcome['world'])}",
        f"passed {outcome['gates_passed']} of {outcome['gates_seen']} gates seen",
    ]
    for i, gate in enumerate(outcome["gates"]):
        place = ", ".join(f"{x:.1f}" for x in gate["position_m"])
        lines.append(f"  gate {i}: about ({place}) m from the pad, yaw {gate['yaw_deg']:.0f} deg")
    lines += [f"trouble: {sentence}" for sentence in outcome["troubles"].values()]
    return "\n".join([*lines, f"log {outcome['log']}"])


def _remove_unbegun(pilot: AnyPilot, log: Path) -> None:
    if pilot.go_t is None:
        for path in (log, log.with_suffix(".world.yaml")):
            path.unlink(missing_ok=True)


@contextmanager
def recorded(session: Session, pilot: AnyPilot) -> Iterator[Recorder]:
    """Record into a new log; what is missing in it is noted when it is closed. Raises UserError where none can be opened."""
    console = Console()
    recorder = Recorder(session.open_log(console.say), console)
    planned = session.plan.passage_times_s(session.track) if session.plan is not None else []
    about = session.described
    about["world"] = about["world"] or {}
    recorder.log.write("flight", 0.0, **about, planned_gate_times_s=planned, profile=session.profile.name)
    failed = True
    try:
        yield recorder
        failed = False
    finally:
        recorder.phase(pilot)  # what ended the flight may be no tick
        recorder.close()
        console.close()
        if failed:
            _remove_unbegun(pilot, recorder.log.path)


def log_verdict(log: FlightLog, verdict: Verdict) -> None:
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


def _keep(session: Session, outcome: dict[str, Any]) -> None:
    """Write the result as JSON if a file is requested; one that cannot be written is printed. Raises UserError."""
    try:
        write_json(session.json, outcome)
    except FileError:
        say(json.dumps(plain(outcome)))
        raise
