"""Receiver of Betaflight 4.4: the pilot's transmitter, with the MSP override by the companion computer, and signal loss.

Channels are in the order of the receiver's map, AUX1 at index 4. MSP's buffer is initially zero, which means no pulse, and
has no time-out: the last values stay. A flight channel without a pulse is held briefly; then the signal counts as lost, sticks
are centred, throttle is low, and the AUX channels keep their values, the override's included (`src/main/rx/rx.c`).
"""

from collections.abc import Sequence

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
