"""Simulator core without sockets or clocks: one `tick` is one physics step, and returns the messages to be sent.

Every message has its own rate, a divider of the profile's stamping clock, and carries the state at its time stamp, interpolated
between physics ticks where the two clocks differ. IMU samples may repeat the previous values under a new stamp, as in the real
simulator.

Images are not rendered here: a tick may return an `Exposure`, which the driver's camera turns into a `Frame`.
"""

import math
from collections import deque
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from gate_racer.link import messages
from gate_racer.link.profile import Profile, RateDivider
from gate_racer.sim.physics.contact import ColliderKind, Colliders, Contact
from gate_racer.sim.physics.plant import MotorSource, P, Q, Truth, UnmodelledAcceleration, V, W, make_plant
from gate_racer.sim.physics.registry import Setting, natural
from gate_racer.sim.physics.residual import ObservationModel, together
from gate_racer.sim.referee import RaceClock, Referee, RunStatus, track_map
from gate_racer.sim.traffic import Rival, StateChange, TrafficView
from gate_racer.sim.wire.position import PositionControl
from gate_racer.sim.worlds.forces import forces_of
from gate_racer.sim.worlds.world import AS_BELIEVED, ImuDeviation, VideoTransport, World
from gate_racer.tracks.track import Start
from gate_racer.vehicle.rotation import Array, as_vector, conjugate, exp, from_euler, matrix, normalised, product
from gate_racer.vehicle.vehicle import Vehicle

OLDEST_S = 0.05  # s, length of the history of specific forces


class LowPass:
    """Butterworth filter of second order for a vector, y'' = w^2 (x - y) - sqrt(2) w y', at rest at its first input.

    Its exact response to a constant input: with a = w / sqrt(2) the error e = y - x turns and decays at the rate a.
    """

    def __init__(self, cutoff_hz: float):
        self._a, self._t = math.sqrt(2) * math.pi * cutoff_hz, math.nan
        self._y = self._dy = np.zeros(0)

    def at(self, t: float, x: Array) -> Array:
        """Return the output at t, s, at input x since the last call."""
        if not len(self._y):
            self._y, self._dy, self._t = x, np.zeros_like(x), t
        phi, a, e = self._a * max(t - self._t, 0.0), self._a, self._y - x
        c, s = math.exp(-phi) * math.cos(phi), math.exp(-phi) * math.sin(phi)
        self._y, self._dy = x + (c + s) * e + s / a * self._dy, (c - s) * self._dy - 2 * a * s * e
        self._t = t
        return self._y


class Sensors:
    """IMU and attitude of one vehicle; biases are drawn once, noise at every sample, from one random stream.

    measured = (1 + scale) R_sb low_pass(true + loss by vibration) + bias + noise
    """

    def __init__(
        self,
        vehicle: Vehicle,
        rng: np.random.Generator,
        errors: ImuDeviation = AS_BELIEVED.imu,
        lpf_hz: float | None = None,
    ):
        """Draw the biases. `errors`: deviations from the vehicle's file; `lpf_hz`: cut-off of the accelerometer's filter."""
        self._vehicle, self._imu, self._rng = vehicle, vehicle.imu, rng
        self._age_s = vehicle.imu.accel_delay_s + errors.accel_age_s
        self._accel_bias = rng.normal(0.0, self._imu.accel_bias_m_s2, 3) + errors.accel_bias_m_s2
        self._gyro_bias = rng.normal(0.0, self._imu.gyro_bias_rad_s, 3) + errors.gyro_bias_rad_s
        self._accel_noise = errors.noise_scale * self._imu.accel_noise_m_s2
        self._gyro_noise = errors.noise_scale * self._imu.gyro_noise_rad_s
        R_sb = matrix(exp(np.radians(errors.misalignment_deg))).T
        self._accel_axes = np.diag(1 + np.array(errors.accel_scale)) @ R_sb
        self._gyro_axes = np.diag(1 + np.array(errors.gyro_scale)) @ R_sb
        self._attitude_error = exp(np.radians(errors.attitude_deg))
        self._north = exp(np.radians([0.0, 0.0, errors.north_deg]))
        self._low_pass = LowPass(lpf_hz) if lpf_hz else None
        self._forces: deque[tuple[float, Array]] = deque()  # time and filtered specific force, body axes

    def follow(self, truth: Truth) -> None:
        """Store the specific force of a tick, for samples that are filtered or lag it."""
        if self._low_pass is not None or self._age_s:
            felt = self._felt(truth)
            self._forces.append((truth.t, self._low_pass.at(truth.t, felt) if self._low_pass is not None else felt))
        while self._forces and self._forces[0][0] < truth.t - OLDEST_S:
            self._forces.popleft()

    def _felt(self, truth: Truth) -> Array:
        """Return the specific force (3,), m/s^2, body FRD, with the loss by vibration."""
        return truth.accel_b + [0.0, 0.0, self._vehicle.accel_loss(float(truth.x[-1]))]

    def imu(self, truth: Truth) -> messages.Imu:
        force = self._felt(truth)
        if self._forces:  # behind the accelerometer's filter and lag
            t, forces = zip(*self._forces, strict=True)
            force = np.array([np.interp(truth.t - self._age_s, t, axis) for axis in np.transpose(forces)])
        accel = self._accel_axes @ force + self._accel_bias + self._rng.normal(0.0, self._accel_noise, 3)
        gyro = self._gyro_axes @ truth.x[W] + self._gyro_bias + self._rng.normal(0.0, self._gyro_noise, 3)
        return messages.Imu(truth.t, tuple(accel.tolist()), tuple(gyro.tolist()))

    def attitude(self, truth: Truth) -> messages.Attitude:
        """Return one ATTITUDE sample; noise-free, as in the real simulator."""
        w, x, y, z = (float(part) for part in product(product(self._north, truth.q_wb), self._attitude_error))
        return messages.Attitude(truth.t, (w, x, y, z))


class SimulatedVio:
    """VIO of the vehicle: the true motion with drawn errors, from an origin and a heading of its own at the start."""

    def __init__(self, errors: ObservationModel, start: Start, rng: np.random.Generator):
        """Draw the errors as a function of the state, less those at the start."""
        self._errors, self._p_w = errors.sample(rng), start.p_wb
        rest = np.zeros(10)
        rest[P], rest[Q] = start.p_wb, start.q_wb
        self._at_start = self._errors.errors(rest)[0]
        self._q_vw = conjugate(from_euler(0.0, 0.0, np.radians(start.yaw_deg)))

    def sample(self, t: float, truth: Truth, resets: int) -> messages.Odometry:
        """Return the sample at t (s) of a true state."""
        error, R_vw = self._errors.errors(truth.x)[0] - self._at_start, matrix(self._q_vw)
        q_wb = product(exp(error[6:9]), truth.q_wb)
        v_b = matrix(q_wb).T @ (truth.x[V] + error[3:6])
        w, x, y, z = normalised(product(self._q_vw, q_wb)).tolist()
        p_v = R_vw @ (truth.x[P] + error[:3] - self._p_w)
        return messages.Odometry(t, as_vector(p_v), (w, x, y, z), as_vector(v_b), as_vector(truth.x[W]), resets)


VIO_HZ = 100.0  # Hz, rate of the T265 of Swift
GROUND_HZ = 1.0  # Hz, rate of the ground station's status (chosen)
Reported = messages.Sensed | messages.Heartbeat | messages.GroundStatus | messages.TimesyncRequest
IDLE = 0.05  # motor output, 0..1, of armed motors at rest, as observed


class Reporter:
    """Schedules the messages of one vehicle; call `report` at every tick, in order."""

    def __init__(
        self,
        profile: Profile,
        vehicle: Vehicle,
        start: Start,
        sensors: Sensors,
        pose: bool,
        drift_ppm: float = 0.0,
        vio: SimulatedVio | None = None,
    ):
        """`start`: reported as the reference position. `pose`: whether the true pose is sent as well. `drift_ppm`: of the clock
        that stamps IMU and attitude. `vio`: source of ODOMETRY instead of the truth."""
        self._profile, self._vehicle, self._start, self._sensors = profile, vehicle, start, sensors
        self._steps, self._ticks = (Fraction(profile.stamp_hz) / Fraction(profile.physics_hz)).as_integer_ratio()

        def beat(hz: float, enabled: bool = True) -> RateDivider:
            return RateDivider(hz if enabled else 0.0, profile.stamp_hz)

        self._heartbeat, self._image = beat(profile.heartbeat_hz), beat(profile.video_hz)
        self._ground, self._timesync = beat(GROUND_HZ, profile.ground_station), beat(profile.timesync_hz)
        self._imu, self._attitude = beat(profile.imu_hz), beat(profile.attitude_hz)
        self._motors = beat(profile.motors_hz)
        self._position, self._vio = beat(profile.local_position_hz, pose), vio
        self._odometry = beat(min(VIO_HZ, profile.stamp_hz)) if vio is not None else beat(profile.odometry_hz, pose)
        self._fresh = RateDivider(min(profile.imu_fresh_hz, profile.imu_hz), profile.imu_hz)
        self._samples = self._images = 0
        self._pace = 1 + 1e-6 * drift_ppm
        self._sample: messages.Imu | None = None
        self._before: Truth | None = None

    def stamps(self, tick: int) -> range:
        """Return the steps of the stamping clock within a tick."""
        return range((tick - 1) * self._steps // self._ticks + 1, tick * self._steps // self._ticks + 1)

    def report(
        self, tick: int, truth: Truth, armed: bool, landed: bool, resets: int
    ) -> tuple[list[Reported], list[tuple[int, Truth]]]:
        """Return the messages of a tick and its exposures: image number and true state at the stamp."""
        sent: list[Reported] = []
        exposures = []
        self._sensors.follow(truth)
        for n in self.stamps(tick):
            t = n / self._profile.stamp_hz
            then = self._at(t, truth)
            if self._heartbeat(n):
                sent.append(messages.Heartbeat(t, armed))
            if self._ground(n):
                sent.append(messages.GroundStatus(t, landed, self._start.position_m))
            if self._timesync(n):
                sent.append(messages.TimesyncRequest(round(t * 1e9)))
            if self._attitude(n):
                sent.append(replace(self._sensors.attitude(then), t=t * self._pace))
            if self._imu(n):
                self._samples += 1
                if self._sample is None or self._fresh(self._samples):
                    self._sample = self._sensors.imu(then)
                sent.append(replace(self._sample, t=t * self._pace))
            if self._motors(n):
                output = max(IDLE, self._vehicle.throttle.throttle(float(then.x[13]))) if armed else 0.0
                sent.append(messages.Motors(t, (output,) * 4))
            if self._position(n):
                sent.append(messages.LocalPosition(t, as_vector(then.p_wb), as_vector(then.v_w)))
            if self._odometry(n) and self._vio is not None:
                sent.append(self._vio.sample(t, then, resets))
            elif self._odometry(n):
                w, x, y, z = then.q_wb.tolist()
                v_b, omega_b = as_vector(matrix(then.q_wb).T @ then.v_w), as_vector(then.x[W])
                sent.append(messages.Odometry(t, as_vector(then.p_wb), (w, x, y, z), v_b, omega_b, resets))
            if self._image(n):
                self._images += 1
                exposures.append((self._images, then))
        self._before = truth
        return sent, exposures

    def _at(self, t: float, truth: Truth) -> Truth:
        """Return the true state at time t, s, interpolated between the last tick and this one."""
        before = self._before
        if before is None or t >= truth.t - 1e-9:
            return replace(truth, t=t)
        s = (t - before.t) / (truth.t - before.t)
        x = before.x + s * (truth.x - before.x)
        x[Q] = normalised(x[Q])
        return replace(truth, t=t, x=x, accel_b=before.accel_b + s * (truth.accel_b - before.accel_b))

    def forget(self) -> None:
        """Discard the last state after the vehicle was moved, so that no sample is interpolated across the jump."""
        self._before = None


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
    t: float
    telemetry: list[messages.Outgoing]
    exposure: Exposure | None
    contacts: tuple[Contact, ...]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """Setup of a run; without a setting, with the most detailed plant that the vehicle supports.

    Examples:
        >>> from gate_racer import RunSetup, Simulator
        >>> simulator = Simulator(as_believed(track, vehicle), profile, 0, RunSetup(pose=True))
        >>> "Odometry" in {type(message).__name__ for _ in range(60) for message in simulator.tick().telemetry}
        True
    """

    laps: int = 1
    pose: bool = False  # whether LOCAL_POSITION_NED and ODOMETRY with the true pose are sent
    setting: Setting | None = None
    residual: UnmodelledAcceleration | None = None  # in addition to the world's wind and battery
    strict: bool = False  # whether a violation of the interface disqualifies
    vio: ObservationModel | None = None  # errors of a VIO on board, which sends ODOMETRY; None: there is none


USUAL = RunSetup()


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
        setup: RunSetup = USUAL,
        around: TrafficView | None = None,
        motors: MotorSource | None = None,
    ):
        """Set up one vehicle in its world. Raises UserError where it does not support the setting.

        `around`: other vehicles of a race. `motors`: source of the motor outputs that replaces the commands.
        """
        track, vehicle, off = world.track, world.vehicle, world.deviations
        self.profile, self.world = profile, world
        self._traffic, self._struck = around, list[Contact]()
        stirred = around.air_w if around is not None and around.traffic.rotors is not None else None
        unknown = together(setup.residual, forces_of(world, seed, stirred))
        setting = setup.setting or natural(vehicle)
        self.plant = make_plant(vehicle, track.start, setting, Colliders(track), unknown, motors)
        self._position = PositionControl(vehicle, profile.position_yaw)
        sensors = Sensors(vehicle, np.random.default_rng([seed, 0]), off.imu)
        vio = None
        if setup.vio is not None:
            vio = SimulatedVio(setup.vio, track.start, np.random.default_rng([seed, 6]))
        self._reporter = Reporter(profile, vehicle, track.start, sensors, setup.pose, off.link.imu_drift_ppm, vio)
        self._video = VideoTransport(off.link, profile.video_hz, np.random.default_rng([seed, 3]))
        self._delay_ticks = round(off.link.telemetry_delay_s * profile.physics_hz)
        self._in_transit: deque[list[messages.Outgoing]] = deque()  # messages of the last ticks, in transit
        self.referee = Referee(track, setup.laps, profile.run_limit_s, setup.strict)
        self.clock = RaceClock(profile.race)
        self._status = RateDivider(profile.race.status_hz if profile.race else 0.0, profile.stamp_hz)
        self._rivals_due = RateDivider(RIVALS_HZ, profile.physics_hz)
        self.count = self.resets = 0
        # In a race an arm command is held until every vehicle has received one.
        self.waits = self.ready = False
        self._answers: list[messages.Ack] = []
        self.path: list[tuple[float, Array]] = []  # true path of the run: time in s, state (14,) as RATES_X

    @property
    def t(self) -> float:
        return self.count / self.profile.physics_hz

    @property
    def truth(self) -> Truth:
        return self.plant.truth

    @property
    def landed(self) -> bool:
        return self.plant.on_pad

    @property
    def armed(self) -> bool:
        return self.plant.armed

    def strike(self, knock: StateChange, contact: Contact) -> None:
        """Apply a collision with a moving vehicle; its contact is reported with the next tick."""
        self.plant.knock(knock.shift_w, knock.dv_w, knock.domega_b)
        self._struck.append(contact)

    def meet(self) -> None:
        """Mark the client as present, which schedules a race: its first message does, whatever it says."""
        if not self.referee.race.over:
            self.clock.schedule(self.t)

    def command(self, command: messages.Command | messages.ClientHeartbeat) -> None:
        """Accept a command at the current tick."""
        self.meet()
        match command:
            case messages.ClientHeartbeat() | messages.EnterOffboard():
                return  # the mode is handled by the station
            case messages.Arm():
                self._arm(command.arm)
            case messages.Reset():
                self._reset(command.race)
            case _ if self.clock.false_start(self.t, command):
                self.plant.disarm()
                race = self.referee.race
                race.status, race.cause = RunStatus.ABORTED, "false start: thrust before GO"
            case messages.PositionTarget():
                self._position.follow(command, self.plant.truth)
            case _:
                self._position.stop()
                self.plant.command(self.t, command)

    def halt(self, sink_m_s: float) -> None:
        """Failsafe: stop and descend at `sink_m_s` until the next set-point."""
        self._position.follow(messages.PositionTarget(messages.UNASKED, (0.0, 0.0, sink_m_s)), self.plant.truth)

    def _arm(self, arm: bool) -> None:
        if arm and self.waits and self.profile.race is None:
            self.ready = True
            return
        accepted = not (arm and self.referee.race.over)
        if not arm:
            self._disarm()
            self.referee.abort("disarmed in flight")
        elif accepted and not self.plant.armed:
            self.plant.armed = True
            if self.profile.race is None:
                self._go(self.t)
        self._answers.append(messages.Ack(self.t, accepted))

    def _go(self, t: float) -> None:
        self.path.clear()
        self.referee.go(t)

    def _disarm(self) -> None:
        self._position.stop()
        self.plant.disarm()

    def _reset(self, race: bool) -> None:
        """Reset at the client's request; ignored without a reply unless the profile has a race and its GO has passed."""
        if self.profile.race is None or not self.clock.gone(self.t):
            return
        self._respawn()
        if race:
            self.referee.prepare()
            self.clock.schedule(self.t, after_reset=True)
        self._answers.append(messages.Ack(self.t, True, self.profile.race.reset_command))

    def _respawn(self) -> None:
        self._position.stop()
        self.plant.reset(self.t)
        self._reporter.forget()
        self.referee.forget()
        self.resets += 1

    def reset(self) -> None:
        """Return the vehicle to its pad for another run; the clock continues."""
        self._respawn()
        self.clock.cancel()
        self.referee.prepare()

    def tick(self) -> Tick:
        self.count += 1
        if self._position.active:
            self.plant.command(self.t, self._position.target(self.plant.truth))
        contacts = (*self.plant.advance(self.t), *self._struck)
        self._struck.clear()
        self._start()
        truth, race = self.plant.truth, self.referee.race
        if race.status is RunStatus.RUNNING:
            self.path.append((truth.t, truth.x))
        self.referee.watch(truth, contacts)
        if race.status in GROUNDED:
            self._disarm()
        reported, exposures = self._reporter.report(self.count, truth, self.armed, self.landed, self.resets)
        telemetry: list[messages.Outgoing] = [*self._answers, *self._race_news(), *reported]
        for contact in contacts:
            struck = messages.Struck.GATE if contact.kind is ColliderKind.GATE else messages.Struck.ENVIRONMENT
            telemetry.append(messages.Collision(self.t, struck, contact.impulse))
        if self._traffic is not None and self._rivals_due(self.count):
            telemetry += self._traffic.rival_states(self.t)
        self._answers.clear()
        self._in_transit.append(telemetry)
        arrived = self._in_transit.popleft() if len(self._in_transit) > self._delay_ticks else []
        exposure = None
        for number, seen in exposures:
            transport = self._video(seen.t)
            rivals = self._traffic.seen(seen.t) if self._traffic is not None else ()
            p_wb, q_wb, v_w, omega_b = (seen.x[part].copy() for part in (P, Q, V, W))
            if transport is not None:
                exposure = Exposure(number, seen.t, p_wb, q_wb, v_w, omega_b, *transport, rivals)
        return Tick(self.t, arrived, exposure, contacts)

    def _start(self) -> None:
        race, go_t = self.profile.race, self.clock.go_t
        if race is not None and self.referee.race.status is RunStatus.WAITING and go_t is not None and self.t >= go_t:
            if race.disarm_at_go:
                self._disarm()
            self._go(go_t)

    def _race_news(self) -> list[messages.Telemetry]:
        race, news = self.profile.race, list[messages.Telemetry]()
        if race is None:
            return news
        if self.clock.map_due(self.t):
            news.append(track_map(self.t, self.world.published, race.map_at_foot))
        if any(self._status(n) for n in self._reporter.stamps(self.count)):
            news.append(self.clock.status(self.t, self.referee))
        return news
