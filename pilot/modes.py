"""Run a session in each mode: lock-step, embedded in real time, live, live in lock-step."""

import sys
from collections.abc import Callable
from functools import partial

from gate_racer.link.msp.client import MspClient
from gate_racer.link.msp.guard import GuardedPort
from gate_racer.link.msp.ports import Port, open_port
from gate_racer.link.msp.preflight import require_unchanged
from gate_racer.link.options import Link
from gate_racer.link.peer import Address
from gate_racer.link.rflysim.vision import VisionReceiver
from gate_racer.link.udp import MavlinkClient, VideoReceiver
from gate_racer.perception.registry import open_detector
from gate_racer.pilot.drivers.betaflight import fly_betaflight
from gate_racer.pilot.drivers.embedded import EmbeddedSimulator
from gate_racer.pilot.drivers.ending import AnyClient, forgiving, stop_motors
from gate_racer.pilot.drivers.live import LiveDriver
from gate_racer.pilot.drivers.lockstep import fly_lockstep, fly_lockstep_live
from gate_racer.pilot.drivers.lockstep_perception import open_perception
from gate_racer.pilot.drivers.perception_process import ImageReceiver, PerceptionProcess
from gate_racer.pilot.flight import EndReason
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import LinkReport, Verdict, live_verdict
from gate_racer.pilot.records.status import StatusLine
from gate_racer.pilot.session import Session
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.errors import UserError

SWITCH_S = 5e-4  # s, longest hold of the interpreter by another thread (log, status) while the flight loop waits


def flown(session: Session, pilot: AnyPilot, mode: str, link: Link, recorder: Recorder) -> tuple[LinkReport, Verdict]:
    """Fly and log. Arguments and errors as in `pilot.run.fly`."""
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
        raise UserError(f"{pilot.cause} (--no-check starts anyway)")
    return done


def _lockstep(session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine) -> tuple[LinkReport, Verdict]:
    world, seed = session.world, session.seed
    assert world is not None
    eye = open_perception(
        session.camera, session.look, world, session.vehicle.camera, session.profile, seed, session.detector
    )
    try:
        if session.msp is not None:
            return fly_betaflight(
                pilot, world, session.msp, eye, seed, session.laps, recorder, status, sitl=session.sitl
            )
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
        link_report = _drive(session, pilot, recorder, status, client, perception, simulator)
        verdict = simulator.verdict(pilot)
        if simulator.trouble:
            recorder.note("simulator", simulator.trouble)
    return link_report, verdict or live_verdict(pilot, recorder.scoreboard)


def _live(
    session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine, link: Link
) -> tuple[LinkReport, Verdict]:
    with (
        _client(session, link) as client,
        PerceptionProcess(_receiver(session, link.video), session.vehicle.camera, session.detector) as perception,
    ):
        link_report = _drive(session, pilot, recorder, status, client, perception, None)
    return link_report, live_verdict(pilot, recorder.scoreboard)


def _live_lockstep(
    session: Session, pilot: AnyPilot, recorder: Recorder, status: StatusLine, link: Link
) -> tuple[LinkReport, Verdict]:
    status.command_hz = session.profile.command_hz
    detector = open_detector(session.detector, session.vehicle.camera)
    with (
        MavlinkClient(*link.mavlink, session.profile, link.peer, link.key) as client,
        _receiver(session, link.video)() as receiver,
    ):
        link_report = fly_lockstep_live(
            pilot, session.profile, client, receiver, detector, session.timeout_s, recorder, status
        )
    return link_report, live_verdict(pilot, recorder.scoreboard)


def _client(session: Session, link: Link) -> AnyClient:
    """Open the serial line to a flight controller, or the MAVLink socket."""
    if session.msp is not None:
        hover = session.vehicle.throttle.throttle(GRAVITY)
        if session.shadow:
            port: Port = open_port(link.msp, session.msp.baud, link.consent)  # without sticks there is nothing to guard
        else:
            port = GuardedPort(link.msp, session.msp, hover, link.consent, session.vehicle.accel_loss(GRAVITY))
        try:
            if session.preflight is not None:
                require_unchanged(port, *session.preflight, session.msp)
        except UserError:
            port.close()
            raise
        return MspClient(port, session.msp, shadow=session.shadow)
    return MavlinkClient(*link.mavlink, session.profile, link.peer, link.key)


def _receiver(session: Session, video: Address) -> Callable[[], ImageReceiver]:
    """Return a function that opens the image socket, possibly in another process."""
    return partial(VideoReceiver, *video) if session.vision is None else partial(VisionReceiver, session.vision)


def _drive(
    session: Session,
    pilot: AnyPilot,
    recorder: Recorder,
    status: StatusLine,
    client: AnyClient,
    perception: PerceptionProcess,
    simulator: EmbeddedSimulator | None,
) -> LinkReport:
    """Fly in real time, and stop the motors at the end, however the flight ended."""
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
    return driver.link_report()
