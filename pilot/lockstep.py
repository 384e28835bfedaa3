"""The lock-step driver: simulator and pilot in one process, as fast as the machine can, the same for the same seed.

Pictures take as long on their way as over the wire, in whole ticks, so that the pilot faces the same delays.
"""

from collections import deque
from collections.abc import Callable
from math import ceil

from link.messages import Arm, AttitudeTarget
from link.profile import Profile
from perception.detector import ColourDetector, decode
from pilot.embedded import referees_verdict
from pilot.pilot import Picture, Pilot
from pilot.recorder import Recorder
from pilot.result import Verdict, Wire
from sim.feed import Feed
from sim.report import report
from sim.simulator import Simulator
from tracks.track import Track
from vehicle.vehicle import Vehicle

PERCEPTION_S = 0.010  # assumed for detection, as measured in real time
LINK_LIMIT_S = 20.0  # before the start


def fly_lockstep(
    pilot: Pilot,
    track: Track,
    vehicle: Vehicle,
    profile: Profile,
    seed: int,
    laps: int,
    recorder: Recorder,
    status: Callable[[Pilot], None],
) -> tuple[Wire, Verdict]:
    """Flies until the pilot is done. Raises UserError when this machine cannot draw."""
    simulator, feed = Simulator(track, vehicle, profile, seed, laps), Feed(track, vehicle, profile, seed)
    try:
        sent = _fly(pilot, simulator, feed, recorder, status)
    finally:
        feed.close()
    simulator.command(Arm(False))
    return Wire(*rates(sent), frames_dropped=0, counters={}), referees_verdict(report(simulator), pilot)


def _fly(
    pilot: Pilot, simulator: Simulator, feed: Feed, recorder: Recorder, status: Callable[[Pilot], None]
) -> list[float]:
    """The times at which commands were sent, s."""
    profile = simulator.profile
    late = ceil((profile.video_latency_s + PERCEPTION_S) * profile.physics_hz)
    detector = ColourDetector(simulator.vehicle.camera)
    coming: deque[tuple[int, Picture]] = deque()
    sent: list[float] = []
    while not pilot.over:
        tick = simulator.tick()
        if tick.exposure is not None:
            frame = feed.frame(tick.exposure)
            picture = Picture(frame.t, frame.id, detector.detect(decode(frame.jpeg)), frame.jpeg)
            coming.append((simulator.count + late, picture))
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
