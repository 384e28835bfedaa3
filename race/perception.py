"""Perception in lock-step: the simulator's exposures to detected images, by rendered images or projected corners."""

from abc import ABC, abstractmethod

from gate_racer.common.errors import UserError
from gate_racer.link.clock import StreamClock
from gate_racer.link.profile import Profile
from gate_racer.link.video import datagrams, image_reassembler
from gate_racer.perception.detection import Detection, RivalDetection, decode
from gate_racer.perception.registry import CLASSICAL, open_detector
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import DetectedImage
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.feed import Feed
from gate_racer.sim.view.projected import ProjectedCamera, RivalOutlines, SeenGate, SeenRival
from gate_racer.sim.view.style import load_style
from gate_racer.sim.worlds.world import AS_BELIEVED, World
from gate_racer.vehicle.camera import Camera


class LockstepPerception(ABC):
    """Converter of exposures to detections."""

    def __init__(self, profile: Profile, clock: StreamClock | None):
        """`clock`: converter of stamps; None: the time of exposure is known."""
        self._profile, self._clock = profile, clock

    @abstractmethod
    def see(self, exposure: Exposure, t: float, window: SearchWindow) -> list[DetectedImage]:
        """Return the images that arrive from an exposure at the simulator's time t (s)."""

    @property
    def refused(self) -> int:
        """Number of images without an answer of the detector."""
        return 0

    def refer(self, stamp: float, t: float) -> None:
        """Record that telemetry with this stamp (s) left the simulator at t (s)."""
        if self._clock is not None:
            self._clock.reference(stamp, t)

    def hold(self) -> None:
        """Announce the flight: the offset between the clocks changes slowly from now on."""
        if self._clock is not None:
            self._clock.hold()

    def close(self) -> None:
        """Release the camera."""
        return None

    def _stamped(self, sent: float, t: float, late_s: float) -> float | None:
        """Return the time of exposure of an image with the stamp `sent` (s), exposed at t (s); None if it is refused."""
        assert self._clock is not None
        return self._clock.stream(sent, t + self._profile.video_latency_s + late_s)

    @property
    def _sigma_s(self) -> float:
        return self._clock.sigma_s if self._clock is not None else 0.0


class RenderedPerception(LockstepPerception):
    """Perception that renders, compresses, packetises, reassembles, decodes and detects; stamps pass the client's clock model."""

    def __init__(self, world: World, camera: Camera, profile: Profile, style: str, seed: int, detector: str):
        """`camera`: the detector's model of it. Raises UserError if this machine cannot render, or for an unknown detector."""
        super().__init__(profile, StreamClock.of(profile))
        self._detector = open_detector(detector, camera)
        self._feed = Feed(world.track, world.vehicle, world.seen(load_style(style)), seed)
        self._reassembler = image_reassembler()

    @property
    def refused(self) -> int:
        return self._detector.refused

    def see(self, exposure: Exposure, t: float, window: SearchWindow) -> list[DetectedImage]:
        images = []
        for datagram in datagrams(self._feed.frame(exposure), self._profile):
            frame = self._reassembler.feed(datagram)
            stamp = self._stamped(frame.t, t, exposure.late_s) if frame else None
            if frame is not None and stamp is not None:
                detections = self._detector.detect(decode(frame.jpeg, self._detector.camera), window)
                images.append(DetectedImage(stamp, frame.id, detections, frame.jpeg, self._sigma_s, window))
        return images

    def close(self) -> None:
        self._feed.close()


class ProjectedPerception(LockstepPerception):
    """Perception that projects corners and adds the detector's errors, some fifty times faster; its images hold no pixels.

    With a nominal clock and latency of the video the time of exposure is exact; else the client's clock model converts stamps.
    """

    def __init__(self, world: World, camera: Camera, profile: Profile, style: str, seed: int, detector: str):
        as_believed = world.deviations.link == AS_BELIEVED.link
        super().__init__(profile, None if as_believed else StreamClock.of(profile))
        self._camera = ProjectedCamera(
            world.track, world.vehicle.camera, world.seen(load_style(style)), seed, off=world.deviations.camera
        )
        self._outlines = RivalOutlines(world.track, world.vehicle.camera, seed)

    def see(self, exposure: Exposure, t: float, window: SearchWindow) -> list[DetectedImage]:
        pose = exposure.p_wb, exposure.q_wb, exposure.v_w, exposure.omega_b
        seen = detections(self._camera.see(*pose, exposure.rivals))
        others = [_reported(one) for one in self._outlines.see(exposure.p_wb, exposure.q_wb, exposure.rivals)]
        if self._clock is None:
            return [DetectedImage(exposure.t, exposure.id, seen, rivals=others)]
        stamp = self._stamped(self._profile.video_stamp(exposure.stamp) * 1e-9, t, exposure.late_s)
        if stamp is None:
            return []
        return [DetectedImage(stamp, exposure.id, seen, clock_sigma=self._sigma_s, rivals=others)]


def detections(seen: list[SeenGate]) -> list[Detection]:
    """Return the detections for the gates seen by the projected camera."""
    return [Detection.partly(gate.corners_px, gate.measured, gate.visible, gate.sigma_px, gate.score) for gate in seen]


def _reported(seen: SeenRival) -> RivalDetection:
    return RivalDetection(seen.box_px, seen.sigma_px, seen.cut, seen.score)


CAMERAS: dict[str, type[RenderedPerception] | type[ProjectedPerception]] = {
    "rendered": RenderedPerception,
    "projected": ProjectedPerception,
}


def open_perception(
    camera: str, style: str, world: World, camera_model: Camera, profile: Profile, seed: int, detector: str = CLASSICAL
) -> LockstepPerception:
    """Open the camera `camera` on a style of the world; only a rendered one uses the detector and `camera_model`.

    Raises:
        UserError: unknown camera, style or detector, or this machine cannot render.
    """
    if camera not in CAMERAS:
        raise UserError(f"no camera {camera!r}; known: {', '.join(CAMERAS)}")
    return CAMERAS[camera](world, camera_model, profile, style, seed, detector)
