"""Clocks: stamps of one stream (video) on the clock of another (IMU), and continuous simulator time for the pilot.

A datagram stamped s arrives at r = s + o + d, with o the offset of its clock to the local one and d >= 0 its delay. Load and
queues only increase d, and quartz clocks drift by no more than `DRIFT`, so o + d_min is the lower envelope of r - s that
rises by at most that rate (Moon, Skelly and Towsley, "Estimation and removal of clock skew from network delay measurements",
1999): later growth of the delay does not move it. For video and IMU together

    t_imu = s_video + (o_video - o_imu),   o_video - o_imu = least_video - least_imu - (d_min_video - d_min_imu)

where d_min_video is assumed to be the nominal latency of the video. A TIMESYNC reply, requested at a, stamped s and received
at r, measures d_min_imu: r - s = o_imu + d as with any datagram, s - a = -o_imu + d' on the outward way, and half of the sum
of the two minima is the one-way delay. Without valid replies d_min_imu is 0.

From `hold` on (in flight) the offset changes by at most `SLEW`, so that the error-state filter, which has the remaining error
as a state, can follow it; only an error beyond the range of that state (`STEP_S`) is corrected at once. A datagram later than
any known delay is attributed to a suspended process, unless all are late for a while: then a clock was set. A simulator
that cannot keep up loses time: r - s of all its streams rises for good by the same amount, which leaves the difference of the
envelopes unchanged. For one that is slower or faster than real time throughout, r is the local clock at its pace, s per s.

HIGHRES_IMU paces the flight, so its stamps are the reference. A stamp that goes back, or ahead by more than the time elapsed
locally, is an outlier until `TIMELINE_CONFIRM_S` of consistent samples have followed it; then the simulator's clock was set, and
an offset keeps the pilot's time continuous: the interval between the last good sample and the first of those is that of their
receptions. All other messages of that clock get the same offset, or are dropped where they contradict it; of a race status
only the differences of its times are used then.
"""

import math
from collections import deque
from dataclasses import replace
from math import isfinite

from gate_racer.link import messages
from gate_racer.link.messages import Imu, RaceStatus, Telemetry
from gate_racer.link.profile import Profile

DRIFT = 1e-4  # s/s between two quartz clocks: 50 ppm each, the usual tolerance
SLEW = 2e-4  # s/s, change of the offset in flight: faster than any drift, slower than the filter's delay state follows
# TIMESYNC requests of which the least delay counts; s, the age of the newest beyond which none does.
KEPT, KEPT_S = 8, 4.0
JUMP_S = 0.5  # s, fall of r - s that shows that a clock was set
SLIP_S, SLIP_CONFIRM_S = 0.1, 2.0  # s, rise of the reference's r - s, and how long it lasts if time was lost
SET_S, CONFIRM_S = 0.5, 1.0  # s, rise of the other stream's r - s, and how long it lasts if its clock was set
SURE_S = 5.0  # s, a rise beyond all delays
STEP_S = 0.1  # s, offset error that is corrected at once instead of at `SLEW`
SETTLE_S = 1.0  # s after a step, or after a clock was set, without the `SLEW` limit
TRIP_S = 0.1  # s, longest round trip of a usable TIMESYNC reply
SAME_CLOCK_S = 0.5  # s, largest difference of stamps of one clock
PACE_S = 1.0  # s of the local clock over which the pace is measured
PACE_LEAST = 0.01  # least pace, and the inverse of the greatest: beyond, the clock stands or was set
PACE_SAME = 0.1  # relative difference up to which two paces are the same: much more than a busy machine loses in PACE_S
# s, standard deviation of the offset between two clocks: images took up to 47 ms at least on a busy machine.
SIGMA_S = 0.025


class StreamClock:
    """Clock model of two streams. Feed every stamp of the reference stream; it maps those of the other."""

    def __init__(self, latency_s: float, one_clock: bool = True):
        """Create it for the other stream's latency less the reference's; `one_clock`: stamps may be of one clock."""
        self._pace = _Pace()
        self._same_clock_s = SAME_CLOCK_S if one_clock else 0.0
        self._latency_s = latency_s
        self._reference, self._other = _LowerEnvelope(SLIP_S, SLIP_CONFIRM_S), _LowerEnvelope(SET_S, CONFIRM_S)
        self._outward = deque[tuple[float, float]](maxlen=KEPT)  # stamps of TIMESYNC requests, and their delays
        self._newest: tuple[float, float] | None = None  # stamp and reception of the reference
        self._held: tuple[float, float] | None = None  # reception and offset of the last mapped stamp
        self._holding = False
        self._steps = 0
        self._settled = -math.inf  # reception from which on the change of the offset is limited

    @classmethod
    def of(cls, profile: Profile) -> "StreamClock":
        return cls(profile.video_latency_s, profile.one_clock)

    @property
    def jumps(self) -> int:
        return self._reference.jumps + self._other.jumps + self._other.rises + self._steps

    @property
    def slips(self) -> int:
        return self._reference.rises

    @property
    def pace(self) -> float:
        """Pace of the reference's clock, s per s of the local one."""
        return self._pace.pace

    @property
    def sigma_s(self) -> float:
        """Standard deviation (s) of the last mapped stamp: common to all, since d_min_video is unknown; 0 for one clock."""
        return SIGMA_S * math.sqrt(1 + self.jumps) if self._held is not None else 0.0

    def hold(self) -> None:
        self._holding = True

    def reference(self, stamp: float, received: float) -> None:
        """Process a datagram of the reference stream, `received` (s) on the local clock."""
        repaced = self._pace.add(stamp, received)
        if repaced:  # what was measured at another pace has no meaning
            self._reference.restart()
            self._other.restart()
        received = self._pace.paced(received)
        lost = self._reference.add(stamp, received)
        if math.isinf(lost) or repaced:
            self._settled = received + SETTLE_S
        elif lost:
            self._other.shift(lost)  # if that clock has not lost time, its next stamp undoes the shift
        if lost or repaced:
            self._outward.clear()
        self._newest = stamp, received

    def timesync(self, sent: float, stamp: float, received: float) -> None:
        """Process a TIMESYNC reply, requested and received (s) on the local clock. Contradictions are dropped."""
        if self._newest is None:
            return
        sent, received = self._pace.paced(sent), self._pace.paced(received)
        least = self._reference.at(received)
        if sent <= received <= sent + TRIP_S and sent - TRIP_S <= stamp + least <= received + TRIP_S:
            self._reference.add(stamp, received)
            self._outward.append((stamp, stamp - sent))

    @property
    def delay_s(self) -> float:
        """Least delay of the reference, s: measured by TIMESYNC, else 0."""
        if self._newest is None or not self._outward or self._newest[0] - self._outward[-1][0] > KEPT_S:
            return 0.0
        return max(0.5 * (self._reference.at(self._newest[1]) + min(delay for _, delay in self._outward)), 0.0)

    def stream(self, stamp: float, received: float) -> float | None:
        """Return a stamp on the reference's clock, unchanged if that is its own; None without a reference."""
        received = self._pace.paced(received)
        if self._other.add(stamp, received):  # its clock was set
            self._settled = received + SETTLE_S
        if self._newest is None:
            return None
        expected = self._newest[0] + received - self._newest[1]
        if abs(stamp - expected) < self._same_clock_s:
            return stamp
        return stamp + self._offset(received)

    def _offset(self, received: float) -> float:
        """Return o_video - o_imu, s, with limited change in flight."""
        offset = self._other.at(received) - self._reference.at(received) + self.delay_s - self._latency_s
        if self._holding and self._held is not None and received >= self._settled:
            before, held = self._held
            if abs(offset - held) > STEP_S:
                self._steps += 1
                self._settled = received + SETTLE_S
            else:
                most = SLEW * max(received - before, 0.0)
                offset = min(max(offset, held - most), held + most)
        self._held = received, offset
        return offset


class _Pace:
    """Pace of a stamping clock, s per s of the local clock: of the first interval of `PACE_S`, or of two that agree."""

    def __init__(self) -> None:
        self.pace, self._candidate = 1.0, math.nan
        self._since: tuple[float, float] | None = None  # stamp and reception at the start of the interval
        self._origin = 0.0, 0.0  # a local time (s) and its paced one

    def paced(self, received: float) -> float:
        local, paced = self._origin
        return paced + self.pace * (received - local)

    def add(self, stamp: float, received: float) -> bool:
        """Process a datagram; return whether the pace has changed."""
        if self._since is None:
            self._since, self._origin = (stamp, received), (received, received)
        passed = received - self._since[1]
        if passed < PACE_S:
            return False
        pace, self._since = (stamp - self._since[0]) / passed, (stamp, received)
        agreed, self._candidate = math.isnan(self._candidate) or _same(pace, self._candidate), pace
        if not agreed or not PACE_LEAST < pace < 1 / PACE_LEAST or _same(pace, self.pace):
            return False
        self._origin = received, self.paced(received)
        self.pace = 1.0 if _same(pace, 1.0) else pace
        return True


def _same(pace: float, other: float) -> bool:
    return abs(pace - other) <= PACE_SAME * other


class _LowerEnvelope:
    """The greatest curve below all `received - stamp` that rises by `DRIFT` at most, but for a rise that lasts."""

    def __init__(self, rise_s: float, confirm_s: float) -> None:
        self._rise_s, self._confirm_s = rise_s, confirm_s
        self.jumps = self.rises = 0
        self._corner: tuple[float, float] | None = None  # reception and difference of the datagram that determines it
        self._risen: tuple[float, float, float] | None = None  # first reception of a rise, and a corner for it

    def restart(self) -> None:
        self._corner = self._risen = None

    def at(self, received: float) -> float:
        """Return its value, s; 0 before the first datagram."""
        if self._corner is None:
            return 0.0
        return self._corner[1] + DRIFT * max(received - self._corner[0], 0.0)

    def shift(self, by: float) -> None:
        if self._corner is not None:
            self._corner = self._corner[0], self._corner[1] + by

    def add(self, stamp: float, received: float) -> float:
        """Process a datagram; return by how much it has risen for good, s, or infinity for a clock that was set."""
        difference, corner = received - stamp, (received, received - stamp)
        if self._corner is None:
            self._corner = corner
            return 0.0
        rise = difference - self.at(received)
        jumped = rise < -JUMP_S or rise > SURE_S
        self.jumps += jumped
        if rise <= 0 or jumped:
            self._corner = corner
        if not self._rise_s < rise <= SURE_S:
            self._risen = None
        elif self._risen is None:
            self._risen = received, *corner
        else:
            since, at, value = self._risen
            at, value = corner if difference < value else (at, value)
            self._risen = since, at, value
            if received - since > self._confirm_s:
                lost = value - self.at(at)
                self._corner, self._risen = (at, value), None
                self.rises += 1
                return lost
        return math.inf if jumped else 0.0


TIMELINE_STEP_S = 0.03  # s between two samples: three at 107 Hz; a longer gap must show in the reception as well
RATE = 0.5  # least ratio of elapsed to stamped time in a gap: a simulator may be twice as fast as real time
CHAIN_S = 0.1  # s, longest interval between two samples of a clock that was set
TIMELINE_CONFIRM_S = 0.1  # s of consistent samples, by stamp and by reception, that show a clock that was set
LEAST_STEP_S = 1e-3  # s, least step of the pilot's time over a change of the clock
APART_S = 1.0  # s, largest difference of another message's stamp from the newest sample's: status is sent at 4 Hz
# These get the newest stamp, whatever it is.
UNSTAMPED = (
    messages.Heartbeat, messages.Ack, messages.StatusText, messages.Collision, messages.TrackMap, messages.Farewell,
)  # fmt: skip


class Timeline:
    """Filter of messages: pass every message in order of arrival to `admit`, and use what it returns."""

    def __init__(self) -> None:
        self.refused = 0  # messages with an impossible stamp
        self.clock_set = 0  # number of times the simulator's clock was set
        self._ahead_s = 0.0  # s, wire time minus the pilot's
        self._newest: tuple[float, float] | None = None  # wire stamp and reception of the newest good sample
        self._doubtful: list[tuple[Imu, float]] = []  # samples of a possibly new time, with their reception

    def to_wire(self, t: float) -> float:
        return t + self._ahead_s

    def to_pilot(self, t: float) -> float:
        return t - self._ahead_s

    def admit(self, message: Telemetry, received: float) -> list[Telemetry]:
        """Return the messages to be used now, in order, on the pilot's time; `received` in s of any monotonic clock."""
        if isinstance(message, Imu):
            return [_shifted(sample, self._ahead_s) for sample in self._samples(message, received)]
        if self._newest is None:
            return [message]
        newest = self._newest[0]
        if isinstance(message, UNSTAMPED):
            return [replace(message, t=self.to_pilot(newest))]
        if abs(message.t - newest) <= APART_S:
            return [_shifted(message, self._ahead_s)]
        if isinstance(message, RaceStatus):
            return [_shifted(message, message.t - self.to_pilot(newest))]
        self.refused += 1
        return []

    def _samples(self, sample: Imu, received: float) -> list[Imu]:
        """Return the samples accepted with this one, on the wire's time."""
        if not isfinite(sample.t):
            self.refused += 1
            return []
        stamp, before = self._newest or (-math.inf, -math.inf)  # the first sample follows in any case
        step, passed = sample.t - stamp, received - before
        if 0.0 < step <= TIMELINE_STEP_S or 0.0 < RATE * step <= passed:
            self.refused += len(self._doubtful)
            self._doubtful.clear()
            self._newest = sample.t, received
            return [sample]
        if step == 0.0:  # a copy, without information on the clock
            self.refused += 1
            return []
        doubtful = self._doubtful
        if doubtful and not 0.0 < sample.t - doubtful[-1][0].t <= CHAIN_S:
            self.refused += len(doubtful)
            doubtful.clear()
        doubtful.append((sample, received))
        if min(sample.t - doubtful[0][0].t, received - doubtful[0][1]) < TIMELINE_CONFIRM_S:
            return []
        first, first_received = doubtful[0]
        self._ahead_s += first.t - (stamp + max(first_received - before, LEAST_STEP_S))
        self.clock_set += 1
        samples = [one for one, _ in doubtful]
        self._newest = sample.t, received
        doubtful.clear()
        return samples


def _shifted(message: Telemetry, by: float) -> Telemetry:
    """Return a message with all its times on a clock that is `by` (s) behind."""
    if by == 0.0:
        return message
    if isinstance(message, RaceStatus):
        start, finish = (None if t is None else t - by for t in (message.start, message.finish))
        return replace(message, t=message.t - by, start=start, finish=finish)
    return replace(message, t=message.t - by)
