"""Whole races by sight in lock-step, while the link is in trouble for some time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gate_racer.link.messages import Imu
from gate_racer.link.profile import Profile
from gate_racer.pilot.lockstep import LockstepFlight
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.plan import Plan
from gate_racer.race.campaign.flight import NoLog
from gate_racer.race.lockstep import EmbeddedLink
from gate_racer.sim.referee import Race
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import NOMINAL
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle
from tests.flights import eye_of, racer_of

GO_S = 1.1  # of the simulator's time


@dataclass(frozen=True)
class Trouble:
    """Disturbance of the link for some time, `begin` s after the simulator's start (GO is at GO_S)."""

    name: str
    begin: float
    seconds: float
    no_telemetry: bool = False
    no_images: bool = False
    frozen: bool = False  # the pilot's process: all that came meanwhile is heard at once
    imu_ahead_s: float = 0.0
    imu_stands: bool = False  # its values, under new stamps
    suspended: bool = False  # the simulator, and its time with it

    def strikes(self, t):
        return self.begin <= t < self.begin + self.seconds


class TroubledWire(EmbeddedLink):
    """A lock-step link that troubles strike one after another; time goes on without news."""

    def __init__(self, simulator, eye, troubles):
        super().__init__(simulator, eye)
        self._troubles = troubles
        self._imu = None  # newest sample before its values stood still
        self._stood_s = 0.0

    def tick(self, expected):
        trouble = next((one for one in self._troubles if one.suspended and one.strikes(self.simulator.t)), None)
        if trouble is not None and self._stood_s < trouble.seconds:
            self._stood_s += 1 / self.simulator.profile.physics_hz
            self.t = self.now = self.simulator.t + self._stood_s
            self.images = []
            return []
        self._stood_s = self._stood_s if trouble is not None else 0.0
        received = super().tick(expected)
        trouble = next((one for one in self._troubles if one.strikes(self.t)), None)
        if trouble is None or not trouble.imu_stands:
            self._imu = next((m for m in reversed(received) if isinstance(m, Imu)), self._imu)
        if trouble is None or trouble.suspended:
            return received
        if trouble.imu_stands:
            return [replace(self._imu, t=m.t) if isinstance(m, Imu) else m for m in received]
        if trouble.frozen:
            images = self.images
            while trouble.strikes(self.t):
                received += super().tick(expected)
                images += self.images
            self.images = images
            return received
        if trouble.no_images:
            self.images = []
        if trouble.no_telemetry:
            return []
        ahead = trouble.imu_ahead_s
        return [replace(m, t=m.t + ahead) if isinstance(m, Imu) else m for m in received]


def fly(
    troubles: Sequence[Trouble],
    track: Track,
    vehicle: Vehicle,
    plan: Plan,
    profile: Profile,
    seed: int,
    strict: bool = False,
) -> tuple[Race, str]:
    """One race by projected gates, refereed strictly if wanted. Returns the referee's word, and why the pilot ended it."""
    pilot, world = racer_of(track, vehicle, plan, profile), resolve(NOMINAL, track, vehicle)
    eye = eye_of(world, vehicle, profile, seed)
    simulator = Simulator(world, profile, seed, RunSetup(strict=strict))
    LockstepFlight(pilot, profile, TroubledWire(simulator, eye, troubles), Recorder(NoLog())).fly()
    return simulator.referee.race, pilot.cause
