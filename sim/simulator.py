"""Simulator core without sockets or clocks: one `tick` is one physics step, and returns the messages to be sent.

Images are not rendered here: a tick may return an `Exposure`, which the driver's camera turns into a `Frame`.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from gate_racer.link.messages import (
    UNASKED,
    Ack,
    Arm,
    ClientHeartbeat,
    Collision,
    Command,
    EnterOffboard,
    Outgoing,
    PositionTarget,
    Reset,
    Struck,
    Telemetry,
)
from gate_racer.link.profile import Profile, RateDivider
from gate_racer.sim.heat.encounter import StateChange
from gate_racer.sim.heat.traffic import Rival, TrafficView
from gate_racer.sim.physics.contact import Body, ColliderKind, Colliders, Contact
from gate_racer.sim.physics.plant import Truth, UnmodelledAcceleration
from gate_racer.sim.physics.residual import together
from gate_racer.sim.physics.rotors_plant import MotorSource
from gate_racer.sim.physics.setting import Setting, make_plant, natural
from gate_racer.sim.referee import Referee, RunStatus
from gate_racer.sim.sensors import Sensors
from gate_racer.sim.telemetry import Reporter
from gate_racer.sim.wire.position import PositionControl
from gate_racer.sim.wire.race import RaceClock, track_map
from gate_racer.sim.worlds.forces import forces_of
from gate_racer.sim.worlds.video import VideoTransport
from gate_racer.sim.worlds.world import World
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array

STRUCK = {
    ColliderKind.GATE: Struck.GATE,
    ColliderKind.OBSTACLE: Struck.ENVIRONMENT,
    ColliderKind.BOUNDS: Struck.ENVIRONMENT,
    ColliderKind.RIVAL: Struck.ENVIRONMENT,
}


RIVALS_HZ = 40.0  # Hz, rate of the reports on rivals
GROUNDED = (RunStatus.CRASHED, RunStatus.DISQUALIFIED)  # final statuses in which the motors are stopped


@dataclass(frozen=True, slots=True)
class Exposure:
    """Image to be rendered: number, mid-exposure time t (s), pose and motion (world NED, body FRD), stamp and delay."""

    id: int
    t: float
    p_wb: Array
    q_wb: Array
    v_w: Array
    omega_b: Array
    stamp: float  # s, time stamp of the frame, simulator clock with the deviations of the video path
    late_s: float  # s, transport delay of the frame beyond the profile's
    rivals: tuple[Rival, ...] = ()  # at mid-exposure


@dataclass(frozen=True, slots=True)
class Tick:
    """Messages, exposure and contacts of one physics step."""

    t: float
    telemetry: list[Outgoing]
    exposure: Exposure | None
    contacts: tuple[Contact, ...]


class Simulator:
    """Plant, sensors and referee on one integer tick clock. Deterministic for a seed.

    Examples:
        >>> from gate_racer import Simulator
        >>> simulator = Simulator(as_believed(track, vehicle), profile, seed=0)
        >>> ticks = [simulator.tick() for _ in range(120)]
        >>> simulator.t, simulator.landed  # s, and on the pad still
        (1.0, True)
    """

    def __init__(
        self,
        world: World,
        profile: Profile,
        seed: int,
        laps: int = 1,
        pose: bool = False,
        setting: Setting | None = None,
        residual: UnmodelledAcceleration | None = None,
        strict: bool = False,
        around: TrafficView | None = None,
        motors: MotorSource | None = None,
    ):
        """Set up one vehicle in its world; without a setting, with the most detailed plant that it supports.

        Args:
            pose: whether LOCAL_POSITION_NED and ODOMETRY with the true pose are sent.
            residual: unmodelled acceleration, in addition to the world's wind and battery.
            strict: whether a violation of the interface disqualifies.
            around: other vehicles of a heat (`sim.heat`).
            motors: source of the motor outputs that replaces the commands (`sim.betaflight.sitl`).

        Raises:
            UserError: the vehicle does not support this setting.
        """
        track, vehicle, off = world.track, world.vehicle, world.deviations
        self.profile, self.world = profile, world
        self._traffic, self._struck = around, list[Contact]()
        stirred = around.air_w if around is not None and around.windy else None
        unknown = together(residual, forces_of(world, seed, stirred))
        self._plant = make_plant(vehicle, track.start, setting or natural(vehicle), Colliders(track), unknown, motors)
        self._position = PositionControl(vehicle, profile.position_yaw)
        sensors = Sensors(vehicle, np.random.default_rng([seed, 0]), off.imu)
        self._reporter = Reporter(profile, vehicle, track.start, sensors, pose, off.link.imu_drift_ppm)
        self._video = VideoTransport(off.link, profile.video_hz, np.random.default_rng([seed, 3]))
        self._delay_ticks = round(off.link.telemetry_delay_s * profile.physics_hz)
        self._in_transit: deque[list[Outgoing]] = deque()  # messages of the last ticks, in transit
        self.referee = Referee(track, laps, profile.run_limit_s, strict)
        self.clock = RaceClock(profile.race)
        self._status = RateDivider(profile.race.status_hz if profile.race else 0.0, profile.stamp_hz)
        self._rivals_due = RateDivider(RIVALS_HZ, profile.physics_hz)
        self.count = self.resets = 0
        # In a heat an arm command is held until every vehicle has received one.
        self.waits = self.ready = False
        self._answers: list[Ack] = []
        self.path: list[tuple[float, Array]] = []  # true path of the run: time in s, state (14,) as RATES_X

    @property
    def t(self) -> float:
        """Time on the simulator's clock, s."""
        return self.count / self.profile.physics_hz

    @property
    def truth(self) -> Truth:
        """True state of the vehicle at the current tick."""
        return self._plant.truth

    @property
    def landed(self) -> bool:
        """Whether the vehicle rests on its pad."""
        return self._plant.on_pad

    @property
    def armed(self) -> bool:
        """Whether the motors are armed."""
        return self._plant.armed

    @property
    def body(self) -> Body:
        """Colliding box of the vehicle."""
        return self._plant.body

    def strike(self, knock: StateChange, contact: Contact) -> None:
        """Apply a collision with a moving vehicle; its contact is reported with the next tick."""
        self._plant.knock(knock.shift_w, knock.dv_w, knock.domega_b)
        self._struck.append(contact)

    def command(self, command: Command | ClientHeartbeat) -> None:
        """Accept a command at the current tick. Any message marks the client as present."""
        if not self.referee.race.over:
            self.clock.schedule(self.t)
        match command:
            case ClientHeartbeat() | EnterOffboard():
                return  # the mode is handled by the station
            case Arm():
                self._arm(command.arm)
            case Reset():
                self._reset(command.race)
            case _ if self.clock.false_start(self.t):
                self._plant.disarm()
                self.referee.race.status, self.referee.race.cause = (
                    RunStatus.ABORTED,
                    "false start: a command before GO",
                )
            case PositionTarget():
                self._position.follow(command, self._plant.truth)
            case _:
                self._position.stop()
                self._plant.command(self.t, command)

    def halt(self, sink_m_s: float) -> None:
        """Failsafe: stop and descend at `sink_m_s` until the next set-point."""
        self._position.follow(PositionTarget(UNASKED, (0.0, 0.0, sink_m_s)), self._plant.truth)

    def _arm(self, arm: bool) -> None:
        if arm and self.waits and not self.clock.counts_down:
            self.ready = True
            return
        accepted = not (arm and self.referee.race.over)
        if not arm:
            self._disarm()
            self.referee.abort("disarmed in flight")
        elif accepted and not self._plant.armed:
            self._plant.armed = True
            if not self.clock.counts_down:
                self._go(self.t)
        self._answers.append(Ack(self.t, accepted))

    def _go(self, t: float) -> None:
        self.path.clear()
        self.referee.go(t)

    def _disarm(self) -> None:
        self._position.stop()
        self._plant.disarm()

    def _reset(self, race: bool) -> None:
        """Reset at the client's request; ignored without a reply unless the profile has a race and its GO has passed."""
        if self.profile.race is None or not self.clock.gone(self.t):
            return
        self._respawn()
        if race:
            self.referee.prepare()
            self.clock.schedule(self.t, after_reset=True)
        self._answers.append(Ack(self.t, True, self.profile.race.reset_command))

    def _respawn(self) -> None:
        self._position.stop()
        self._plant.reset(self.t)
        self._reporter.forget()
        self.referee.forget()
        self.resets += 1

    def reset(self) -> None:
        """Return the vehicle to its pad for another run; the clock continues."""
        self._respawn()
        self.clock.cancel()
        self.referee.prepare()

    def tick(self) -> Tick:
        """Advance one physics step and return its output."""
        self.count += 1
        if self._position.active:
            self._plant.command(self.t, self._position.target(self._plant.truth))
        contacts = (*self._plant.advance(self.t), *self._struck)
        self._struck.clear()
        self._start()
        truth, race = self._plant.truth, self.referee.race
        if race.status is RunStatus.RUNNING:
            self.path.append((truth.t, truth.x))
        self.referee.watch(truth, contacts)
        if race.status in GROUNDED:
            self._disarm()
        messages, exposures = self._reporter.report(self.count, truth, self.armed, self.landed, self.resets)
        telemetry: list[Outgoing] = [*self._answers, *self._race_news(), *messages]
        telemetry += [Collision(self.t, STRUCK[contact.kind], contact.impulse) for contact in contacts]
        if self._traffic is not None and self._rivals_due(self.count):
            telemetry += self._traffic.rival_states(self.t)
        self._answers.clear()
        self._in_transit.append(telemetry)
        arrived = self._in_transit.popleft() if len(self._in_transit) > self._delay_ticks else []
        exposure = None
        for number, seen in exposures:
            transport = self._video(seen.t)
            p_wb, q_wb, v_w, omega_b = (seen.x[RATES_X[name].at].copy() for name in "pqvw")
            rivals = self._traffic.seen(seen.t) if self._traffic is not None else ()
            pose_and_motion = seen.t, p_wb, q_wb, v_w, omega_b
            exposure = Exposure(number, *pose_and_motion, *transport, rivals) if transport is not None else None
        return Tick(self.t, arrived, exposure, contacts)

    def _start(self) -> None:
        """Start the run when the race clock reaches GO."""
        race = self.profile.race
        if race is None or self.referee.race.status is not RunStatus.WAITING or not self.clock.gone(self.t):
            return
        if race.disarm_at_go:
            self._disarm()
        assert self.clock.go_t is not None
        self._go(self.clock.go_t)

    def _race_news(self) -> list[Telemetry]:
        """Return the track map and the race status that are due, if the profile has a race."""
        race, news = self.profile.race, list[Telemetry]()
        if race is None:
            return news
        if self.clock.map_due(self.t):
            news.append(track_map(self.t, self.world.published, race.map_at_foot))
        if any(self._status(n) for n in self._reporter.stamps(self.count)):
            news.append(self.clock.status(self.t, self.referee))
        return news
