"""The simulator without sockets or clocks: one `tick` is one physics step, and returns what the wire would carry.

Pictures are not drawn here: a tick may ask for an `Exposure`, which the driver's camera turns into a `Frame`.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from link.messages import Ack, Attitude, AttitudeTarget, Command, Heartbeat, Imu
from link.profile import Profile, ticks
from sim.plant import Plant, Truth
from sim.referee import Referee, Status
from sim.sensors import Sensors
from tracks.track import Track
from vehicle.dynamics import RATES_X
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle


@dataclass(frozen=True, slots=True)
class Exposure:
    """The camera opens its shutter: picture number, time of its middle, pose and motion then."""

    id: int
    t: float
    p_wb: Array
    q_wb: Array
    v_w: Array
    omega_b: Array


@dataclass(frozen=True, slots=True)
class Tick:
    """What one physics step sends."""

    t: float
    telemetry: list[Heartbeat | Imu | Attitude | Ack]
    exposure: Exposure | None


class Simulator:
    """Plant, sensors and referee on one integer tick clock. The same seed gives the same ticks."""

    def __init__(self, track: Track, vehicle: Vehicle, profile: Profile, seed: int, laps: int = 1):
        self.profile, self.vehicle, self.track = profile, vehicle, track
        self._plant = Plant(vehicle, track.start)
        self._sensors = Sensors(vehicle, np.random.default_rng([seed, 0]))
        self.referee = Referee(track, vehicle, laps, profile.run_limit_s)
        hz = profile.physics_hz
        self._every_imu, self._every_attitude = ticks(profile.imu_hz, hz), ticks(profile.attitude_hz, hz)
        self._every_heartbeat, self._every_frame = ticks(profile.heartbeat_hz, hz), ticks(profile.video_hz, hz)
        self.count = 0
        self._answers: deque[Ack] = deque()
        self.path: list[tuple[float, Array]] = []  # truth of the run, (t, x)

    @property
    def t(self) -> float:
        """s on the simulator's clock."""
        return self.count / self.profile.physics_hz

    @property
    def truth(self) -> Truth:
        return self._plant.truth

    @property
    def armed(self) -> bool:
        return self._plant.armed

    def command(self, command: Command) -> None:
        """Takes a command at the present tick."""
        if isinstance(command, AttitudeTarget):
            self._plant.command(self.t, command)
            return
        accepted = not (command.arm and self.referee.race.over)
        if command.arm and accepted and not self._plant.armed:
            self._plant.armed = True
            self.path.clear()
            self.referee.go(self.t)
        elif not command.arm:
            self._plant.disarm()
            self.referee.abort("disarmed in flight")
        self._answers.append(Ack(self.t, accepted))

    def reset(self) -> None:
        """Puts the vehicle back on its pad for another run; the clock goes on."""
        self._plant.reset(self.t)
        self.referee.race.status = Status.WAITING

    def tick(self) -> Tick:
        """Advances one physics step."""
        self.count += 1
        self._plant.advance(self.t)
        truth = self._plant.truth
        race = self.referee.race
        if race.status is Status.RUNNING:
            self.path.append((truth.t, truth.x))
        self.referee.watch(truth)
        if race.status is Status.CRASHED:
            self._plant.disarm()
        telemetry: list[Heartbeat | Imu | Attitude | Ack] = list(self._answers)
        self._answers.clear()
        if self.count % self._every_heartbeat == 0:
            telemetry.append(Heartbeat(self.t, self._plant.armed))
        if self.count % self._every_attitude == 0:
            telemetry.append(self._sensors.attitude(truth))
        if self.count % self._every_imu == 0:
            telemetry.append(self._sensors.imu(truth))
        exposure = None
        if self.count % self._every_frame == 0:
            pose_and_motion = (truth.x[RATES_X[name].at].copy() for name in "pqvw")
            exposure = Exposure(self.count // self._every_frame, self.t, *pose_and_motion)
        return Tick(self.t, telemetry, exposure)
