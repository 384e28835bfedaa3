"""The real-time driver: UDP in, UDP out, perception in a second process. Telemetry sets the pace; the wall clock only guards."""

import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import wait

from link.clock import StreamClock
from link.messages import Imu, TimesyncReply
from link.profile import Profile
from link.udp import LinkError, MavlinkClient
from pilot.flight import Phase, Picture
from pilot.perceive import FROZEN_S, PerceptionProcess, Seen
from pilot.pilot import Pilot
from pilot.recorder import Recorder
from pilot.result import Wire

POLL_S = 0.05
SILENCE_S = 1.0  # without IMU in flight, after which the flight is given up
LINK_RECORD_S = 0.5


class LiveDriver:
    """One flight over a network."""

    def __init__(
        self, pilot: Pilot, client: MavlinkClient, perception: PerceptionProcess, profile: Profile, recorder: Recorder
    ):
        self._pilot, self._client, self._perception, self._recorder = pilot, client, perception, recorder
        self._profile, self._clock = profile, StreamClock(profile.video_latency_s)
        self._video: dict[str, int] = {}  # counters of the video link
        self._skipped = 0
        self._frozen_s = 0.0  # longest silence of the perception process
        self._last_imu = self._last_record = -1.0

    def fly(self, timeout_s: float, status: Callable[[Pilot], None]) -> Wire:
        """Flies until the pilot is done.

        Raises:
            LinkError: no complete link within timeout_s, naming what is missing.
        """
        pilot, client, begin = self._pilot, self._client, time.monotonic()
        while not pilot.over and not self._silent():
            wait([client.socket, self._perception.pipe], POLL_S)
            self._listen()
            for command in pilot.act():
                client.send(command, time.monotonic(), pilot.estimator.t)
                if pilot.last_step is not None and command == pilot.last_step.target:
                    pilot.prepare()
                    self._perception.expect(pilot.expected())
                    self._recorder.step(pilot.last_step)
            now = time.monotonic()
            client.keep_alive(now)
            client.ask_time(now)
            self._guard(now, begin, timeout_s)
            self._record(now)
            self._recorder.phase(pilot)
            status(pilot)
        pilot.abort(f"no IMU sample for {SILENCE_S:g} s")  # changes nothing once it is over
        return self.wire()

    def wire(self) -> Wire:
        """How the link has done so far."""
        client = self._client
        dropped = self._skipped + self._video.get("evicted", 0)
        counters = {f"mavlink_{name}": count for name, count in asdict(client.counters).items()}
        counters |= {f"video_{name}": count for name, count in self._video.items()}
        return Wire(client.command_hz, client.command_hz_max_1s, dropped, counters)

    def _listen(self) -> None:
        for received, message in self._client.receive(0.0):
            if isinstance(message, Imu):
                self._clock.reference(message.t, received)
                self._last_imu = time.monotonic()
            if isinstance(message, TimesyncReply):
                self._clock.timesync(message.sent, message.t, received)
            else:
                self._pilot.hear(message)
                self._recorder.heard(message)
        for seen in self._perception.receive():
            self._see(seen)

    def _see(self, seen: Seen) -> None:
        self._video, self._skipped = seen.counters, seen.skipped
        t = self._clock.stream(seen.stamp, seen.received)
        if t is None:
            return
        picture = Picture(t, seen.id, seen.detections, seen.jpeg)
        self._pilot.hear(picture)
        self._recorder.picture(picture, self._pilot.last_sightings)

    def _guard(self, now: float, begin: float, timeout_s: float) -> None:
        """Ends the wait for a simulator that does not come, and a flight without eyes."""
        pilot = self._pilot
        if pilot.go_t is None and self._client.reconsider(now, complete=pilot.phase is not Phase.WAIT_LINK):
            pilot.forget_link()
            self._clock = StreamClock(self._profile.video_latency_s)
        self._perception.hear_only(self._client.host)
        if pilot.go_t is None and now - begin > timeout_s:
            go = "GO of a race" if pilot.phase is Phase.WAIT_GO else "an accepted arm command"
            missing = ", ".join(pilot.missing) or go
            raise LinkError(
                f"no simulator within {timeout_s:g} s: still missing {missing} on {self._client.address[1]}"
            )
        if not self._perception.alive:
            pilot.abort("the perception process died")
        self._watch_perception(now)

    def _watch_perception(self, now: float) -> None:
        """Tells of a perception process that stands still: the flight goes on by IMU as long as its other rules allow."""
        self._frozen_s = max(self._frozen_s, self._perception.silent_s(now))
        if self._frozen_s > FROZEN_S:
            self._recorder.note("perception", f"the perception process stood still for {self._frozen_s:.1f} s")

    def _silent(self) -> bool:
        """Whether the telemetry has stopped after GO, be it in flight or, as the real simulator may, after the finish."""
        return self._pilot.go_t is not None and time.monotonic() - self._last_imu > SILENCE_S

    def _record(self, now: float) -> None:
        if now - self._last_record > LINK_RECORD_S:
            self._last_record = now
            self._recorder.link(self._pilot.estimator.t, self.wire().counters)
