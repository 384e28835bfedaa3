"""The pilot: a pure state machine. Timed messages in, commands out; no socket, thread or clock.

wait_link -> calibrate -> wait_go -> arm -> launch -> race -> finished, or aborted from anywhere.
"""

from collections import deque
from copy import deepcopy

import numpy as np

from estimation.error_state import AHEAD_S
from estimation.estimator import Estimator, State
from link.messages import (
    Ack,
    Arm,
    Attitude,
    AttitudeTarget,
    Command,
    Heartbeat,
    Imu,
    LocalPosition,
    Odometry,
    RaceStatus,
    Telemetry,
    Vector,
)
from link.profile import Profile
from mpc.controller import STALE_S, Control, Controller, Source
from perception.association import Associator, GateSighting
from perception.search import Expected, Windows
from pilot.flight import Phase, Picture, Step, Tally
from pilot.preflight import Preflight
from tracks.gate import Gate
from tracks.track import Track
from vehicle.rotation import Array, matrix
from vehicle.vehicle import Vehicle

REST_S = 1.0  # of standing still, for the biases
REST_ACCEL, REST_GYRO = 1.5, 0.3  # m/s^2 and rad/s: larger changes than this are no rest
ARM_RETRY_S = 0.5
GO_MARGIN_S = 0.12  # after a scheduled start: a command before it is a false start, which nobody tells of
UNANSWERED_S = 5.0  # of arming, after which a simulator is taken for one that knows no arming
UNARMED_BEATS, UNARMED_S = 3, 0.3  # heartbeats in a row, over so long, that prove it disarmed: single ones may be old
ATTITUDE_WAIT_S = 1.0  # for the first ATTITUDE; the gyro alone will do
AIRBORNE_M_S = 0.5  # estimated speed at which the launch has succeeded
LAUNCH_LIMIT_S = 3.0
LEVEL_LIMIT_S = 2.0  # of flying without any solution
COAST_S = 0.5  # flown on past the last gate, so that the simulator sees the finish too
OVERDUE_S = 1.0  # past the plan's end without having seen the last gate's plane
GAP_S = 0.05  # without IMU, that the model flies through; three samples of 76 Hz
EARLY = 8  # pictures that may wait so
RESTART_S = 0.5  # by which the start of a new race lies apart from the old one's
COURSE_S = 0.05  # time constant with which the course follows what is known of the next gate
REACH_M = 3.0  # from a gate's centre: a plane crossed farther out was not this gate's


class Pilot:
    """Feed `hear` with everything that arrives; after each `Imu`, ask `act` for commands."""

    def __init__(
        self,
        track: Track,
        vehicle: Vehicle,
        profile: Profile,
        estimator: Estimator,
        associator: Associator,
        controller: Controller,
        laps: int,
        pose: bool = False,
        preflight: Preflight | None = None,
        by_rates: bool = True,
    ):
        """A pilot on the pad.

        Args:
            pose: whether position and velocity that the simulator tells are used.
            preflight: may refuse to start.
            by_rates: commands are body rates, no attitudes.
        """
        self.course: tuple[Gate, ...] = track.course(laps)
        self.estimator, self.controller, self.associator = estimator, controller, associator
        self.pose, self._by_rates = pose, by_rates
        self.refused = self.reason = ""  # why it did not start, why it ended
        self.tally = Tally()
        self.go_t: float | None = None
        self.last_step: Step | None = None
        self.last_sightings: list[GateSighting] = []
        self._vehicle, self._profile, self._preflight = vehicle, profile, preflight
        self._pad = deepcopy(estimator)  # which has heard nothing yet
        self._next_command = -np.inf
        self._level_since: float | None = None
        self._previous: State | None = None
        self._was = np.zeros(3)  # m, the previous place as the map has the next gate, by what was known of it then
        self._landmarks = track.landmarks
        self._windows = Windows(track.gates, vehicle.camera)
        self._recognised = -np.inf  # when a gate last was
        self._moved = np.zeros(3)  # m, by which the course about the vehicle stands elsewhere than on the map
        self._await_link()

    def _await_link(self) -> None:
        """Nothing has been heard."""
        self.phase = Phase.WAIT_LINK
        self._heard: set[type] = set()
        self._since = 0.0  # when the phase began
        self._armed = self._answered = self._beats_armed = False
        self._unarmed_beats, self._unarmed_since = 0, 0.0  # heartbeats in a row that say so in flight
        self._complete_but_attitude = np.inf  # when that was
        self._counting_down = False  # a race was seen that had not started
        self._scheduled: float | None = None  # when it is to
        self._go: float | None = None  # when it did
        self._reference_sample: Imu | None = None
        self._next_arm = -np.inf
        self._early: deque[Picture] = deque(maxlen=EARLY)  # exposed after the newest IMU sample
        self._clock_sigma = 0.0  # s, of the pictures' times, as the estimator was told

    def forget_link(self) -> None:
        """Before GO: the simulator is gone, and another may speak, with a clock and a race of its own."""
        if self.go_t is None and not self.over:
            self.estimator = deepcopy(self._pad)
            if self._preflight is not None:
                self._preflight.forget()
            self._await_link()

    @property
    def over(self) -> bool:
        """Nothing more to do: aborted, or finished and flown on a little."""
        coasted = self.estimator.t - self._since > COAST_S
        return self.phase is Phase.ABORTED or (self.phase is Phase.FINISHED and coasted)

    @property
    def remark(self) -> str:
        """What differs from the track's file before the start, in a line; the flight goes on."""
        return self._preflight.remark() if self._preflight is not None else ""

    @property
    def missing(self) -> list[str]:
        """What the wait for the link still waits for."""
        names: dict[type, str] = {Heartbeat: "HEARTBEAT", Imu: "HIGHRES_IMU", Picture: "video"}
        names |= {Attitude: "ATTITUDE"} if self._profile.attitude_hz else {}
        return [name for kind, name in names.items() if kind not in self._heard]

    def hear(self, message: Telemetry | Picture) -> None:
        """Takes one message, in the order of arrival."""
        self._heard.add(type(message))
        if self._preflight is not None and self.go_t is None and not isinstance(message, Picture):
            self._preflight.hear(message)
        if isinstance(message, Imu):
            self._coast(message.t)
            if self.estimator.imu(message):
                self._watch_rest(message)
            while self._early and self._early[0].t <= self.estimator.t:
                self._see(self._early.popleft())
        elif isinstance(message, Attitude):
            self.estimator.attitude(message)
        elif isinstance(message, LocalPosition | Odometry):
            if self.pose:
                self._hear_pose(message)
        elif isinstance(message, Picture):
            self.tally.frames += 1
            self.last_sightings = []
            if message.clock_sigma > self._clock_sigma:
                self._clock_sigma = message.clock_sigma
                self.estimator.doubt_clock(self._clock_sigma)
            if message.t > self.estimator.t + AHEAD_S:
                self._early.append(message)
            else:
                self._see(message)
        elif isinstance(message, Heartbeat):
            self._hear_armed(message.armed)
        elif isinstance(message, Ack):
            self._armed = self._armed or (message.accepted and self.phase is Phase.ARM)
            self._answered = self._answered or message.known
        elif isinstance(message, RaceStatus):
            self._follow_race(message)

    def _hear_pose(self, message: LocalPosition | Odometry) -> None:
        v_w = message.v_w if isinstance(message, LocalPosition) else matrix(message.q_wb) @ message.v_b
        self.estimator.position(message.t, np.array(message.p_wb), np.array(v_w))

    def _hear_armed(self, armed: bool) -> None:
        lost, self._beats_armed = self._armed and not armed, self._beats_armed or armed
        restarted = lost and self.phase is Phase.LAUNCH and self._profile.race is not None
        if not (self._beats_armed or restarted):
            return  # heartbeats that have never told of arming do not tell of its end
        if restarted:
            self._armed = False
            self._enter(Phase.ARM, self.estimator.t)  # the race's start disarms: once more
        elif lost and self.phase in (Phase.LAUNCH, Phase.RACE):
            self._doubt_armed(self.estimator.t)
        else:
            self._armed, self._unarmed_beats = armed, 0

    def _doubt_armed(self, t: float) -> None:
        """One more heartbeat in a row says that the vehicle in flight is not armed."""
        if not self._unarmed_beats:
            self._unarmed_since = t
        self._unarmed_beats += 1
        if self._unarmed_beats >= UNARMED_BEATS and t - self._unarmed_since >= UNARMED_S:
            self.abort("the simulator disarmed the vehicle")

    def _follow_race(self, status: RaceStatus) -> None:
        """GO is a scheduled start that has passed, and was seen ahead before: it may be of an old race."""
        if self.go_t is not None and self._restarted(status):
            self.abort("the race was started anew")
        elif not status.go:
            self._counting_down, self._scheduled = True, status.start
        elif self._counting_down:
            self._go = status.start

    def _restarted(self, status: RaceStatus) -> bool:
        """Whether a status tells of another race than the one that is flown."""
        if status.start is None or self._go is None:
            return status.start != self._go
        return abs(status.start - self._go) > RESTART_S

    def expected(self) -> Expected:
        """What the next picture may show."""
        state = self._previous
        if state is None or self.phase is not Phase.RACE or state.lost:
            return self._windows.anywhere
        about = state.v_w, state.omega_b, state.cov_p, state.sigma_attitude_rad
        return self._windows.due(state.t, state.t - self._recognised, state.p_wb - self._moved, state.q_wb, *about)

    def abort(self, reason: str) -> None:
        """Ends the flight."""
        if self.phase not in (Phase.FINISHED, Phase.ABORTED):
            self.phase, self.reason = Phase.ABORTED, reason

    def act(self, now: float = -np.inf) -> list[Command]:
        """The commands due; `now` (s) is the present where the newest IMU sample is known to be older."""
        t = max(self.estimator.t, now)
        if self.phase is Phase.WAIT_LINK and self._linked(t):
            self._enter(Phase.CALIBRATE, t)
        if self.phase is Phase.CALIBRATE and t - self._since >= REST_S and self._may_start():
            self._enter(Phase.WAIT_GO, t)
        if self._go is None and self._scheduled is not None and t >= self._scheduled + GO_MARGIN_S:
            self._go = self._scheduled  # statuses are rare: the next would tell later
        if self.phase is Phase.WAIT_GO and (self._profile.race is None or self._go is not None) and self._may_start():
            self._enter(Phase.ARM, t)
        if self.phase is Phase.ARM:
            if not self._armed and (self._answered or t - self._since < UNANSWERED_S):
                return self._arm(t)
            if self.go_t is None:
                self.estimator.release()
            self.go_t = t if self._go is None else self._go
            self._enter(Phase.LAUNCH, t)
        if self.phase in (Phase.LAUNCH, Phase.RACE, Phase.FINISHED):
            return self._fly(t)
        return []

    def prepare(self) -> None:
        """What can be done for the next command before its state is known; to be called when commands have been sent."""
        if self.last_step is not None and not self.over:
            self.controller.prepare()

    def _linked(self, t: float) -> bool:
        """Whether all has been heard that is needed; an ATTITUDE that does not come need not be."""
        missing = self.missing
        if missing != ["ATTITUDE"]:
            return not missing
        self._complete_but_attitude = min(self._complete_but_attitude, t)
        return t - self._complete_but_attitude > ATTITUDE_WAIT_S

    def _enter(self, phase: Phase, t: float) -> None:
        self.phase, self._since = phase, t

    def _may_start(self) -> bool:
        """Ends the flight before it begins where something contradicts profile or track."""
        if self._preflight is not None and (why := self._preflight.contradiction()):
            self.refused = why
            self.abort(f"refused to start: {why}")
        return not self.refused

    def _watch_rest(self, sample: Imu) -> None:
        """Starts the calibration anew when the vehicle is moved during it."""
        if self.phase is not Phase.CALIBRATE:
            self._reference_sample = sample
            return
        first = self._reference_sample or sample
        moved = np.abs(np.subtract(sample.accel, first.accel)).max() > REST_ACCEL
        turned = np.abs(np.subtract(sample.gyro, first.gyro)).max() > REST_GYRO
        if moved or turned:
            self.estimator.restart_rest()
            if self._preflight is not None:
                self._preflight.restart()
            self._reference_sample, self._since = sample, sample.t

    def _arm(self, t: float) -> list[Command]:
        if t < self._next_arm:
            return []
        self._next_arm = t + ARM_RETRY_S
        return [Arm(True)]

    def _coast(self, t: float) -> None:
        """Bridge a gap of the telemetry, which ends at t, by what the model says of the commands sent meanwhile."""
        if t - self.estimator.t > GAP_S and self.last_step is not None and isinstance(self.controller, Controller):
            state = self.estimator.state()
            readings = self.controller.coast(self._state_vector(state), state.t, min(t, state.t + STALE_S))
            self.estimator.coast([Imu(t, _vector(force), _vector(omega)) for t, force, omega in readings])

    def _state_vector(self, state: State) -> Array:
        """(14,) as `RATES_X`, where the course has moved; the thrust is the controller's to know."""
        return np.concatenate([state.p_wb - self._moved, state.q_wb, state.v_w, state.omega_b, [0.0]])

    def _see(self, picture: Picture) -> None:
        if self.phase not in (Phase.LAUNCH, Phase.RACE):
            return

        def recognise(prior: State) -> tuple[list[GateSighting], int]:
            self.last_sightings, rejected = self.associator.associate(
                prior.t, picture.detections, prior.p_wb, prior.cov_p, prior.q_wb, prior.sigma_attitude_rad
            )
            self.tally.sightings += len(self.last_sightings)
            self.tally.rejected += rejected
            if self.last_sightings:
                self._recognised = prior.t
            return self.last_sightings, rejected

        self.estimator.picture(picture.t, recognise)

    def _fly(self, t: float) -> list[Command]:
        period = 1 / self._profile.command_hz
        if t < self._next_command - 1e-6:
            return []
        state = self.estimator.state()
        # Late telemetry must not be made up for by a burst, so the schedule starts anew after a gap.
        due = self._next_command if t - self._next_command < period else t
        self._next_command = due + period
        self.tally.lost += state.lost
        if self.phase is not Phase.FINISHED:
            self._judge(state, t)
        if self.over:
            return []
        self._moved += min(period / COURSE_S, 1.0) * (self._offset() - self._moved)
        control = self.controller.step(t, self._state_vector(state), self._next_command - t, t - state.t)
        self._count(control, t)
        throttle = self._vehicle.throttle.throttle(control.u[3])
        target = AttitudeTarget(tuple(control.q_wb.tolist()), tuple(control.u[:3].tolist()), throttle, self._by_rates)
        self.last_step = Step(state, control, target)
        return [target]

    def _offset(self) -> Array:
        """Of the next gate, (3,) m; none without a map."""
        if not self.course:
            return np.zeros(3)
        passed = min(len(self.tally.gate_times_s), len(self.course) - 1)
        return self.estimator.gate_offset(self._landmarks[passed % len(self._landmarks)], self.course[passed].p_wg)

    def _count(self, control: Control, t: float) -> None:
        self.tally.fallbacks += control.source is not Source.SOLVED
        self.tally.late += control.step_s > 1 / self._profile.command_hz
        if control.reason:
            reasons = self.tally.fallback_reasons
            reasons[control.reason] = reasons.get(control.reason, 0) + 1
        if control.source is not Source.LEVEL:
            self._level_since = None
        elif self._level_since is None:
            self._level_since = t
        elif t - self._level_since > LEVEL_LIMIT_S:
            self.abort(f"no solution for {LEVEL_LIMIT_S:g} s (solver status {control.status})")

    def _judge_launch(self, state: State, t: float) -> None:
        """The launch becomes the race, or ends on the pad."""
        if np.linalg.norm(state.v_w) > AIRBORNE_M_S:
            self._enter(Phase.RACE, t)
        elif t - self._since > LAUNCH_LIMIT_S:
            self.abort("commanded, but the vehicle does not move")

    def _judge(self, state: State, t: float) -> None:
        """Follows the launch, the gates and the limits by the estimate."""
        assert self.go_t is not None
        if self.phase is Phase.LAUNCH:
            self._judge_launch(state, t)
        previous, self._previous = self._previous, state
        passed = len(self.tally.gate_times_s)
        if previous is not None and passed < len(self.course):
            crossing = self.course[passed].crossing(self._was, state.p_wb - self._offset())
            if crossing is not None and crossing.margin > -REACH_M:
                at = previous.t + crossing.s * (state.t - previous.t)
                self.tally.gate_times_s.append(at - self.go_t)
                self.tally.gate_margins_m.append(crossing.margin)
                if passed + 1 == len(self.course):
                    self._enter(Phase.FINISHED, t)
        self._was = state.p_wb - self._offset()
        if self.controller.theta > self.controller.reference.end + OVERDUE_S:
            self.abort(f"the plan has ended, but gate {len(self.tally.gate_times_s)} was not passed")
        elif t - self.go_t > self._profile.run_limit_s:
            self.abort(f"no finish within {self._profile.run_limit_s:g} s")


def _vector(a: Array) -> Vector:
    x, y, z = a.tolist()
    return x, y, z
