"""The lock-step driver: simulator and pilot in one process, as fast as the machine can, the same for the same seed.

Pictures take as long on their way as over the wire, in whole ticks, so that the pilot faces the same delays.
"""

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Protocol

from link.messages import Arm, AttitudeTarget
from link.profile import Profile
from perception.detection import Detection, decode
from perception.detector import ColourDetector
from pilot.embedded import referees_verdict
from pilot.pilot import Picture, Pilot
from pilot.recorder import Recorder
from pilot.result import Verdict, Wire
from sim.report import report
from sim.simulator import Exposure, Simulator
from sim.view.feed import Feed
from sim.view.look import Look, load_look
from sim.view.projected import ProjectedCamera
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.vehicle import Vehicle

PERCEPTION_S = 0.010  # assumed for detection, as measured in real time
LINK_LIMIT_S = 20.0  # before the start


class Eye(Protocol):
    """Turns exposures into what perception found in them."""

    def see(self, exposure: Exposure) -> Picture: ...

    def close(self) -> None: ...


class RenderedEye:
    """Draws, compresses, decompresses and detects."""

    def __init__(self, track: Track, vehicle: Vehicle, look: Look, seed: int):
        """Raises UserError when this machine cannot draw."""
        self._feed, self._detector = Feed(track, vehicle, look, seed), ColourDetector(vehicle.camera)

    def see(self, exposure: Exposure) -> Picture:
        frame = self._feed.frame(exposure)
        return Picture(frame.t, frame.id, self._detector.detect(decode(frame.jpeg)), frame.jpeg)

    def close(self) -> None:
        self._feed.close()


class ProjectedEye:
    """Projects corners and adds the detector's errors, some fifty times faster; its pictures hold no image."""

    def __init__(self, track: Track, vehicle: Vehicle, look: Look, seed: int):
        self._camera = ProjectedCamera(track, vehicle.camera, look, seed)

    def see(self, exposure: Exposure) -> Picture:
        seen = self._camera.see(exposure.p_wb, exposure.q_wb)
        detections = [Detection.whole(gate.corners_px, gate.sigma_px, gate.score) for gate in seen]
        return Picture(exposure.t, exposure.id, detections)

    def close(self) -> None:
        pass


EYES: dict[str, type[RenderedEye] | type[ProjectedEye]] = {"rendered": RenderedEye, "projected": ProjectedEye}


def open_eye(camera: str, look: str, track: Track, vehicle: Vehicle, seed: int) -> Eye:
    """The eye of a camera's name on a look of the world.

    Raises:
        UserError: no such camera or look, or this machine cannot draw.
    """
    if camera not in EYES:
        raise UserError(f"no camera {camera!r}; known: {', '.join(EYES)}")
    return EYES[camera](track, vehicle, load_look(look), seed)


def fly_lockstep(
    pilot: Pilot,
    track: Track,
    vehicle: Vehicle,
    profile: Profile,
    eye: Eye,
    seed: int,
    laps: int,
    recorder: Recorder,
    status: Callable[[Pilot], None],
) -> tuple[Wire, Verdict]:
    """Flies until the pilot is done."""
    simulator = Simulator(track, vehicle, profile, seed, laps)
    sent = _fly(pilot, simulator, eye, recorder, status)
    simulator.command(Arm(False))
    return Wire(*rates(sent), frames_dropped=0, counters={}), referees_verdict(report(simulator), pilot)


def _fly(
    pilot: Pilot, simulator: Simulator, eye: Eye, recorder: Recorder, status: Callable[[Pilot], None]
) -> list[float]:
    """The times at which commands were sent, s."""
    profile = simulator.profile
    late = ceil((profile.video_latency_s + PERCEPTION_S) * profile.physics_hz)
    coming: deque[tuple[int, Picture]] = deque()
    sent: list[float] = []
    while not pilot.over:
        tick = simulator.tick()
        if tick.exposure is not None:
            coming.append((simulator.count + late, eye.see(tick.exposure)))
        while coming and coming[0][0] <= simulator.count:
            picture = coming.popleft()[1]
            pilot.hear(picture)
            recorder.picture(picture, pilot.last_sightings)
        for message in tick.telemetry:
            pilot.hear(message)
        for command in pilot.act():
            simulator.command(command)
            if isinstance(command, AttitudeTarget):
                sent.append(simulator.t)
                assert pilot.last_step is not None
                recorder.step(pilot.last_step)
        recorder.phase(pilot)
        status(pilot)
        if pilot.go_t is None and simulator.t > LINK_LIMIT_S:
            pilot.abort(f"not ready after {LINK_LIMIT_S:g} s: {', '.join(pilot.missing) or 'no rest on the pad'}")
    return sent


def rates(sent: list[float]) -> tuple[float, int]:
    """Mean rate in Hz and most in any one second, of the times at which commands were sent."""
    if len(sent) < 2:
        return 0.0, len(sent)
    most, first = 0, 0
    for last, t in enumerate(sent):
        while t - sent[first] >= 1.0 - 1e-9:
            first += 1
        most = max(most, last - first + 1)
    return (len(sent) - 1) / (sent[-1] - sent[0]), most
