"""What steers the vehicle between GO and the end: fly the plan (`PlanFollower`), explore (`Explorer`) or excite (`Exciter`)."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from estimation.estimator import Estimator, ExposureState, MapEstimator, State
from estimation.localisation import Localised, correct, recognise, refocused
from estimation.relocation import GateRelocator, displaced
from link.messages import Imu, RivalState, Telemetry
from mpc.control import Control, Learned
from perception.association import Associator
from perception.roi import PredictedPose, RoiPredictor, SearchWindow
from pilot.flight import DetectedImage, End, Passages
from planner.plan import Plan
from tracks.gate import Gate
from vehicle.dynamics import RATES_X
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

E = TypeVar("E", bound=Estimator, contravariant=True)


class Guidance(Protocol[E]):
    """Asked by the pilot in flight: `see` each image, then `judge` and `step` once per command, and `prepare` after it.

    What is not abstract need not be answered: by default nothing is heard, awaited, prepared, bridged or reinterpreted.
    """

    course: tuple[Gate, ...]  # gates to pass, in order; empty where nobody knows them
    passages: Passages

    @abstractmethod
    def window(self, state: State | None) -> SearchWindow:
        """Where the next image may show gates, seen from the newest state; None: it is not known well enough."""

    def rested(self, images: Sequence[DetectedImage], estimator: E) -> None:
        """Take what the camera showed from the pad, when the rest on it is over."""
        return None

    @abstractmethod
    def see(self, image: DetectedImage, estimator: E) -> Localised:
        """Correct the estimator by an image."""

    def hear(self, message: Telemetry) -> End | None:
        """Take a message in flight, which may end it."""
        return None

    def meet(self, rival: RivalState) -> None:
        """Take where a rival is, before the flight and in it."""
        return None

    def flown_by(self, t: float, u: Array) -> None:
        """Take an input (4,) at t (s) of a person who flies instead: body rates and thrust."""
        return None

    def ready(self, rested_s: float) -> bool:
        """Whether an armed vehicle that has rested so long may leave the pad."""
        return True

    @abstractmethod
    def judge(self, state: State, t: float, go_t: float, estimator: E) -> End | None:
        """Follow the flight's progress to the state of time t, before it is steered on; GO was at go_t (s)."""

    @abstractmethod
    def step(self, state: State, t: float, dt: float, estimator: E) -> Control:
        """The command at time t; the next one comes dt (s) later."""

    def prepare(self) -> None:
        """Do what can be done for the next command before its state is known."""
        return None

    def bridge(self, state: State, t: float) -> list[Imu]:
        """Samples, free of bias, that a model predicts from a state on to time t; none where there is no model."""
        return []

    @property
    def rests(self) -> bool:
        """Whether there is no way to fly behind the last gate, or it has been flown."""
        return True

    def learned(self) -> Learned | None:
        """What the flight has shown of its vehicle; None where nobody asks."""
        return None

    def replanned(self) -> tuple[Plan, Vehicle] | None:
        """The plan followed at last, in whose time progress is told, and the vehicle that it is for; None: the one begun with."""
        return None

    def conclude(self, end: End) -> End:
        """What an end that comes from elsewhere means for the purpose of the flight."""
        return end


class GateObserver:
    """Recognises the gates of a known track in images."""

    def __init__(self, associator: Associator, gates: Sequence[Gate]):
        self._gates, self._mapped = tuple(gates), tuple(gates)
        self._through(associator)
        self._recognised_t = -np.inf  # s, when a gate last was

    def rested(self, images: Sequence[DetectedImage], estimator: MapEstimator, asked: Collection[int] = ()) -> None:
        """What images from the pad tell of the camera, which may be another than is believed, and of the gates asked for."""
        associator = refocused(estimator, self._associator, [image.detections for image in images])
        if associator is not self._associator:
            self._through(associator)
        at = estimator.state()
        for image in images:
            found = Localised(at=ExposureState(image.t, replace(at, t=image.t), self._associator.camera))
            self._relocate(found, image, estimator, asked)

    def _through(self, associator: Associator) -> None:
        self._relocator = GateRelocator()
        self._by(associator)

    def _by(self, associator: Associator) -> None:
        self._associator, self._roi = associator, RoiPredictor(self._gates, associator.camera)

    def see(self, image: DetectedImage, estimator: MapEstimator, asked: Collection[int] = ()) -> Localised:
        """Correct an estimator by the gates that it may see from where it is; those asked for may stand off the map."""
        exposure = estimator.predict(image.t)
        if exposure is None:
            return Localised()
        found = recognise(exposure, self._associator, image.detections)
        if self._relocate(found, image, estimator, asked):
            found = recognise(exposure, self._associator, image.detections)
        if found.sightings:
            self._recognised_t = found.sightings[0].t
        return correct(estimator, found)

    def _relocate(
        self, found: Localised, image: DetectedImage, estimator: MapEstimator, asked: Collection[int]
    ) -> bool:
        """Put one of the gates that are asked for where this image and those before show it, on the map and in the estimator."""
        moved = self._relocator.look(found, image.detections, asked, self._associator)
        if moved is None:
            return False
        here = self._gates[moved.gate]
        self._gates = tuple(displaced(gate, moved.step_w) if gate.same_frame(here) else gate for gate in self._gates)
        self._by(self._associator.on(self._gates))
        estimator.relocate(moved.gate, moved.cov)
        return True

    def moved(self, gate: int) -> Array:
        """(3,) m, by which a gate was put elsewhere than on the map."""
        return self._gates[gate].p_wg - self._mapped[gate].p_wg

    def window(self, state: State | None, offset_w: Array) -> SearchWindow:
        """Where gates may be, which stand offset_w (3,) m off the map; anywhere without a state."""
        if state is None:
            return self._roi.whole_image
        motion = state.q_wb, state.v_w, state.omega_b
        pose = PredictedPose(state.p_wb - offset_w, *motion, state.cov_p, state.sigma_attitude_rad)
        return self._roi.next_window(state.t, state.t - self._recognised_t, pose)


def state_vector(state: State, offset_w: Array | None = None) -> Array:
    """(14,) as `RATES_X`, the position less an offset (3,) m; the thrust is the controller's to know."""
    x = np.zeros(RATES_X.size)
    x[:13] = np.concatenate([state.p_wb, state.q_wb, state.v_w, state.omega_b])
    if offset_w is not None:
        x[:3] -= offset_w
    return x
