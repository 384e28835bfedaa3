"""Guidance by a plan, and from gate to gate without one; both count the gates passed.

By a plan: the controller tracks it, slower while the next gate may be missed, and while commands are too infrequent. A slower
vehicle needs less thrust against drag, pitches less and sees more of the gates (docs/worlds.md).

Without a plan: the command follows from the estimate and the next gate, as by a policy (Swift, Kaufmann et al. 2023).
"""

import math
from collections.abc import Collection, Sequence

import numpy as np

from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.estimation.localisation import Localised, displaced
from gate_racer.link.messages import Imu, RaceStatus, RivalState, Telemetry
from gate_racer.mpc.control import Control, EstimatedParameters
from gate_racer.mpc.controller import STALE_S, PlanController
from gate_racer.mpc.part import FreePart
from gate_racer.mpc.policy.policy import PolicyController
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import DetectedImage, End, EndReason, FlightOptions, Passages
from gate_racer.pilot.guidance.evasion import FrameEvasion
from gate_racer.pilot.guidance.protocol import FlightGuidance, GateObserver, state_vector
from gate_racer.pilot.guidance.recovery import GateRetries, missed_margin, room_in
from gate_racer.pilot.guidance.rivals import PassingRoom, RivalWatch
from gate_racer.planner.plan import Plan
from gate_racer.tracks.gate import Crossing, Gate, has_slot, sigma_across
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, as_vector
from gate_racer.vehicle.statistics import greatest_sigma
from gate_racer.vehicle.vehicle import Vehicle

BEGIN, FULL = 0.5, 1.0  # standard deviation over the room in a gate, where slowing begins and is full: two and one fit
UNSEEN = 0.2  # standard deviation across the opening over the free room, above which the controller looks at the gate
SLOWEST = 0.4  # fraction of the plan's pace at full uncertainty: 0.35 to 0.5 finished equally often
LATE = 1.3  # ratio to the requested command period: less is jitter, or telemetry at no multiple of it
LATE_S = 0.5  # s, time constant of the mean period


class Caution:
    """Pace limiter; call `pace` once per command."""

    def __init__(self, contact_radius_m: float, period_s: float):
        self._radius_m, self._wanted_s = contact_radius_m, period_s
        self._mean_s, self._last = period_s, math.nan

    def pace(self, t: float, gate: Gate, to_last: Array | None, to_next: Array | None = None) -> float:
        """Return the greatest pace at time t (s), 1.0 as planned, inf without a limit.

        Covariances (3, 3) m^2 of the position: to the gate used last, and to the next, whose part across its opening counts.
        """
        passed = t - self._last if t > self._last else self._wanted_s
        self._last = t
        self._mean_s += min(passed / LATE_S, 1.0) * (passed - self._mean_s)
        late = self._mean_s / (LATE * self._wanted_s)
        most = math.inf if late <= 1 else max(1 / late, SLOWEST)  # in proportion to the command rate
        room = room_in(gate, self._radius_m)
        if room <= 0:
            return most
        sigma = max(0.0 if to_last is None else greatest_sigma(to_last), sigma_across(gate, to_next))
        share = (sigma / room - BEGIN) / (FULL - BEGIN)
        return most if share <= 0 else min(most, max(1 - (1 - SLOWEST) * share, SLOWEST))

    def looks(self, gate: Gate, cov: Array | None) -> bool:
        """Return whether the next gate, with covariance (3, 3) m^2, must be seen better before it is passed."""
        room = room_in(gate, self._radius_m)
        return cov is not None and room > 0 and sigma_across(gate, cov) > UNSEEN * room


OVERDUE_S = 1.0  # past the plan's end without having seen the last gate's plane
NEARLY_S = 0.05  # of plan time, before its end
COURSE_S = 0.05  # time constant with which the course follows what is known of its gates
BEHIND, BEFORE = 1, 3  # gates passed last and flown to next, about which the course is led where they stand
AHEAD = 2  # gates that are looked for elsewhere
REACH_M = 3.0  # from a gate's centre: a plane crossed farther out was not this gate's


class CourseFollower(FlightGuidance[MapEstimator]):
    """Guidance through gates that may be displaced from the map, which counts those passed."""

    def __init__(self, track: Track, laps: int, observer: GateObserver):
        self.course, self.passages = track.course(laps), Passages()
        self._observer, self._landmarks = observer, track.landmarks
        self._previous: State | None = None
        self._previous_p = np.zeros(3)  # m, the place of then on the map, by what was known of the next gate then

    def retarget(self, track: Track) -> None:
        """Fly at the same gates at other places, those of `track`."""
        landmark = self._landmark(self._next)
        before = self._observer.moved(landmark)
        self._observer.displace(track.gates)
        self._previous_p = self._previous_p - (self._observer.moved(landmark) - before)

    def _crossing(self, state: State, estimator: MapEstimator) -> Crossing | None:
        """Return where the plane of the next gate was crossed since the previous state, if it was."""
        previous, passed = self._previous, len(self.passages.times_s)
        if previous is None or passed == len(self.course):
            return None
        p_w = state.p_wb - self._gate_offset(passed, estimator)
        return self.course[passed].crossing(self._previous_p, p_w, previous.v_w, state.v_w)

    def _pass(self, crossing: Crossing, state: State, go_t: float) -> None:
        assert self._previous is not None
        self.passages.times_s.append(self._previous.t + crossing.s * (state.t - self._previous.t) - go_t)
        self.passages.margins_m.append(crossing.margin)

    def _remember(self, state: State, estimator: MapEstimator) -> None:
        self._previous, self._previous_p = state, state.p_wb - self._gate_offset(self._next, estimator)

    def _gate_offset(self, number: int, estimator: MapEstimator) -> Array:
        """Return the offset (3,) m of a gate of the course from the plan, world NED."""
        landmark, at_w, moved = self._on_map(number)
        return moved + estimator.gate_offset(landmark, at_w)

    def _on_map(self, number: int) -> tuple[int, Array, Array]:
        """Return a gate's landmark, its current position on the map (3,) m, and its displacement from the original map (3,) m."""
        landmark = self._landmark(number)
        moved = self._observer.moved(landmark)
        return landmark, self.course[number].p_wg + moved, moved

    def _landmark(self, number: int) -> int:
        return self._landmarks[number % len(self._landmarks)]

    @property
    def _next(self) -> int:
        """Number of the next gate; after the last, that of the last."""
        return min(len(self.passages.times_s), len(self.course) - 1)


class PlanFollower(CourseFollower):
    def __init__(
        self,
        track: Track,
        vehicle: Vehicle,
        controller: PlanController,
        period_s: float,
        options: FlightOptions,
        observer: GateObserver,
    ):
        super().__init__(track, options.laps, observer)
        self.controller, radius_m = controller, vehicle.contact_radius_m
        slots = has_slot(track.gates, vehicle.radius_m)  # no second try has the run-up for one
        searches = options.retry and not options.shadow and not slots
        self._caution, self._share = Caution(radius_m, period_s), min(period_s / COURSE_S, 1.0)
        self._retries = GateRetries(track, self.course, controller, vehicle, searches)
        self._evasion = FrameEvasion(controller, vehicle, radius_m, track.bounds) if searches else None
        self._rivals: RivalWatch | None = None  # without it none is given way
        if options.grid is not None:
            body_m = vehicle.half_diagonal
            self._rivals = RivalWatch(options.grid, body_m, PassingRoom(track, body_m))
        self._replanning = options.replanning
        if options.replanning is not None:
            self.passages.replans = options.replanning.made
        if options.shadow:
            controller.flies = False
        self._set_out = False
        self._offsets = np.zeros((len(self.course), 3))  # m, by which the gates stand off the map, as they are flown to

    def continue_from(self, other: "PlanFollower") -> None:
        """Take over the progress of a guidance by another plan through the same gates."""
        self.passages, self._previous = other.passages, other._previous
        self._previous_p = other._previous.p_wb if other._previous is not None else self._previous_p
        self._set_out = other._set_out

    def window(self, state: State | None) -> SearchWindow:
        return self._observer.window(state, self._offsets[self._next])

    def end_of_rest(self, images: Sequence[DetectedImage], estimator: MapEstimator) -> None:
        self._observer.end_of_rest(images, estimator, self._asked)

    def see(self, image: DetectedImage, estimator: MapEstimator) -> Localised:
        landmark = self._landmark(self._next)
        before = self._observer.moved(landmark)
        found = self._observer.see(image, estimator, self._asked)
        step_w = self._observer.moved(landmark) - before
        if step_w.any():
            self._previous_p = self._previous_p - step_w  # displacing a gate is not motion of the vehicle
            self._offsets[self._next] = self._gate_offset(self._next, estimator)
        if any(sighting.gate == landmark for sighting in found.sightings):
            self._retries.record_sighting(image.t)
        return found

    def receive(self, message: Telemetry) -> End | None:
        if isinstance(message, RaceStatus):
            self._retries.status.receive(message)
        return None

    def process_rival(self, rival: RivalState) -> None:
        if self._rivals is not None:
            self._rivals.received.receive(rival)

    def process_human_input(self, t: float, u: Array) -> None:
        self.controller.predictor.sent(t, u)

    def judge(self, state: State, t: float, go_t: float, estimator: MapEstimator) -> End | None:
        passed = len(self.passages.times_s)
        outside = self._count(state, go_t, estimator)
        if len(self.passages.times_s) > passed and self._retries.recovery is not None:
            self._retries.resume(passed, t)
        end = self._retries.judge(self._next, outside, self.passages, state, t, go_t)
        self._remember(state, estimator)
        trying = self._retries.recovery is not None
        if self._evasion is not None and self._evasion.active and (trying or len(self.passages.times_s) > passed):
            self._evasion.active = False
            if not trying:
                self._retries.resume(passed, t)
        overdue = self.controller.theta > self.controller.reference.end + OVERDUE_S
        if end is None and not trying and overdue and len(self.passages.times_s) < len(self.course):
            cause = f"the plan has ended, but gate {len(self.passages.times_s)} was not passed"
            end = End(EndReason.PLAN_OVERRUN, cause)
        if self._replanning is not None:
            if end is None and not trying:
                self._replanning.follow(t, go_t)
            else:
                self._replanning.forget()
        return end

    def _count(self, state: State, go_t: float, estimator: MapEstimator) -> bool:
        """Record the passage of the next gate, if its plane was crossed within it; return whether it was crossed outside."""
        gate, evading = self.course[self._next], self._evasion is not None and self._evasion.active
        crossing, searched = self._crossing(state, estimator), self._retries.searches_ball(gate, go_t)
        if crossing is None or searched or not (crossing.margin > -REACH_M or evading):
            return False
        if self._retries.searches and crossing.margin < missed_margin(gate):
            return True
        self._pass(crossing, state, go_t)
        return False

    def step(self, state: State, t: float, dt: float, estimator: MapEstimator) -> Control:
        gate = self.course[self._next]
        doubt = self._gate_doubt(self._next, estimator)
        most = self._caution.pace(t, gate, state.cov_to_gate, doubt)
        self.controller.progress.looking = self._caution.looks(gate, doubt)
        self._lead_course(estimator)
        if self._rivals is not None:
            controller, progress = self.controller, self.controller.progress
            if not self._set_out:  # from one's own place on the grid, not all to one line
                self._set_out = True
                controller.begin_at(state.p_wb)
            way = self._rivals.way(state, controller.reference, progress.theta, progress.pace, progress.attainable)
            controller.others = way.tubes
            most = min(most, way.pace)
        if self._retries.recovery is not None:
            return self._retries.step(state_vector(state, self._offsets[self._next]), state, t, dt)
        if self._evasion is not None and self._observer.moved(self._landmark(self._next)).any():
            there = displaced(gate, self._gate_offset(self._next, estimator))
            evading = self._evasion.step(there, state_vector(state), t, t - state.t)
            if evading is not None:
                return evading
        self.controller.progress.allowed = min(most, self._retries.pace(t))
        return self.controller.step(t, state_vector(state), dt, t - state.t)

    def prepare(self) -> None:
        if self._retries.recovery is None:
            self.controller.prepare()

    @property
    def rests(self) -> bool:
        return self.controller.theta > self.controller.reference.end - NEARLY_S

    def learned(self) -> EstimatedParameters:
        return self.controller.learned

    def replanned(self) -> tuple[Plan, Vehicle] | None:
        return (self._replanning.plan, self._replanning.vehicle) if self._replanning is not None else None

    def bridge(self, state: State, t: float) -> list[Imu]:
        end, model = min(t, state.t + STALE_S), self.controller.disturbance.parameters
        readings = self.controller.predictor.readings(state_vector(state), state.t, end, model)
        return [Imu(t, as_vector(force), as_vector(omega)) for t, force, omega in readings]

    def _lead_course(self, estimator: MapEstimator) -> None:
        """Shift the course near the vehicle to the estimated gate positions."""
        for k in range(max(self._next - BEHIND, 0), min(self._next + BEFORE, len(self.course))):
            self._offsets[k] += self._share * (self._gate_offset(k, estimator) - self._offsets[k])
            sigma_m = sigma_across(self.course[k], self._gate_doubt(k, estimator))
            self.controller.reference.offsets.set_offset(k, self._offsets[k], sigma_m)

    def _gate_doubt(self, number: int, estimator: MapEstimator) -> Array | None:
        """Return the covariance (3, 3) m^2 of the position to a gate of the course; None if unknown."""
        landmark, at_w, _ = self._on_map(number)
        return estimator.gate_covariance(landmark, at_w)

    @property
    def _asked(self) -> Collection[int]:
        """Landmarks of the next gates, which may be displaced from the map."""
        ahead = range(self._next, min(self._next + AHEAD, len(self.course))) if self._retries.searches else ()
        return {self._landmark(k) for k in ahead if not self.course[k].is_ball}


CIRCLING_S = 15.0  # s without a further gate: a policy trained for another course may circle for ever


class GateFollower(CourseFollower):
    """Guidance from gate to gate; a missed gate remains the next."""

    def __init__(self, track: Track, laps: int, controller: PolicyController | FreePart, observer: GateObserver):
        super().__init__(track, laps, observer)
        self._controller, self._lap = controller, len(track.gates) if track.closed else 0

    def window(self, state: State | None) -> SearchWindow:
        return self._observer.window(state, np.zeros(3))

    def end_of_rest(self, images: Sequence[DetectedImage], estimator: MapEstimator) -> None:
        self._observer.end_of_rest(images, estimator)

    def see(self, image: DetectedImage, estimator: MapEstimator) -> Localised:
        return self._observer.see(image, estimator)

    def judge(self, state: State, t: float, go_t: float, estimator: MapEstimator) -> End | None:
        passages, crossing = self.passages, self._crossing(state, estimator)
        if crossing is not None and max(missed_margin(self.course[self._next]), -REACH_M) <= crossing.margin:
            self._pass(crossing, state, go_t)
            if len(passages.times_s) == len(self.course):
                return End(EndReason.FINISHED)
        self._remember(state, estimator)
        since = passages.times_s[-1] if passages.times_s else 0.0
        if t - go_t - since > CIRCLING_S:
            return End(EndReason.TIME_LIMIT, f"no gate was passed for {CIRCLING_S:g} s")
        return None

    def step(self, state: State, t: float, dt: float, estimator: MapEstimator) -> Control:
        x = state_vector(state, self._gate_offset(self._next, estimator))
        return self._controller.step(t, x, self.course[self._next])

    @property
    def _next(self) -> int:
        """Number of the next gate; after the last of a closed course, the first."""
        return len(self.passages.times_s) % self._lap if self._lap else super()._next
