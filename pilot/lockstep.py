"""The lock-step driver: the simulator's time waits for the pilot, so that a flight is deterministic for a seed.

The simulator runs in this process, as fast as the machine can, or elsewhere over UDP (`race-sim --lockstep`). Images are
delayed as on the wire, in whole ticks, so that the pilot has the same latency.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from gate_racer.link.client import MavlinkClient
from gate_racer.link.clock import CHAIN_S, StreamClock, Timeline
from gate_racer.link.messages import AttitudeTarget, Command, Farewell, Imu, Telemetry, TimesyncReply
from gate_racer.link.profile import Profile
from gate_racer.link.sockets import LinkError
from gate_racer.perception.detection import Detector
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import DetectedImage, EndReason
from gate_racer.pilot.live import SILENCE_S
from gate_racer.pilot.perception_process import ImageReceiver
from gate_racer.pilot.pilot import GAP_S, AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import LinkReport

PERCEPTION_S = 0.010  # s assumed for detection, as measured in real time
POLL_S = 0.1  # s
LOST_S = 10.0  # s of silence after which the simulator is taken to have ended: unanswered it repeats a tick each 0.5 s
UNASKED = 5  # times that several samples may come at once, as with datagrams left over from another run
LINK_LIMIT_S = 20.0  # s from the first sample, allowed before the start


class LockstepLink(ABC):
    """Link whose simulated time waits until the pilot has answered."""

    t = 0.0  # s, simulator clock, continued where that is set
    now = 0.0  # s, reception of the last tick's telemetry: simulated time, since the local one means nothing here
    images: Sequence[DetectedImage] = ()  # exposed in this tick, on the clock of the telemetry
    late_s = 0.0  # s, latency of these images beyond the profile's

    @abstractmethod
    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        """Advance time until there are messages, and return them. `window` is called for each image."""

    @abstractmethod
    def hold_clock(self) -> None:
        """Announce the flight: the offset between the clocks changes slowly from now on."""

    @abstractmethod
    def send(self, command: Command, t: float) -> None:
        """Send a command, stamped t (s)."""

    @abstractmethod
    def hold(self) -> None:
        """Answer the newest sample without a set-point."""


@dataclass
class LockstepFlight:
    """One pilot on its link. Iterating flies tick by tick until the pilot is done, so that several can be interleaved."""

    pilot: AnyPilot
    profile: Profile
    link: LockstepLink
    recorder: Recorder
    status: Callable[[AnyPilot], None] = lambda pilot: None  # called after each tick
    sent: list[float] = field(default_factory=list)  # s, times of the set-points sent

    def fly(self) -> None:
        for _ in self:
            pass

    def __iter__(self) -> Iterator[None]:
        pilot, link, recorder, profile = self.pilot, self.link, self.recorder, self.profile
        coming: deque[tuple[float, DetectedImage]] = deque()  # in order of exposure, which is that of arrival
        timeline = Timeline()
        begin_t: float | None = None  # s, first sample: the simulator may have been running for long
        while not pilot.over:
            if pilot.go_t is not None:
                link.hold_clock()
            received = link.tick(pilot.window)
            begin_t = link.t if begin_t is None else begin_t
            latency_s = profile.video_latency_s + link.late_s
            late_s = ceil((latency_s + PERCEPTION_S) * profile.physics_hz) / profile.physics_hz
            coming += [(link.t + late_s - 1e-6, image) for image in link.images]
            while coming and coming[0][0] <= link.t:
                image = coming.popleft()[1]
                pilot.receive(image)
                recorder.image(image, pilot.last_sightings)
            for message in (good for one in received for good in timeline.admit(one, link.now)):
                pilot.receive(message)
                recorder.received(message)
            silent = link.t - pilot.estimator.t > GAP_S
            commands = pilot.act(link.t if silent else -inf)
            for command in commands:
                link.send(command, timeline.to_wire(pilot.estimator.t))
                if isinstance(command, AttitudeTarget):
                    self.sent.append(link.t)
                if pilot.last_command is not None and command is pilot.last_command.target:
                    recorder.step(pilot.last_command)
                    pilot.prepare()
            if not any(isinstance(command, AttitudeTarget) for command in commands):
                link.hold()
            recorder.phase(pilot)
            self.status(pilot)
            if pilot.go_t is None and link.t - begin_t > LINK_LIMIT_S:
                missing = f"still missing {pilot.handshake.awaited}"
                pilot.abort(EndReason.NO_LINK, f"not ready after {LINK_LIMIT_S:g} s: {missing}")
            if pilot.go_t is not None and link.t - pilot.estimator.t > SILENCE_S:
                pilot.abort(EndReason.NO_LINK, f"no IMU sample for {SILENCE_S:g} s")
                break
            yield
        if times := timeline.clock_set:
            recorder.note("clock", f"the simulator's clock was set {times} times")

    def report(self, frames_dropped: int, counters: dict[str, int]) -> LinkReport:
        """Return the report of the link: mean rate of the set-points (Hz), the most within one second, and counters."""
        sent = np.array(self.sent)
        before = np.searchsorted(sent, sent - 1.0 + 1e-9, side="right")  # number of those a second earlier
        most = int((np.arange(1, len(sent) + 1) - before).max(initial=0))
        mean_hz = (len(sent) - 1) / (self.sent[-1] - self.sent[0]) if len(sent) > 1 else 0.0
        return LinkReport(mean_hz, most, frames_dropped, counters)


class UdpLink(LockstepLink):
    """Link over UDP. Images of a tick are sent before its telemetry, so they have arrived when an IMU sample is read."""

    def __init__(
        self,
        client: MavlinkClient,
        video: ImageReceiver,
        profile: Profile,
        detector: Detector,
        timeout_s: float,
        over: Callable[[], bool] = lambda: False,
    ):
        """`over`: whether nobody waits for messages any more, since the flight was interrupted."""
        self._client, self._video, self._detector, self._over = client, video, detector, over
        self._latency_s, self._timeout_s = profile.video_latency_s, timeout_s
        self._clock, self._physics_hz = StreamClock.of(profile), profile.physics_hz
        self._stamp = 0.0  # s, of the newest sample
        self._ahead_s = 0.0  # s, the simulator's clock minus `t`, since it was set
        self._unasked = 0  # times that several samples came at once

    def tick(self, window: Callable[[], SearchWindow]) -> list[Telemetry]:
        """Return all messages up to the next IMU sample, or to the simulator's announced or assumed end."""
        received: list[Telemetry] = []
        begin = time.monotonic()
        while True:
            waited_s = time.monotonic() - begin  # before listening: a suspended process has not waited
            news = [m for _, m in self._client.receive(POLL_S) if not isinstance(m, TimesyncReply)]
            received += self._unheard(news)
            self._client.keep_alive(self.t)
            if self._over() or any(isinstance(message, Imu | Farewell) for message in received):
                break
            if self._stamp and waited_s > min(LOST_S, self._timeout_s):
                received.append(Farewell(self.t, f"no message for {waited_s:.0f} s"))
                break
            if waited_s > self._timeout_s:
                where = f"on {self._client.where}{self._client.refused}"
                raise LinkError(f"no simulator in lock-step within {self._timeout_s:g} s {where}")
        self._require_waiting({message.t for message in received if isinstance(message, Imu)})
        for message in received:
            if isinstance(message, Imu):
                self._advance(message.t)
                self._clock.reference(message.t, self.t)
        images = []
        self._video.accept_only(self._client.host)
        for frame, _ in self._video.receive(0.0):
            stamp = self._clock.stream(frame.t, self.t + self._latency_s)
            if stamp is not None:
                t, searched = stamp - self._ahead_s, window()
                found = self._detector.detect_encoded(frame.jpeg, searched)
                images.append(DetectedImage(t, frame.id, found, frame.jpeg, self._clock.sigma_s, searched))
        self.images = images
        return received

    def _advance(self, stamp: float) -> None:
        """Continue the time to the tick that sent a sample, by one tick if the simulator's clock was set: it has waited."""
        tick = ceil(stamp * self._physics_hz - 1e-3) / self._physics_hz
        if self._stamp and abs(tick - self._ahead_s - self.t) > CHAIN_S:
            self._ahead_s = tick - self.t - 1 / self._physics_hz
        self.t = self.now = tick - self._ahead_s
        self._stamp = stamp

    def _unheard(self, messages: list[Telemetry]) -> list[Telemetry]:
        """Return what follows a tick that was sent again, which ends with its IMU sample, and answer that again.

        The answer was late or is lost. A flight in which ticks were heard twice would be another one.
        """
        again = [k for k, message in enumerate(messages) if isinstance(message, Imu) and message.t == self._stamp]
        if not again:
            return messages
        self._client.hold(self._stamp)
        return messages[again[-1] + 1 :]

    def _require_waiting(self, stamps: set[float]) -> None:
        """Raise LinkError for a simulator that sends samples without waiting for an answer to each."""
        self._unasked += max(stamps) - min(stamps) > 1.5 / self._physics_hz if stamps else 0  # not of one tick
        if self._unasked > UNASKED:
            mend = "start it with --lockstep, or leave out --lockstep here"
            raise LinkError(f"the simulator does not wait for answers: {mend}")

    def hold_clock(self) -> None:
        self._clock.hold()

    def send(self, command: Command, t: float) -> None:
        self._client.send(command, self.t, self._stamp)

    def hold(self) -> None:
        """Answer the newest sample, for which the simulator waits, even if its stamp was refused."""
        self._client.hold(self._stamp)
