"""The lock-step driver behind a flight controller: sticks and polls on a simulated serial line, images beside it."""

import contextlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from link.messages import Arm, Command, Imu, Telemetry, TimesyncReply
from link.msp.client import MspClient
from link.msp.profile import BetaflightProfile
from perception.roi import SearchWindow
from pilot.drivers.embedded import referees_verdict
from pilot.drivers.lockstep import fly_link, rates
from pilot.drivers.lockstep_perception import LockstepPerception
from pilot.flight import DetectedImage
from pilot.pilot import AnyPilot
from pilot.records.recorder import Recorder
from pilot.records.result import LinkReport, Verdict
from sim.betaflight.port import StationPort
from sim.betaflight.sitl import firmware
from sim.betaflight.station import BetaflightStation
from sim.physics.plant import UnmodelledAcceleration
from sim.physics.setting import Setting
from sim.report import report
from sim.worlds.world import World


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
