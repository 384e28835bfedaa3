"""Guidance without a plan: command from the estimate and the next gate, as by a policy (Swift, Kaufmann et al. 2023)."""

from collections.abc import Sequence

import numpy as np

from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.estimation.localisation import Localised
from gate_racer.mpc.control import Control
from gate_racer.mpc.part import FreePart
from gate_racer.mpc.policy.policy import PolicyController
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import DetectedImage, End, EndReason, Passages
from gate_racer.pilot.guidance.incidents import missed_margin
from gate_racer.pilot.guidance.plan_follower import REACH_M
from gate_racer.pilot.guidance.protocol import FlightGuidance, GateObserver, state_vector
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array

OVERDUE_S = 15.0  # s without a further gate: a policy trained for another course may circle for ever


class GateFollower(FlightGuidance[MapEstimator]):
    """Guidance from gate to gate, through gates that may be displaced from the map; a missed gate remains the next."""

    def __init__(self, track: Track, laps: int, controller: PolicyController | FreePart, observer: GateObserver):
        self.course, self.passages = track.course(laps), Passages()
        self._track, self._controller, self._observer = track, controller, observer
        self._previous: State | None = None
        self._previous_p = np.zeros(3)  # m, previous position in the map frame, by the previous offset of the next gate

    def retarget(self, track: Track) -> None:
        """Fly at the same gates at other places, those of `track`."""
        self._observer.displace(track.gates)

    def window(self, state: State | None) -> SearchWindow:
        return self._observer.window(state, np.zeros(3))

    def end_of_rest(self, images: Sequence[DetectedImage], estimator: MapEstimator) -> None:
        self._observer.end_of_rest(images, estimator)

    def see(self, image: DetectedImage, estimator: MapEstimator) -> Localised:
        return self._observer.see(image, estimator)

    def judge(self, state: State, t: float, go_t: float, estimator: MapEstimator) -> End | None:
        """Count the gates passed by the estimate; finish with the last."""
        previous, self._previous = self._previous, state
        passages, gate = self.passages, self._next_gate
        if previous is not None and len(passages.times_s) < len(self.course):
            p_w = state.p_wb - self._offset(estimator)
            crossing = gate.crossing(self._previous_p, p_w, previous.v_w, state.v_w)
            if crossing is not None and max(missed_margin(gate), -REACH_M) <= crossing.margin:
                passages.times_s.append(previous.t + crossing.s * (state.t - previous.t) - go_t)
                passages.margins_m.append(crossing.margin)
                if len(passages.times_s) == len(self.course):
                    return End(EndReason.FINISHED)
        self._previous_p = state.p_wb - self._offset(estimator)
        since = passages.times_s[-1] if passages.times_s else 0.0
        if t - go_t - since > OVERDUE_S:
            cause = f"no gate was passed for {OVERDUE_S:g} s"
            return End(EndReason.TIME_LIMIT, cause)
        return None

    def step(self, state: State, t: float, dt: float, estimator: MapEstimator) -> Control:
        return self._controller.step(t, state_vector(state, self._offset(estimator)), self._next_gate)

    @property
    def _number(self) -> int:
        """Number of the next gate on the track; after the last of a closed course, the first."""
        passed = len(self.passages.times_s)
        return passed % len(self._track.gates) if self._track.closed else min(passed, len(self.course) - 1)

    @property
    def _next_gate(self) -> Gate:
        return self._track.gates[self._number]

    def _offset(self, estimator: MapEstimator) -> Array:
        """Return the offset (3,) m of the next gate from the map, world NED."""
        landmark = self._track.landmarks[self._number]
        moved = self._observer.moved(landmark)
        return moved + estimator.gate_offset(landmark, self._next_gate.p_wg + moved)
