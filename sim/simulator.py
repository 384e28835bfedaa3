"""The simulator without sockets or clocks: one `tick` is one physics step, and returns what the wire would carry.

Images are not drawn here: a tick may ask for an `Exposure`, which the driver's camera turns into a `Frame`.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from link.messages import (
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
from link.profile import Profile, RateDivider
from sim.heat.encounter import Knock
from sim.heat.traffic import Around, Rival
from sim.physics.contact import Body, ColliderKind, Colliders, Contact
from sim.physics.plant import Residual, Truth
from sim.physics.residual import together
from sim.physics.rotors_plant import MotorSource
from sim.physics.setting import Setting, make_plant, natural
from sim.referee import Referee, RunStatus
from sim.sensors import Sensors
from sim.telemetry import Reporter
from sim.wire.position import PositionControl
from sim.wire.race import RaceClock, track_map
from sim.worlds.forces import forces_of
from sim.worlds.video import VideoPath
from sim.worlds.world import World
from vehicle.dynamics import RATES_X
from vehicle.rotation import Array

STRUCK = {
    ColliderKind.GATE: Struck.GATE,
    ColliderKind.OBSTACLE: Struck.ENVIRONMENT,
    ColliderKind.BOUNDS: Struck.ENVIRONMENT,
    ColliderKind.RIVAL: Struck.ENVIRONMENT,
}


RIVALS_HZ = 40.0  # of what is told of them
GROUNDED = (RunStatus.CRASHED, RunStatus.DISQUALIFIED)  # ends that stop the motors


@dataclass(frozen=True, slots=True)
class Exposure:
    """The camera opens its shutter: image number, time of its middle, pose and motion then, and the frame's way."""

    id: int
    t: float
    p_wb: Array
    q_wb: Array
    v_w: Array
    omega_b: Array
    stamp: float  # s, of the frame, on the simulator's clock as the video has it
    late_s: float  # by which the frame takes longer to the client than the profile says
    rivals: tuple[Rival, ...] = ()  # then


@dataclass(frozen=True, slots=True)
class Tick:
    """What one physics step sends, and what it touched."""

    t: float
    telemetry: list[Outgoing]
    exposure: Exposure | None
    contacts: tuple[Contact, ...]


class Simulator:
    """Plant, sensors and referee on one integer tick clock. The same seed gives the same ticks.

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
        residual: Residual | None = None,
        strict: bool = False,
        around: Around | None = None,
        motors: MotorSource | None = None,
    ):
        """Without a setting the most that is known of the vehicle flies.

        Args:
            pose: whether LOCAL_POSITION_NED and ODOMETRY tell the truth.
            residual: an acceleration that no model knows, beside the world's wind and battery.
            strict: whether a breach of the interface disqualifies.
            around: the other vehicles of a race of several (`sim.heat`).
            motors: what turns the rotors in place of the commands (`sim.betaflight.sitl`).

        Raises:
            UserError: the vehicle cannot fly in this setting.
        """
        track, vehicle, off = world.track, world.vehicle, world.deviations
        self.profile, self.world = profile, world
        self._around, self._struck = around, list[Contact]()
        stirred = around.air_w if around is not None and around.windy else None
        unknown = together(residual, forces_of(world, seed, stirred))
        self._plant = make_plant(vehicle, track.start, setting or natural(vehicle), Colliders(track), unknown, motors)
        self._position = PositionControl(vehicle, profile.position_yaw)
        sensors = Sensors(vehicle, np.random.default_rng([seed, 0]), off.imu)
        self._reporter = Reporter(profile, vehicle, track.start, sensors, pose, off.link.imu_drift_ppm)
        self._video = VideoPath(off.link, profile.video_hz, np.random.default_rng([seed, 3]))
        self._delay_ticks = round(off.link.telemetry_delay_s * profile.physics_hz)
        self._coming: deque[list[Outgoing]] = deque()  # of the last ticks, not yet at the client
        self.referee = Referee(track, laps, profile.run_limit_s, strict)
        self.clock = RaceClock(profile.race)
        self._status = RateDivider(profile.race.status_hz if profile.race else 0.0, profile.stamp_hz)
        self._told = RateDivider(RIVALS_HZ, profile.physics_hz)
        self.count = self.resets = 0
        # For the others of a race of several: an arm command is kept until all have sent one.
        self.waits = self.ready = False
        self._answers: list[Ack] = []
        self.path: list[tuple[float, Array]] = []  # truth of the run, (t, x)

    @property
    def t(self) -> float:
        """s on the simulator's clock."""
        return self.count / self.profile.physics_hz

    @property
    def truth(self) -> Truth:
        return self._plant.truth

    @property
    def landed(self) -> bool:
        return self._plant.on_pad

    @property
    def armed(self) -> bool:
        return self._plant.armed

    @property
    def body(self) -> Body:
        """What collides."""
        return self._plant.body

    def strike(self, knock: Knock, contact: Contact) -> None:
        """Something that moves has hit it; told of with the next tick."""
        self._plant.knock(knock.shift_w, knock.dv_w, knock.domega_b)
        self._struck.append(contact)

    def command(self, command: Command | ClientHeartbeat) -> None:
        """Takes a command at the present tick. Whatever comes tells that a client is there."""
        if not self.referee.race.over:
            self.clock.schedule(self.t)
        match command:
            case ClientHeartbeat() | EnterOffboard():
                return  # the mode is the station's business
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
        """Comes to a stop and sinks so fast until the next set-point: the failsafe."""
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
        """The client's own reset, which only a race takes and nothing else even answers."""
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
        """Puts the vehicle back on its pad for another run; the clock goes on."""
        self._respawn()
        self.clock.cancel()
        self.referee.prepare()

    def tick(self) -> Tick:
        """Advances one physics step."""
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
        if self._around is not None and self._told(self.count):
            telemetry += self._around.told(self.t)
        self._answers.clear()
        self._coming.append(telemetry)
        arrived = self._coming.popleft() if len(self._coming) > self._delay_ticks else []
        exposure = None
        for number, seen in exposures:
            way = self._video(seen.t)
            p_wb, q_wb, v_w, omega_b = (seen.x[RATES_X[name].at].copy() for name in "pqvw")
            rivals = self._around.seen(seen.t) if self._around is not None else ()
            exposure = Exposure(number, seen.t, p_wb, q_wb, v_w, omega_b, *way, rivals) if way is not None else None
        return Tick(self.t, arrived, exposure, contacts)

    def _start(self) -> None:
        """GO, once its time has come."""
        race = self.profile.race
        if race is None or self.referee.race.status is not RunStatus.WAITING or not self.clock.gone(self.t):
            return
        if race.disarm_at_go:
            self._disarm()
        assert self.clock.go_t is not None
        self._go(self.clock.go_t)

    def _race_news(self) -> list[Telemetry]:
        """Map and status, where the profile has them."""
        race, news = self.profile.race, list[Telemetry]()
        if race is None:
            return news
        if self.clock.map_due(self.t):
            news.append(track_map(self.t, self.world.told, race.map_at_foot))
        if any(self._status(n) for n in self._reporter.stamps(self.count)):
            news.append(self.clock.status(self.t, self.referee))
        return news
