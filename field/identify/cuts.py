"""What a model of flight cannot explain is cut from a log, and named: radio losses, contact with the ground, motors off."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.link.logs.samples import Samples
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, Mask

GAP_S, COMMAND_GAP_S = 0.1, 0.5  # s without samples of the motion, without commands, above which the log has a gap
FILLED = 4  # samples on one line that were filled in (chosen)
STRAIGHT = 1e-4  # -, relative error of its slope: no sensor is so even (chosen)
MOST_M_S2 = 16 * GRAVITY  # m/s^2, range of the accelerometers of racing vehicles
OUTSIDE = 0.02  # -, throttle beyond 0..1 that no rounding explains
PUSHED_M_S2 = 1.0  # m/s^2, deviation of the specific force from gravity that shows flight (chosen)
STANDING_M_S, RESTING_M_S = 0.3, 3.0  # m/s, speed that shows flight; estimated speed at which it may yet rest (chosen)
CARRIED = 0.8  # -, share of the throttle of hover below which force that equals gravity is the ground's (chosen)
LIFTING = 0.97  # -, that share up to which a vehicle that stands still has not taken off (chosen)
OFF = 0.02  # -, throttle of motors that are off (chosen)
AFTER_S = 0.3  # s for which a command may still act, and the body bounce: delay and lags (chosen)
STEP_S = 0.01  # s, grid spacing: finer than any lag of interest
SPIN_DOWN = 10  # samples for which a motor that was saturated differs from the others (chosen)
LOST, IMPOSSIBLE = "filled in where the radio lost data", "of impossible values"


@dataclass(frozen=True)
class Cut:
    """A reason, and the samples (N,) that it excludes."""

    reason: str
    mask: Mask

    @property
    def seconds(self) -> float:
        """Duration of what is cut, s."""
        return float(self.mask.sum()) * STEP_S


def averaged(x: Array, n: int) -> Array:
    """Return centred means (N,) over n samples, about."""
    half = n // 2
    return np.convolve(np.pad(x, half, mode="edge"), np.ones(2 * half + 1) / (2 * half + 1), "valid")


@dataclass(frozen=True)
class Motion:
    """Signals on the grid that show what is flight."""

    t: Array  # (N,) s
    throttle: Array  # (N,)
    force_b: Array  # (N, 3) m/s^2
    speed: Array | None  # (N,) m/s, as estimated
    landed: Mask  # (N,) as the autopilot detected
    voltage: Array  # (N,) V, NaN where unknown
    saturated: Mask  # (N,) a motor is at its limit though the throttle is not

    @property
    def lift(self) -> Array:
        """Throttle (N,) at equal voltage, which tells better what the motors carry."""
        share = self.voltage / np.median(self.voltage)
        return np.where(np.isfinite(share), share, 1.0) * self.throttle

    @property
    def weighs(self) -> Mask:
        """Where the force is that of rest or of hover."""
        smooth = np.column_stack([averaged(f, 5) for f in self.force_b.T])
        return np.asarray(np.abs(np.linalg.norm(smooth, axis=1) - GRAVITY) < PUSHED_M_S2)


def cuts_of(motion: Motion, lost: Sequence[tuple[float, float]], sampled: tuple[Samples, Samples]) -> list[Cut]:
    """Return all cuts. `lost` are the stretches that were filled in, `sampled` the samples of motion and of commands."""
    impossible = (np.linalg.norm(motion.force_b, axis=1) > MOST_M_S2) | (np.abs(motion.throttle - 0.5) > 0.5 + OUTSIDE)
    gap = _gaps(sampled[0], motion.t, GAP_S) | _gaps(sampled[1], motion.t, COMMAND_GAP_S)
    # Motors are off before the first and after the last throttle, with what they do until they stop.
    off, contact = ~_between(motion.throttle > OFF), _contact(motion)
    return [
        Cut(LOST, within(lost, motion.t)),
        Cut("without samples", gap),
        Cut(IMPOSSIBLE, around(impossible)),
        Cut("with a motor saturated", np.convolve(motion.saturated, np.ones(SPIN_DOWN))[: len(off)] > 0.5),
        Cut("with motors off", off),
        Cut("on the ground", around(contact) & ~off),
    ]


def within(stretches: Sequence[tuple[float, float]], t: Array) -> Mask:
    """Return which of the times (N,) lie in the stretches."""
    inside = np.zeros(len(t), bool)
    for begin, end in stretches:
        inside[np.searchsorted(t, begin) : np.searchsorted(t, end, side="right")] = True
    return inside


def filled(samples: Samples) -> list[tuple[float, float]]:
    """Return the stretches, s, in which all axes lie on one line through time and are not constant."""
    if len(samples) < FILLED + 1:
        return []
    steps = np.maximum(np.diff(samples.t), 1e-9)[:, None]
    slopes = np.diff(samples.values, axis=0) / steps
    turns, size = np.linalg.norm(np.diff(slopes, axis=0), axis=1), np.linalg.norm(slopes[1:], axis=1)
    straight = (turns < STRAIGHT * size) & (np.count_nonzero(slopes[1:], axis=1) > 1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], straight.astype(int), [0]])))
    return [(samples.t[a], samples.t[b + 1]) for a, b in edges.reshape(-1, 2) if b - a >= FILLED - 1]


def hover_throttle(motion: Motion) -> float:
    """Return the median throttle at which the force is that of hover, and something else shows flight; NaN if never."""
    flying = motion.speed > STANDING_M_S if motion.speed is not None else _between(~motion.weighs)
    carried = motion.lift[flying & ~motion.landed & motion.weighs & (motion.throttle > OFF)]
    return float(np.median(carried)) if len(carried) else float("nan")


def _contact(motion: Motion) -> Mask:
    """Return where (N,) the ground carries the vehicle: the force is gravity's though the throttle is not that of hover."""
    hover = hover_throttle(motion)
    if np.isnan(hover):
        return motion.landed | (
            motion.weighs if motion.speed is None else motion.weighs & (motion.speed < STANDING_M_S)
        )
    n, below = round(AFTER_S / STEP_S), motion.lift < CARRIED * hover
    idle = np.convolve(below, np.ones(n))[: len(motion.t)] > n - 0.5  # and has been
    slow = motion.speed < RESTING_M_S if motion.speed is not None else True
    first = np.arange(len(motion.t)) < int(np.argmax(~(motion.weighs & below)))
    contact = np.asarray(motion.landed | (motion.weighs & slow & (idle | first)))
    if motion.speed is None:
        return contact
    # Motors that run up on the ground, or down: no motion yet, or no longer.
    still = motion.weighs & (motion.speed < STANDING_M_S) & (motion.lift < LIFTING * hover)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (still | contact).astype(int), [0]])))
    for begin, end in edges.reshape(-1, 2):
        contact[begin:end] |= contact[begin:end].any()
    return contact


def _between(shown: Mask) -> Mask:
    """Return the samples (N,) from the first to the last that is shown."""
    inside, at = np.zeros(len(shown), bool), np.flatnonzero(shown)
    if len(at):
        inside[at[0] : at[-1] + 1] = True
    return inside


def around(mask: Mask) -> Mask:
    """Return the samples (N,) of a mask and those within AFTER_S of it."""
    n = round(AFTER_S / STEP_S)
    return np.convolve(mask, np.ones(2 * n + 1))[n:-n] > 0.5


def _gaps(samples: Samples, t: Array, longest_s: float) -> Mask:
    k = np.clip(np.searchsorted(samples.t, t), 1, len(samples) - 1)
    return samples.t[k] - samples.t[k - 1] > longest_s
