"""Safety pilot at the transmitter: arms once the companion computer sends sticks, hands over control, and disarms at the end."""

import math

from gate_racer.link.msp.messages import DisableFlag
from gate_racer.link.msp.profile import LOW_US, MID_US, STICKS, AuxRange, BetaflightProfile
from gate_racer.sim.betaflight.flight_controller import FlightController
from gate_racer.sim.betaflight.receiver import CHANNELS, Receiver
from gate_racer.sim.betaflight.sitl_controller import SitlController

STREAM_S = 1.0  # of sticks that are to be seen before arming
HANDOVER_S = 1.0  # from arming on
ENDED_S = 2.0  # without sticks, before any flight: taken back
TAKEN_BACK_S = 1.0  # from then to disarming
LANDED_S = 2.0  # of a low throttle after a flight, before disarming


def switched(profile: BetaflightProfile, *modes: AuxRange) -> list[float]:
    """Return channels in us with sticks centred, throttle low, and these modes on."""
    us = [float(MID_US)] * STICKS + [float(LOW_US)] * (CHANNELS - STICKS)
    us[profile.channel("T")] = float(LOW_US)
    for mode in modes:
        us[STICKS + mode.channel - 1] = (mode.low_us + mode.high_us) / 2
    return us


class SafetyPilot:
    """Model of the safety pilot; call `channels` at every cycle. Times in s."""

    def __init__(self, profile: BetaflightProfile, arms: bool = True, patience_s: float = math.inf):
        """Set up the pilot. `arms` False keeps all switches off. `patience_s`: time limit for take-off after the handover."""
        self._profile, self._arms, self._patience_s = profile, arms, patience_s
        self.step_back()

    def step_back(self) -> None:
        """Turn all switches off, for another run."""
        self._armed_t: float | None = None
        self._taken_back_t: float | None = None
        self._done = self._flown = False
        self._thrust_t = 0.0  # when the throttle was up last

    def channels(self, controller: FlightController | SitlController, t: float) -> list[float]:
        """Return the transmitter's channels at t, us. After the end of a flight the pilot does not arm again."""
        aux, receiver = self._profile.aux, controller.receiver
        if self._armed_t is None:
            if not self._arms or not _streamed(receiver, t) or controller.arming.disabled != DisableFlag(0):
                return switched(self._profile)
            self._armed_t = t
        if receiver.channels[self._profile.channel("T")] >= self._profile.throttle.min_check_us:
            self._flown, self._thrust_t = True, t
        handed_s = t - self._armed_t - HANDOVER_S
        if self._taken_back_t is None and not self._flown and (_ended(receiver, t) or handed_s > self._patience_s):
            self._taken_back_t = t
        self._done |= handed_s > 0 and not controller.armed
        self._done |= self._flown and t - self._thrust_t > LANDED_S
        self._done |= self._taken_back_t is not None and t - self._taken_back_t > TAKEN_BACK_S
        if self._done:
            return switched(self._profile)
        over = [aux.override] if handed_s >= 0 and self._taken_back_t is None else []
        return switched(self._profile, aux.arm, *over)


def _streamed(receiver: Receiver, t: float) -> bool:
    """Check whether the companion has sent sticks for at least STREAM_S and still does."""
    first = receiver.companion_t
    return first is not None and t - first >= STREAM_S and not _ended(receiver, t)


def _ended(receiver: Receiver, t: float) -> bool:
    """Check whether the companion has stopped sending sticks."""
    return t - receiver.companion_last_t > ENDED_S
