"""Betaflight's arming: the arm switch and the conditions that disable it. Betaflight 4.4, `src/main/fc/core.c`."""

from gate_racer.link.msp.messages import DisableFlag
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.sim.betaflight.receiver import Receiver

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

    def update(self, receiver: Receiver, cli: bool, t: float) -> None:
        """Follow the switch at t, s. `cli`: whether the command line is open."""
        if self.armed and receiver.lost and t - receiver.lost_t > self._profile.failsafe.motors_off_s:
            self.disarm()
        against = self._against(receiver, cli, t)
        if not receiver.active(self._profile.aux.arm):
            self.armed = self._refused = False
        elif not self.armed:
            self.armed = not (against or self._refused)
            self._refused = not self.armed
        self.disabled = against | (DisableFlag.ARM_SWITCH if self._refused else NONE)

    def _against(self, receiver: Receiver, cli: bool, t: float) -> DisableFlag:
        throttle = receiver.channels[self._profile.channel("T")]
        flags = {
            DisableFlag.BOOT_GRACE_TIME: t - self._booted < self._profile.boot_s,
            DisableFlag.RX_FAILSAFE: receiver.lost,
            DisableFlag.THROTTLE: throttle >= self._profile.throttle.min_check_us,
            DisableFlag.CLI: cli,
        }
        return DisableFlag(sum(flag for flag, holds in flags.items() if holds))
