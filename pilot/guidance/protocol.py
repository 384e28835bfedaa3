"""Protocol of guidance between GO and the end: follow a plan (`PlanFollower`), explore (`Explorer`) or excite (`Exciter`)."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from gate_racer.estimation.estimator import Estimator, MapEstimator, State
from gate_racer.estimation.localisation import GateRelocator, Localised, displaced, recognise, refocused
from gate_racer.link.messages import Imu, RivalState, Telemetry
from gate_racer.mpc.control import Control, EstimatedParameters
from gate_racer.perception.association import Associator
from gate_racer.perception.roi import RoiPredictor, SearchWindow
from gate_racer.pilot.flight import DetectedImage, End, Passages
from gate_racer.planner.plan import Plan
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

E = TypeVar("E", bound=Estimator, contravariant=True)


class FlightGuidance(Protocol[E]):
    """Guidance of a flight: `see` is called with each image, `judge` and `step` once per command, `prepare` after it.

    Methods that are not abstract are optional: by default messages are ignored, and nothing is prepared, bridged or
    reinterpreted.
    """

    course: tuple[Gate, ...]  # gates to pass, in order; empty where they are unknown
    passages: Passages

    @abstractmethod
    def window(self, state: State | None) -> SearchWindow:
        """Return the region of the next image to search for gates, for the newest state; None: it is too uncertain."""

    def end_of_rest(self, images: Sequence[DetectedImage], estimator: E) -> None:
        """Process the images taken on the pad, at the end of the rest."""
        return None

    @abstractmethod
    def see(self, image: DetectedImage, estimator: E) -> Localised:
        """Correct the estimate by an image."""

    def receive(self, message: Telemetry) -> End | None:
        """Process a message in flight; return an end if it ends the flight."""
        return None

    def process_rival(self, rival: RivalState) -> None:
        """Process a rival's state, before the flight and in it."""
        return None

    def process_human_input(self, t: float, u: Array) -> None:
        """Process the input (4,) at t (s) of a person who flies instead: body rates (rad/s) and thrust (m/s^2)."""
        return None

    def ready(self, rested_s: float) -> bool:
        """Return whether an armed vehicle that has rested for rested_s may leave the pad."""
        return True

    @abstractmethod
    def judge(self, state: State, t: float, go_t: float, estimator: E) -> End | None:
        """Update the progress by the state at t (s), before `step`; GO was at go_t (s). Return an end if the flight is over."""

    @abstractmethod
    def step(self, state: State, t: float, dt: float, estimator: E) -> Control:
        """Return the command at t (s); the next one follows dt (s) later."""

    def prepare(self) -> None:
        """Prepare the next command before its state is known."""
        return None

    def bridge(self, state: State, t: float) -> list[Imu]:
        """Return the bias-free samples that a model predicts from a state up to t (s); none without a model."""
        return []

    @property
    def rests(self) -> bool:
        """Whether there is nothing to fly behind the last gate, or it has been flown."""
        return True

    def learned(self) -> EstimatedParameters | None:
        """Return the vehicle parameters estimated in flight; None without an estimate."""
        return None

    def replanned(self) -> tuple[Plan, Vehicle] | None:
        """Return the last plan followed, whose time measures progress, and its vehicle; None: the initial ones."""
        return None

    def conclude(self, end: End) -> End:
        """Translate an end from elsewhere into the end of this flight."""
        return end


class GateObserver:
    """Recognition of the gates of a known track in images."""

    def __init__(self, associator: Associator, gates: Sequence[Gate]):
        self._gates = self._mapped = tuple(gates)
        self._relocator, self._recognised_t = GateRelocator(), -np.inf  # s, when a gate last was recognised
        self._set_map(associator)

    def end_of_rest(
        self, images: Sequence[DetectedImage], estimator: MapEstimator, requested: Collection[int] = ()
    ) -> None:
        """Rescale the focal length, and displace the requested gates, if the images from the pad show that the model is wrong."""
        associator = refocused(estimator, self._associator, [image.detections for image in images])
        if associator is not self._associator:
            self._relocator = GateRelocator()
            self._set_map(associator)
        for image in images:
            self._relocate(Localised(at=estimator.predict_at_rest(image.t)), image, estimator, requested)

    def _set_map(self, associator: Associator) -> None:
        self._associator, self._roi = associator, RoiPredictor(self._gates, associator.camera)

    def see(self, image: DetectedImage, estimator: MapEstimator, requested: Collection[int] = ()) -> Localised:
        """Correct an estimator by the gates visible from its position; the requested gates may be displaced from the map."""
        exposure = estimator.predict(image.t)
        if exposure is None:
            return Localised()
        found = recognise(exposure, self._associator, image.detections)
        if self._relocate(found, image, estimator, requested):
            found = recognise(exposure, self._associator, image.detections)
        if found.sightings:
            self._recognised_t = found.sightings[0].t
        return replace(found, used=estimator.correct(exposure, found.sightings, found.unexplained))

    def _relocate(
        self, found: Localised, image: DetectedImage, estimator: MapEstimator, requested: Collection[int]
    ) -> bool:
        """Move one of the requested gates to where this image and those before show it, on the map and in the estimator."""
        moved = self._relocator.look(found, image.detections, requested, self._associator)
        if moved is None:
            return False
        here = self._gates[moved.gate]
        self._gates = tuple(displaced(gate, moved.step_w) if gate.same_frame(here) else gate for gate in self._gates)
        self._set_map(self._associator.on(self._gates))
        estimator.relocate(moved.gate, moved.cov)
        return True

    def displace(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)
        self._set_map(self._associator.on(self._gates))

    def moved(self, gate: int) -> Array:
        """Return the displacement (3,) m of a gate from the original map, world NED."""
        return self._gates[gate].p_wg - self._mapped[gate].p_wg

    def window(self, state: State | None, offset_w: Array) -> SearchWindow:
        """Return the region to search for gates, displaced by offset_w (3,) m from the map; the whole image without a state."""
        if state is None:
            return self._roi.whole_image
        return self._roi.next_window(replace(state, p_wb=state.p_wb - offset_w), state.t - self._recognised_t)


def state_vector(state: State, offset_w: Array | None = None) -> Array:
    """Return (14,) as `RATES_X`, the position less an offset (3,) m; the thrust is left to the controller."""
    x = np.zeros(RATES_X.size)
    x[:13] = np.concatenate([state.p_wb, state.q_wb, state.v_w, state.omega_b])
    if offset_w is not None:
        x[:3] -= offset_w
    return x
