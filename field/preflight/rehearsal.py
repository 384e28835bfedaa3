"""`preflight --rehearse`: the hand-over, without propellers. A person arms, hands over, takes back, disarms.

While handed over each stick moves by 20 us in turn, and must appear on its own channel. The throttle stays below the value at
which motors speed up. Taking back ends the rehearsal at any time.
"""

import enum
from collections.abc import Callable

from gate_racer.field.probe.check import Check, CheckVerdict
from gate_racer.link.msp.line import MspLine, neutral
from gate_racer.link.msp.messages import Channels, Message, StatusEx
from gate_racer.link.msp.profile import LOW_US, MID_US, OWN_ORDER, BetaflightProfile

STEP_US = 20  # us, movement of a stick
SAME_US = 5  # us, tolerance of a channel: rounding
MOVE_S = 1.0  # s allowed for a movement to appear
POLL_S = 0.02  # s
NAMES = dict(zip(OWN_ORDER, ("roll", "pitch", "yaw", "throttle"), strict=True))


class RehearsalStage(enum.Enum):
    """Stage of the rehearsal, with its instruction to the person at the transmitter."""

    ARM = "propellers off, throttle low: arm"
    HAND_OVER = "hand over: switch the override on"
    MOVE = "handed over: the program moves one stick after the other, wait"
    TAKE_BACK = "take back: switch the override off"
    DISARM = "disarm"
    OVER = "over"


class Rehearsal:
    """State machine of the rehearsal: pass messages to `receive`, and send `sticks`. Times in s of one monotonic clock."""

    def __init__(self, profile: BetaflightProfile, begin: float):
        self._profile, self._begin = profile, begin
        self.stage, self.cause = RehearsalStage.ARM, ""
        self.checks: list[Check] = []
        self._armed = self._handed_over = False
        self._moved, self._moved_t = OWN_ORDER[0], begin  # the stick that is displaced, and since when
        self._left = list(OWN_ORDER)

    @property
    def sticks(self) -> tuple[int, ...]:
        """Sticks in the order of the receiver's map. Before the hand-over roll is already displaced, to show when sticks act."""
        rest = neutral(self._profile)
        if self.stage in (RehearsalStage.TAKE_BACK, RehearsalStage.DISARM, RehearsalStage.OVER):
            return rest
        at = self._profile.channel(self._moved)
        return tuple(us + STEP_US * (k == at) for k, us in enumerate(rest))

    def receive(self, message: Message, t: float) -> None:
        """Process a message, sampled at t."""
        if isinstance(message, StatusEx):
            self._armed = message.armed
        elif isinstance(message, Channels):
            self._handed_over = self._profile.aux.override.on(message.us)
            if self._handed_over and message.us[OWN_ORDER.index("T")] >= self._profile.throttle.min_check_us:
                self._fail("throttle", "low", "up", "the throttle is up: take back at once, and check the channel map")
        else:
            return
        if self.stage is not RehearsalStage.OVER:
            self._follow(message, t)

    def give_up(self, limit_s: float) -> None:
        """End the rehearsal after a time-out."""
        if self.stage is not RehearsalStage.OVER:
            self._end(f"not done within {limit_s:g} s: {self.stage.value}")

    def _follow(self, message: Message, t: float) -> None:
        """Advance to the next stage if due."""
        if self.stage is RehearsalStage.ARM and self._armed:
            self.stage = RehearsalStage.HAND_OVER
        if self.stage is RehearsalStage.HAND_OVER and self._handed_over and self._armed:
            self.stage, self._moved_t = RehearsalStage.MOVE, t
        if self.stage is RehearsalStage.MOVE and isinstance(message, Channels):
            self._watch(message, t)
        if self.stage is RehearsalStage.TAKE_BACK and not self._handed_over:
            self.stage = RehearsalStage.DISARM
        if self.stage is RehearsalStage.DISARM and not self._armed:
            self._end("")
        if self.stage in (RehearsalStage.HAND_OVER, RehearsalStage.MOVE, RehearsalStage.TAKE_BACK) and not self._armed:
            self._end(f"disarmed too early: {self.stage.value}")
        if self.stage is RehearsalStage.MOVE and not self._handed_over:
            self._end("taken back before every stick was tried")

    def _watch(self, channels: Channels, t: float) -> None:
        """Check that the displaced stick appears on its channel alone."""
        off = {
            letter: us - (LOW_US if letter == "T" else MID_US)
            for letter, us in zip(OWN_ORDER, channels.us, strict=False)
        }
        shown = [letter for letter, by in off.items() if abs(by) > SAME_US]
        right = shown == [self._moved] and abs(off[self._moved] - STEP_US) <= SAME_US
        if not self._handed_over or not (right or t - self._moved_t > MOVE_S):
            return
        name = f"{NAMES[self._moved]} stick appears on"
        found = " and ".join(NAMES[letter] for letter in shown) or "none"
        if not right:
            self._fail(name, NAMES[self._moved], found, f"the {NAMES[self._moved]} stick appeared on: {found}")
            return
        took = f"{found}, after {1e3 * (t - self._moved_t):.0f} ms"
        if len(self._left) == len(OWN_ORDER):
            self.checks.append(
                Check("override to effect of sticks, ms", "-", f"{1e3 * (t - self._moved_t):.0f}", CheckVerdict.PASS)
            )
        self.checks.append(Check(name, NAMES[self._moved], took, CheckVerdict.PASS))
        self._left.pop(0)
        self.stage = RehearsalStage.MOVE if self._left else RehearsalStage.TAKE_BACK
        self._moved, self._moved_t = (self._left or OWN_ORDER)[0], t

    def _fail(self, name: str, expected: str, found: str, cause: str) -> None:
        if not self.cause:
            self.checks.append(Check(name, expected, found, CheckVerdict.DIFFERS))
            self._end(cause)

    def _end(self, cause: str) -> None:
        self.stage, self.cause = RehearsalStage.OVER, self.cause or cause


def rehearse(
    line: MspLine, profile: BetaflightProfile, limit_s: float, say: Callable[[str], None], clock: Callable[[], float]
) -> Rehearsal:
    """Stream sticks over a line until the rehearsal is over, with instructions to the person. Neutral sticks are sent last.

    Raises:
        LinkError: the line failed.
    """
    rehearsal, until, announced = Rehearsal(profile, clock()), clock() + limit_s, None
    try:
        while rehearsal.stage is not RehearsalStage.OVER:
            if rehearsal.stage is not announced:
                announced = rehearsal.stage
                say(f"{announced.value} ...")
            line.sticks = rehearsal.sticks
            for sampled, message in line.exchange(POLL_S):
                rehearsal.receive(message, sampled)
            if clock() > until:
                rehearsal.give_up(limit_s)
    finally:
        line.rest()
    return rehearsal
