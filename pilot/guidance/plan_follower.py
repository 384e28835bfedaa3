"""Guidance by a plan: the controller follows it, the estimate says which gates were passed."""

import numpy as np

from estimation.estimator import MapEstimator, State
from estimation.localisation import Localised
from link.messages import Imu, Vector
from mpc.controller import STALE_S, Control, Controller
from perception.roi import SearchWindow
from pilot.flight import DetectedImage, End, EndReason, Passages
from pilot.guidance.caution import Caution
from pilot.guidance.protocol import GateObserver, Guidance, state_vector
from tracks.track import Track
from vehicle.rotation import Array

OVERDUE_S = 1.0  # past the plan's end without having seen the last gate's plane
COURSE_S = 0.05  # time constant with which the course follows what is known of the next gate
REACH_M = 3.0  # from a gate's centre: a plane crossed farther out was not this gate's


class PlanFollower(Guidance[MapEstimator]):
    """Flies a plan about gates that may stand off the map."""

    def __init__(
        self,
        track: Track,
        laps: int,
        controller: Controller,
        observer: GateObserver,
        contact_radius_m: float,
        period_s: float,
    ):
        """`period_s`: between two commands."""
        self.course, self.passages, self.controller = track.course(laps), Passages(), controller
        self._caution = Caution(contact_radius_m, period_s)
        self._observer, self._landmarks = observer, track.landmarks
        self._share = min(period_s / COURSE_S, 1.0)
        self._previous: State | None = None
        self._previous_p = np.zeros(3)  # m, the place of then on the map, by what was known of the next gate then
        self._offset = np.zeros(3)  # m, by which the course about the vehicle stands off the map

    def window(self, state: State | None) -> SearchWindow:
        return self._observer.window(state, self._offset)

    def see(self, image: DetectedImage, estimator: MapEstimator) -> Localised:
        return self._observer.see(image, estimator)

    def judge(self, state: State, t: float, go_t: float, estimator: MapEstimator) -> End | None:
        """Count the gates that the estimate passes; finished with the last."""
        previous, self._previous = self._previous, state
        passages, end = self.passages, None
        passed = len(passages.times_s)
        if previous is not None and passed < len(self.course):
            p_w = state.p_wb - self._gate_offset(estimator)
            crossing = self.course[passed].crossing(self._previous_p, p_w)
            if crossing is not None and crossing.margin > -REACH_M:
                passages.times_s.append(previous.t + crossing.s * (state.t - previous.t) - go_t)
                passages.margins_m.append(crossing.margin)
                if passed + 1 == len(self.course):
                    end = End(EndReason.FINISHED)
        self._previous_p = state.p_wb - self._gate_offset(estimator)
        if end is None and self.controller.theta > self.controller.reference.end + OVERDUE_S:
            cause = f"the plan has ended, but gate {len(passages.times_s)} was not passed"
            end = End(EndReason.PLAN_OVERRUN, cause)
        return end

    def step(self, state: State, t: float, dt: float, estimator: MapEstimator) -> Control:
        gate = self.course[self._next]
        self.controller.limit_pace(self._caution.pace(t, gate, state.cov_to_gate))
        self.controller.look(self._caution.looks(gate, estimator.gate_doubt(self._landmark, gate.p_wg)))
        self._offset += self._share * (self._gate_offset(estimator) - self._offset)
        self.controller.sink_course(float(self._offset[2]))
        return self.controller.step(t, state_vector(state, self._offset), dt, t - state.t)

    def prepare(self) -> None:
        self.controller.prepare()

    def bridge(self, state: State, t: float) -> list[Imu]:
        """By what the model says of the commands sent."""
        x = state_vector(state, self._offset)
        readings = self.controller.coast(x, state.t, min(t, state.t + STALE_S))
        return [Imu(t, _vector(force), _vector(omega)) for t, force, omega in readings]

    def _gate_offset(self, estimator: MapEstimator) -> Array:
        """(3,) m, of the next gate from where the map has it."""
        return estimator.gate_offset(self._landmark, self.course[self._next].p_wg)

    @property
    def _landmark(self) -> int:
        """Of the next gate, in the track."""
        return self._landmarks[self._next % len(self._landmarks)]

    @property
    def _next(self) -> int:
        """Number of the next gate, in the end of the last one."""
        return min(len(self.passages.times_s), len(self.course) - 1)


def _vector(a: Array) -> Vector:
    x, y, z = a.tolist()
    return x, y, z
