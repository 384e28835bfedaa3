"""The closed loop: pilots and their simulators in one process, tick by tick, deterministic for a seed.

A single flight is a race of one. Behind a flight controller, sticks and polls go over a simulated serial line, images beside it.
Exposures become detected images by rendered images or projected corners.

In real time the simulator is embedded: `race-sim` as a child process on free loopback ports, whose verdict is read at the end.
"""

import contextlib
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

from gate_racer.common.errors import UserError
from gate_racer.common.process import command_line
from gate_racer.link.client import ClientCodec
from gate_racer.link.clock import StreamClock
from gate_racer.link.messages import Arm, Command, Imu, Telemetry, TimesyncReply
from gate_racer.link.msp.client import MspClient
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.link.profile import Profile, RateDivider
from gate_racer.link.video import datagrams, image_reassembler
from gate_racer.perception.detection import Detection
from gate_racer.perception.registry import CLASSICAL, open_detector
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import DetectedImage, Phase
from gate_racer.pilot.lockstep import LockstepFlight, LockstepLink
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import LinkReport, Verdict
from gate_racer.sim.betaflight.sitl import firmware
from gate_racer.sim.betaflight.station import BetaflightStation, StationPort
from gate_racer.sim.multi_vehicle import MultiVehicleRace, MultiVehicleSetup
from gate_racer.sim.report import RunReport, read_report, report
from gate_racer.sim.simulator import USUAL, Exposure, RunSetup, Simulator
from gate_racer.sim.view.feed import Feed
from gate_racer.sim.view.projected import ProjectedCamera, SeenGate
from gate_racer.sim.view.style import load_style
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import AS_BELIEVED, World
from gate_racer.vehicle.camera import Camera


class LockstepPerception(ABC):
    """Converter of exposures to detections."""

    def __init__(self, profile: Profile, clock: StreamClock | None):
        """`clock`: converter of stamps; None: the time of exposure is known."""
        self._profile, self.clock = profile, clock

    @abstractmethod
    def see(self, exposure: Exposure, t: float, window: SearchWindow) -> list[DetectedImage]:
        """Return the images that arrive from an exposure at the simulator's time t (s)."""

    @property
    def refused(self) -> int:
        return 0

    def close(self) -> None:
        """Release the camera."""
        return None

    def _stamped(self, sent: float, t: float, late_s: float) -> float | None:
        """Return the time of exposure of an image with the stamp `sent` (s), exposed at t (s); None if it is refused."""
        assert self.clock is not None
        return self.clock.stream(sent, t + self._profile.video_latency_s + late_s)

    @property
    def _sigma_s(self) -> float:
        return self.clock.sigma_s if self.clock is not None else 0.0


class RenderedPerception(LockstepPerception):
    """Perception that renders, compresses, packetises, reassembles, decodes and detects; stamps pass the client's clock model."""

    def __init__(self, world: World, camera: Camera, profile: Profile, style: str, seed: int, detector: str):
        """`camera`: the detector's model of it. Raises UserError if this machine cannot render, or for an unknown detector."""
        super().__init__(profile, StreamClock.of(profile))
        self._detector = open_detector(detector, camera)
        self._feed = Feed(world.track, world.vehicle, world.seen(load_style(style)), seed)
        self._reassembler = image_reassembler()

    @property
    def refused(self) -> int:
        return self._detector.refused

    def see(self, exposure: Exposure, t: float, window: SearchWindow) -> list[DetectedImage]:
        images = []
        for datagram in datagrams(self._feed.frame(exposure), self._profile):
            frame = self._reassembler.feed(datagram)
            stamp = self._stamped(frame.t, t, exposure.late_s) if frame else None
            if frame is not None and stamp is not None:
                detections = self._detector.detect_encoded(frame.jpeg, window)
                images.append(DetectedImage(stamp, frame.id, detections, frame.jpeg, self._sigma_s, window))
        return images

    def close(self) -> None:
        self._feed.close()


class ProjectedPerception(LockstepPerception):
    """Perception that projects corners and adds the detector's errors, some fifty times faster; its images hold no pixels.

    With a nominal clock and latency of the video the time of exposure is exact; else the client's clock model converts stamps.
    """

    def __init__(self, world: World, profile: Profile, style: str, seed: int):
        as_believed = world.deviations.link == AS_BELIEVED.link
        super().__init__(profile, None if as_believed else StreamClock.of(profile))
        self._camera = ProjectedCamera(
            world.track, world.vehicle.camera, world.seen(load_style(style)), seed, off=world.deviations.camera
        )

    def see(self, exposure: Exposure, t: float, window: SearchWindow) -> list[DetectedImage]:
        pose = exposure.p_wb, exposure.q_wb, exposure.v_w, exposure.omega_b
        seen = detections(self._camera.see(*pose, exposure.rivals))
        if self.clock is None:
            return [DetectedImage(exposure.t, exposure.id, seen)]
        stamp = self._stamped(self._profile.video_stamp(exposure.stamp) * 1e-9, t, exposure.late_s)
        if stamp is None:
            return []
        return [DetectedImage(stamp, exposure.id, seen, clock_sigma=self._sigma_s)]


def detections(seen: list[SeenGate]) -> list[Detection]:
    """Return the detections for the gates seen by the projected camera."""
    return [Detection.partly(gate.corners_px, gate.measured, gate.visible, gate.sigma_px, gate.score) for gate in seen]


def open_perception(
    camera: str, style: str, world: World, camera_model: Camera, profile: Profile, seed: int, detector: str = CLASSICAL
) -> LockstepPerception:
    """Open the camera `rendered`, for which the detector and `camera_model` are, or `projected`. Raises UserError."""
    if camera == "rendered":
        return RenderedPerception(world, camera_model, profile, style, seed, detector)
    return ProjectedPerception(world, profile, style, seed)


PILOT = "pilot", 0  # address of the client in the simulator


@dataclass(frozen=True, slots=True)
class Entry:
    """Pilot of one vehicle, its camera and its log."""

    pilot: AnyPilot
    eye: LockstepPerception
    recorder: Recorder
    status: Callable[[AnyPilot], None] = lambda pilot: None  # called after each tick


def fly_lockstep(
    entry: Entry,
    world: World,
    profile: Profile | BetaflightProfile,
    seed: int,
    setup: RunSetup = USUAL,
    sitl: Path | None = None,
) -> tuple[LinkReport, Verdict]:
    """Fly in a simulator of its own until the pilot is done; without a setting, in the best known one for the vehicle.

    Args:
        world: the truth; the pilot has its own model.
        profile: a BetaflightProfile puts the simulated flight controller between pilot and vehicle.
        sitl: Betaflight's own program as that flight controller.
    """
    if not isinstance(profile, BetaflightProfile):
        given = {one.name: getattr(setup, one.name) for one in fields(setup)} | {"pose": entry.pilot.pose}
        alone = MultiVehicleSetup(**given)
        race = MultiVehicleRace(world, profile, seed, alone)
        return fly_together(race, [entry])[0]
    with firmware(sitl, profile, world.vehicle) if sitl is not None else contextlib.nullcontext() as program:
        station = BetaflightStation(world, profile, seed, setup, sitl=program)
        link = BetaflightLink(station, profile, entry.eye)
        flight = LockstepFlight(entry.pilot, profile.wire, link, entry.recorder, entry.status)
        flight.fly()
        link.disarm()
        return _ended(flight, link)


def fly_together(race: MultiVehicleRace, entries: Sequence[Entry]) -> list[tuple[LinkReport, Verdict]]:
    """Fly until every pilot is done; a pilot that is done earlier disarms, falls, and remains an obstacle."""
    links = [EmbeddedLink(one, entry.eye) for one, entry in zip(race.simulators, entries, strict=True)]
    flights = [
        LockstepFlight(entry.pilot, race.profile, link, entry.recorder, entry.status)
        for link, entry in zip(links, entries, strict=True)
    ]
    running = dict(enumerate(map(iter, flights)))
    while True:
        for k in [k for k, flight in running.items() if next(flight, True)]:
            del running[k]
            links[k].disarm()
        if not running:
            return [_ended(flight, link) for flight, link in zip(flights, links, strict=True)]
        for k, link in enumerate(links):
            if k not in running:
                link.simulator.tick()
        race.settle()


def _ended(flight: LockstepFlight, link: "SimulatedLink") -> tuple[LinkReport, Verdict]:
    if trouble := link.simulator.plant.trouble:
        flight.recorder.note("plant", trouble)
    return flight.report(0, link.counters), referees_verdict(report(link.simulator), flight.pilot)


class SimulatedLink(LockstepLink):
    """Link to a simulator in this process, and to its camera."""

    def __init__(self, simulator: Simulator, eye: LockstepPerception):
        self.simulator, self._eye = simulator, eye

    def hold_clock(self) -> None:
        if self._eye.clock is not None:
            self._eye.clock.hold()

    def _refer(self, received: list[Telemetry]) -> None:
        """Record for the clock of the images that telemetry with its stamps has left the simulator now."""
        for message in received:
            if isinstance(message, Imu) and self._eye.clock is not None:
                self._eye.clock.reference(message.t, self.t)

    def hold(self) -> None:
        """Do nothing: the simulator does not wait for an answer."""

    def disarm(self) -> None:
        self.simulator.command(Arm(False))

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the link: none where nothing is lost in it."""
        return {}


class EmbeddedLink(SimulatedLink):
    """Both ends of the link in one process: all messages are encoded to bytes, by the profile's conventions."""

    def __init__(self, simulator: Simulator, eye: LockstepPerception):
        super().__init__(simulator, eye)
        profile = simulator.profile
        self._station, self.codec = Station(simulator), ClientCodec(profile)
        self._heartbeat = RateDivider(profile.client_heartbeat_hz, profile.physics_hz)

    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        """Advance one tick and return the telemetry as decoded by the client."""
        packets, exposure = self._station.tick()
        t = self.t = self.now = self.simulator.t
        received: list[Telemetry] = []
        for packet in packets:
            for message in self.codec.decode(packet):
                assert not isinstance(message, TimesyncReply), "no time synchronisation was requested"
                received.append(message)
        self._refer(received)
        for reply in self.codec.timesync_replies(t):
            self._station.receive(reply, PILOT, t)
        self.images = self._eye.see(exposure, t, window()) if exposure is not None else []
        self.late_s = exposure.late_s if exposure is not None else 0.0
        if self._heartbeat(self.simulator.count):
            for datagram in (self.codec.heartbeat(), *self.codec.requests(t)):
                self._station.receive(datagram, PILOT, t)
        return received

    def send(self, command: Command, t: float) -> None:
        """Send a command stamped t (s), which arrives within the tick."""
        self._station.receive(self.codec.encode(command, t), PILOT, self.simulator.t)


class BetaflightLink(SimulatedLink):
    """Link that advances by physics steps. Every message takes its transmission time on the line."""

    def __init__(
        self, station: BetaflightStation, profile: BetaflightProfile, eye: LockstepPerception, shadow: bool = False
    ):
        super().__init__(station.simulator, eye)
        self._port, self._step_s = StationPort(station), 1 / profile.wire.physics_hz
        self.client = MspClient(self._port, profile, self._port.clock, shadow)

    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        """Return what the line delivers within one physics step."""
        received, end = list[Telemetry](), self.t + self._step_s
        while self._port.t < end - 1e-9:
            news = (message for _, message in self.client.receive(end - self._port.t))
            received += [message for message in news if not isinstance(message, TimesyncReply)]
        self.t = self.now = self._port.t
        self._refer(received)
        exposures = self._port.exposures()
        self.images = [image for one in exposures for image in self._eye.see(one, self.t, window())]
        self.late_s = exposures[-1].late_s if exposures else 0.0
        return received

    def send(self, command: Command, t: float) -> None:
        """Pass on a command; its sticks are sent within the next tick."""
        self.client.send(command, self.t, t)

    def disarm(self) -> None:
        self.send(Arm(False), self.t)

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the serial line."""
        return {f"msp_{name}": count for name, count in asdict(self.client.counters).items()}


STOP_S = 5.0  # s to wait for the process at each step of the shutdown


class EmbeddedSimulator:
    """Child process that starts on entering the context and ends on leaving it."""

    def __init__(self, world: World, options: Mapping[str, object], ports: tuple[int, int]):
        """Take further settings of `race-sim` by their keys, and the pilot's loopback ports for telemetry and video."""
        self.trouble = ""  # stderr of the simulator, once it has ended
        self._folder = TemporaryDirectory()
        self._report, true_world = (Path(self._folder.name) / name for name in ("report.json", "world.yaml"))
        world.save(true_world)
        client, video = (f"127.0.0.1:{port}" for port in ports)
        own = {"world.file": true_world, "once": "true", "link.bind": "127.0.0.1:0"}
        keys = {**options, **own, "link.client": client, "link.video": video}
        code = "from gate_racer.common.command import main; main('gate_racer.race.race_sim')"
        race_sim = command_line(code, "--track", world.published.file, tied=True)
        self._command = [*race_sim, "--report", str(self._report)]
        self._command += ["--set", *(f"{name}={value}" for name, value in keys.items())]

    def __enter__(self) -> "EmbeddedSimulator":
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # whose end, at the latest that of this process, ends the simulator
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._folder.cleanup()

    def require_alive(self) -> None:
        """Raise UserError with the simulator's own message if it could not start."""
        if self._process.poll() not in (None, 0):
            self._stop()
            raise UserError(self.trouble.removeprefix("error: ") or "the simulator exited at its start")

    def verdict(self, pilot: AnyPilot) -> Verdict | None:
        """Wait for the end of the run and return the referee's verdict; None without a report."""
        if pilot.go_t is not None:  # without a race it does not end by itself
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        self._stop()
        return referees_verdict(read_report(self._report), pilot) if self._report.exists() else None

    def _stop(self) -> None:
        assert self._process.stderr is not None
        if self._process.stderr.closed:
            return
        self._process.terminate()
        try:
            said = self._process.communicate(timeout=STOP_S)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            said = self._process.communicate()[1]
        self.trouble = said.strip()


def referees_verdict(reported: RunReport, pilot: AnyPilot) -> Verdict:
    """Return the referee's verdict. A pilot that has finished by its estimate while the referee still waits has missed a gate."""
    status, cause = reported.status, reported.cause
    if status == "aborted" and pilot.phase is Phase.FINISHED:
        status, cause = "missed_gate", f"gate {len(reported.gate_times_s)} was not passed"
    elif status == "waiting":
        status, cause = "aborted", pilot.cause
    elif status == "aborted":
        cause = pilot.cause or cause
    return Verdict(status, cause, reported.gate_times_s, reported.gate_margins_m, reported.t, reported.x)
