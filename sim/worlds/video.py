"""The way of the frames: which are lost, how long the others take, and what their stamps say.

Losses: the two-state chain of Gilbert (1960). Latency: more than the nominal one by a mean and a first-order Markov process, and
never less: a load that comes and goes.
"""

import math
from typing import NamedTuple

import numpy as np

from sim.worlds.deviations import LinkDeviation


class Way(NamedTuple):
    """Of one frame."""

    stamp: float  # s, what the sender's clock makes of the time of exposure, on the simulator's clock
    late_s: float  # by which it takes longer than nominal from exposure to the client


class MarkovChain:
    """Two-state Markov chains side by side, stationary from the start: in a share of the steps, in bursts of a mean length."""

    def __init__(self, share: float, mean_steps: float, shape: tuple[int, ...], rng: np.random.Generator):
        self._rng, self._leave = rng, 1 / mean_steps
        self._enter = share / (1 - share) / mean_steps
        self.on = rng.random(shape) < share

    def step(self) -> np.ndarray:
        """Which of them are on, now."""
        chance = self._rng.random(self.on.shape)
        self.on = np.where(self.on, chance >= self._leave, chance < self._enter)
        return self.on


class VideoPath:
    """Asked once for each frame, in order."""

    def __init__(self, link: LinkDeviation, video_hz: float, rng: np.random.Generator):
        self._link, self._rng = link, rng
        self._lost = MarkovChain(link.frame_loss, link.frame_loss_frames, (), rng) if link.frame_loss else None
        self._keep = math.exp(-1 / (video_hz * link.video_jitter_tau_s))
        self._swing = float(rng.standard_normal()) if link.video_jitter_s else 0.0

    def __call__(self, t: float) -> Way | None:
        """The way of a frame exposed at t (s of the simulator's clock); None: it is lost."""
        link = self._link
        if link.video_jitter_s:
            self._swing = self._keep * self._swing + math.sqrt(1 - self._keep**2) * float(self._rng.standard_normal())
        if self._lost is not None and self._lost.step():
            return None
        more = link.video_latency_s + link.video_jitter_s * self._swing
        stamp = t * (1 + 1e-6 * link.video_drift_ppm) + link.video_offset_s
        return Way(stamp, max(0.0, more))
