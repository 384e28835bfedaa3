"""The lock-step driver behind a flight controller: sticks and polls on a simulated serial line, images beside it."""

import contextlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from gate_racer.link.messages import Arm, Command, Imu, Telemetry, TimesyncReply
from gate_racer.link.msp.client import MspClient
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import DetectedImage
from gate_racer.pilot.lockstep import fly_link, rates
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import LinkReport, Verdict
from gate_racer.race.embedded import referees_verdict
from gate_racer.race.perception import LockstepPerception
from gate_racer.sim.betaflight.sitl import firmware
from gate_racer.sim.betaflight.station import BetaflightStation, StationPort
from gate_racer.sim.physics.plant import UnmodelledAcceleration
from gate_racer.sim.physics.swift_plant import Setting
from gate_racer.sim.report import report
from gate_racer.sim.worlds.world import World


def fly_betaflight(
    pilot: AnyPilot,
    world: World,
    profile: BetaflightProfile,
    eye: LockstepPerception,
    seed: int,
    laps: int,
    recorder: Recorder,
    status: Callable[[AnyPilot], None],
    setting: Setting | None = None,
    residual: UnmodelledAcceleration | None = None,
    sitl: Path | None = None,
) -> tuple[LinkReport, Verdict]:
    """Fly the simulated aircraft until the pilot is done, as `fly_lockstep` does without a flight controller.

    `sitl`: Betaflight's own program as flight controller. Raises UserError as `sim.betaflight.sitl.firmware`.
    """
    with (
        firmware(sitl, profile, world.vehicle) if sitl is not None else contextlib.nullcontext() as process_human_input
    ):
        station = BetaflightStation(world, profile, seed, laps, setting, residual=residual, sitl=process_human_input)
        link, sent = BetaflightLink(station, profile, eye), list[float]()
        fly_link(pilot, profile.wire, link, recorder, status, sent)
        link.send(Arm(False), link.t)
    counters = {f"msp_{name}": count for name, count in asdict(link.client.counters).items()}
    return LinkReport(*rates(sent), 0, counters), referees_verdict(report(station.simulator), pilot)


class BetaflightLink:
    """`LockstepLink` that advances by physics steps. Every message takes its transmission time on the line."""

    def __init__(
        self, station: BetaflightStation, profile: BetaflightProfile, eye: LockstepPerception, shadow: bool = False
    ):
        self._port, self._eye = StationPort(station), eye
        self._step_s = 1 / profile.wire.physics_hz
        self.client = MspClient(self._port, profile, self._port.clock, shadow)
        self.t = self.now = 0.0
        self.images: list[DetectedImage] = []
        self.late_s = 0.0

    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        """Return what the line delivers within one physics step."""
        received, end = list[Telemetry](), self.t + self._step_s
        while self._port.t < end - 1e-9:
            news = (message for _, message in self.client.receive(end - self._port.t))
            received += [message for message in news if not isinstance(message, TimesyncReply)]
        self.t = self.now = self._port.t
        for message in received:
            if isinstance(message, Imu):
                self._eye.refer(message.t, self.t)
        self.images, self.late_s = [], 0.0
        for exposure in self._port.exposures():
            self.images += self._eye.see(exposure, self.t, window())
            self.late_s = exposure.late_s
        return received

    def hold_clock(self) -> None:
        self._eye.hold()

    def send(self, command: Command, t: float) -> None:
        """Pass on a command; its sticks are sent within the next tick."""
        self.client.send(command, self.t, t)

    def hold(self, t: float) -> None:
        """Do nothing: the line does not wait for an answer."""
