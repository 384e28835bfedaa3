"""The lock-step flight in a simulator of its own, in this process, deterministic for a seed and as fast as the machine can."""

from collections.abc import Callable

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import Arm, Command, Imu, Telemetry, TimesyncReply
from gate_racer.link.profile import Profile, RateDivider
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import DetectedImage
from gate_racer.pilot.lockstep import fly_link, rates
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import LinkReport, Verdict
from gate_racer.race.embedded import referees_verdict
from gate_racer.race.perception import LockstepPerception
from gate_racer.sim.physics.plant import UnmodelledAcceleration
from gate_racer.sim.physics.swift_plant import Setting
from gate_racer.sim.report import report
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import World

PILOT = "pilot", 0  # address of the client in the simulator


def fly_lockstep(
    pilot: AnyPilot,
    world: World,
    profile: Profile,
    eye: LockstepPerception,
    seed: int,
    laps: int,
    recorder: Recorder,
    status: Callable[[AnyPilot], None],
    setting: Setting | None = None,
    residual: UnmodelledAcceleration | None = None,
) -> tuple[LinkReport, Verdict]:
    """Fly in a simulator of its own until the pilot is done; without a setting, in the best known one for the vehicle.

    The pilot has its own model; `world` is the truth, and `residual` adds an acceleration that no model contains.
    """
    simulator = Simulator(world, profile, seed, laps, pose=pilot.pose, setting=setting, residual=residual)
    sent: list[float] = []
    fly_link(pilot, profile, EmbeddedLink(simulator, eye), recorder, status, sent)
    simulator.command(Arm(False))
    return LinkReport(*rates(sent), frames_dropped=0, counters={}), referees_verdict(report(simulator), pilot)


class EmbeddedLink:
    """Both ends of the link in one process: all messages are encoded to bytes, by the profile's conventions."""

    def __init__(self, simulator: Simulator, eye: LockstepPerception):
        profile = simulator.profile
        self.simulator, self._eye = simulator, eye
        self._station, self.codec = Station(simulator), ClientCodec(profile)
        self._heartbeat = RateDivider(profile.client_heartbeat_hz, profile.physics_hz)
        self.t = self.now = 0.0
        self.images: list[DetectedImage] = []
        self.late_s = 0.0

    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        """Advance one tick and return the telemetry as decoded by the client."""
        packets, exposure = self._station.tick()
        t = self.t = self.now = self.simulator.t
        received: list[Telemetry] = []
        for packet in packets:
            for message in self.codec.decode(packet):
                assert not isinstance(message, TimesyncReply), "no time synchronisation was requested"
                received.append(message)
                if isinstance(message, Imu):
                    self._eye.refer(message.t, t)
        for reply in self.codec.timesync_replies(t):
            self._station.receive(reply, PILOT, t)
        self.images = self._eye.see(exposure, t, window()) if exposure is not None else []
        self.late_s = exposure.late_s if exposure is not None else 0.0
        if self._heartbeat(self.simulator.count):
            for datagram in (self.codec.heartbeat(), *self.codec.requests(t)):
                self._station.receive(datagram, PILOT, t)
        return received

    def hold_clock(self) -> None:
        self._eye.hold()

    def send(self, command: Command, t: float) -> None:
        """Send a command stamped t (s), which arrives within the tick."""
        self._station.receive(self.codec.encode(command, t), PILOT, self.simulator.t)

    def hold(self, t: float) -> None:
        """Do nothing: the next tick needs no request."""
