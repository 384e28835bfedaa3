"""Receiver, arming and serial line of the simulated aircraft. Betaflight 4.4, `src/main/rx/rx.c` and `src/main/fc/core.c`.

The receiver has the pilot's transmitter, the MSP override by the companion computer, and signal loss. Channels are in the order
of its map, AUX1 at index 4. MSP's buffer is initially zero, which means no pulse, and has no time-out: the last values stay. A
flight channel without a pulse is held briefly; then the signal counts as lost, sticks are centred, throttle is low, and the AUX
channels keep their values, the override's included.
"""

import math
from collections import deque
from collections.abc import Sequence

from gate_racer.link.msp.messages import DisableFlag
from gate_racer.link.msp.profile import LOW_US, MID_US, STICKS, AuxRange, BetaflightProfile

CHANNELS = 16
NO_PULSE = 0


class Receiver:
    """Receiver; call `update` at every cycle. `channels` (us) are the resulting inputs."""

    def __init__(self, profile: BetaflightProfile):
        self._profile = profile
        self._centred = [float(MID_US)] * STICKS
        self._centred[profile.channel("T")] = float(LOW_US)
        self.pilot: Sequence[float] = ()  # of the transmitter, us; missing channels have no pulse
        self.boot(0.0)

    def boot(self, t: float) -> None:
        """Power on at t, s, with nothing received."""
        self._companion = [float(NO_PULSE)] * CHANNELS
        self.channels = [*self._centred, *[float(LOW_US)] * (CHANNELS - STICKS)]
        self.lost, self._valid_t = True, t
        self.companion_t: float | None = None  # of the first sticks of SET_RAW_RC
        self.companion_last_t = t  # of the newest

    def take(self, us: Sequence[int], t: float) -> None:
        """Accept SET_RAW_RC at t, s; missing channels have no pulse."""
        given = [float(u) for u in us[:CHANNELS]]
        self._companion = given + [float(NO_PULSE)] * (CHANNELS - len(given))
        self.companion_last_t = t
        if self.companion_t is None:
            self.companion_t = t

    def active(self, aux: AuxRange) -> bool:
        """Check whether a mode is switched on."""
        return aux.on(self.channels)

    @property
    def overridden(self) -> bool:
        """Whether the masked channels are those of the companion."""
        return self.active(self._profile.aux.override)

    @property
    def lost_t(self) -> float:
        """Time of the last valid pulses, s; the start of the loss while the signal is `lost`."""
        return self._valid_t

    def update(self, t: float) -> None:
        """Sample the channels at t, s."""
        low, high = self._profile.valid_us
        samples = [self._sample(k) for k in range(CHANNELS)]
        valid = [low <= sample <= high for sample in samples]
        if all(valid[:STICKS]):
            self._valid_t, self.lost = t, False
        elif t - self._valid_t > self._profile.failsafe.signal_loss_s:
            self.lost = True
        if self.lost:
            self.channels[:STICKS] = self._centred
            return
        for k, sample in enumerate(samples):
            if valid[k]:
                self.channels[k] = sample

    def _sample(self, k: int) -> float:
        if self.overridden and self._profile.override_mask >> k & 1:
            return self._companion[k]
        return self.pilot[k] if k < len(self.pilot) else float(NO_PULSE)


NONE = DisableFlag(0)


class Arming:
    """Arming state; call `update` at every cycle. A switch that was on when arming failed has to be moved off first."""

    def __init__(self, profile: BetaflightProfile):
        self._profile = profile
        self.boot(0.0)

    def boot(self, t: float) -> None:
        """Power on at t, s."""
        self._booted, self.armed, self.disabled = t, False, DisableFlag.BOOT_GRACE_TIME
        self._refused = False

    def disarm(self) -> None:
        """Disarm at once, regardless of the switch."""
        self._refused |= self.armed
        self.armed = False

    def update(self, receiver: Receiver, t: float) -> None:
        """Follow the switch at t, s."""
        if self.armed and receiver.lost and t - receiver.lost_t > self._profile.failsafe.motors_off_s:
            self.disarm()
        against = self._against(receiver, t)
        if not receiver.active(self._profile.aux.arm):
            self.armed = self._refused = False
        elif not self.armed:
            self.armed = not (against or self._refused)
            self._refused = not self.armed
        self.disabled = against | (DisableFlag.ARM_SWITCH if self._refused else NONE)

    def _against(self, receiver: Receiver, t: float) -> DisableFlag:
        throttle = receiver.channels[self._profile.channel("T")]
        flags = {
            DisableFlag.BOOT_GRACE_TIME: t - self._booted < self._profile.boot_s,
            DisableFlag.RX_FAILSAFE: receiver.lost,
            DisableFlag.THROTTLE: throttle >= self._profile.throttle.min_check_us,
        }
        return DisableFlag(sum(flag for flag, holds in flags.items() if holds))


BITS = 10  # of a byte on the line: one start bit, eight of data, one stop bit


class SerialLine:
    """One direction of a serial line. Times in s, as arguments, non-decreasing."""

    def __init__(self, baud: float):
        self._byte_s = BITS / baud
        self._free = -math.inf  # when the last byte that was sent has arrived
        self._under_way: deque[tuple[float, bytes]] = deque()  # when its first bit left, and what

    def send(self, data: bytes, t: float) -> None:
        """Queue bytes for transmission at t."""
        if data:
            begin = max(t, self._free)
            self._under_way.append((begin, data))
            self._free = begin + len(data) * self._byte_s

    def arrived(self, t: float) -> bytes:
        """Return the bytes that have arrived by t since the last call."""
        received = b""
        while self._under_way:
            begin, data = self._under_way[0]
            count = min(len(data), max(0, math.floor((t - begin) / self._byte_s + 1e-6)))
            received += data[:count]
            if count < len(data):
                self._under_way[0] = begin + count * self._byte_s, data[count:]
                break
            self._under_way.popleft()
        return received

    @property
    def next_t(self) -> float:
        """Time at which the oldest transmission has arrived completely; inf if there is none."""
        if not self._under_way:
            return math.inf
        begin, data = self._under_way[0]
        return begin + len(data) * self._byte_s


class Uart:
    """Port of a flight controller: both directions of its line, and the rate of its serial task."""

    def __init__(self, baud: float, task_hz: float):
        self._in, self._out, self._task_hz = SerialLine(baud), SerialLine(baud), task_hz
        self._tasks = 0  # done so far

    @property
    def next_t(self) -> float:
        """Time of the next event on the line, s."""
        return min(self._task_t, self._out.next_t)

    @property
    def _task_t(self) -> float:
        return (self._tasks + 1) / self._task_hz

    def receive(self, data: bytes, t: float) -> None:
        """Send bytes from the other end at t, s."""
        self._in.send(data, t)

    def transmitted(self, t: float) -> bytes:
        """Return the bytes that have arrived at the other end by t, s, since the last call."""
        return self._out.arrived(t)
