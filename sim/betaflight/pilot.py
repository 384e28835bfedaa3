"""The person with the transmitter: arms once the companion computer sends sticks, hands the sticks over, and disarms after it."""

from link.msp.messages import DisableFlag
from link.msp.profile import LOW_US, MID_US, STICKS, AuxRange, BetaflightProfile
from sim.betaflight.flight_controller import FlightController
from sim.betaflight.receiver import CHANNELS

STREAM_S = 1.0  # of sticks that are to be seen before arming
HANDOVER_S = 1.0  # from arming on
LANDED_S = 2.0  # of a low throttle after a flight, before disarming


def switched(profile: BetaflightProfile, *modes: AuxRange) -> list[float]:
    """Channels in us with centred sticks, throttle low, and these modes on."""
    us = [float(MID_US)] * STICKS + [float(LOW_US)] * (CHANNELS - STICKS)
    us[profile.channel("T")] = float(LOW_US)
    for mode in modes:
        us[STICKS + mode.channel - 1] = (mode.low_us + mode.high_us) / 2
    return us


class SafetyPilot:
    """Asked on every beat; times in s. `arms` off keeps all switches off."""

    def __init__(self, profile: BetaflightProfile, arms: bool = True):
        self._profile, self._arms = profile, arms
        self.step_back()

    def step_back(self) -> None:
        """All switches off, for another run."""
        self._armed_t: float | None = None
        self._done = self._flown = False
        self._thrust_t = 0.0  # when the throttle was up last

    def channels(self, controller: FlightController, t: float) -> list[float]:
        """What the transmitter sends at t. A flight that has ended is not armed again."""
        aux, ready = self._profile.aux, DisableFlag(0)
        if self._armed_t is None:
            streamed = controller.receiver.companion_t
            waited = streamed is not None and t - streamed >= STREAM_S
            if not self._arms or not waited or controller.arming.disabled != ready:
                return switched(self._profile)
            self._armed_t = t
        if controller.receiver.channels[self._profile.channel("T")] >= self._profile.throttle.min_check_us:
            self._flown, self._thrust_t = True, t
        self._done |= t - self._armed_t > HANDOVER_S and not controller.armed
        self._done |= self._flown and t - self._thrust_t > LANDED_S
        if self._done:
            return switched(self._profile)
        return switched(self._profile, aux.arm, *([aux.override] if t - self._armed_t >= HANDOVER_S else []))
