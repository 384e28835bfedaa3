"""Video transport: losses, latency and time stamps of the frames.

Losses: the two-state Markov chain of Gilbert (1960). Latency in excess of the nominal one: a mean and a first-order
Gauss-Markov process, clipped at zero, as under a varying load.
"""

import math
from typing import NamedTuple

import numpy as np

from gate_racer.sim.worlds.deviations import LinkDeviation


class FrameTransport(NamedTuple):
    """Stamp and delay of one frame."""

    stamp: float  # s, time of exposure by the sender's clock, with its offset and drift
    late_s: float  # latency from exposure to the client beyond the nominal one


class MarkovChain:
    """Array of two-state Markov chains, stationary from the start: on in a share of the steps, in bursts of mean length."""

    def __init__(self, share: float, mean_steps: float, shape: tuple[int, ...], rng: np.random.Generator):
        self._rng, self._leave = rng, 1 / mean_steps
        self._enter = share / (1 - share) / mean_steps
        self.on = rng.random(shape) < share

    def step(self) -> np.ndarray:
        """Advance one step and return the mask of chains that are on."""
        chance = self._rng.random(self.on.shape)
        self.on = np.where(self.on, chance >= self._leave, chance < self._enter)
        return self.on


class VideoTransport:
    """Transport of the frames; call once per frame, in order."""

    def __init__(self, link: LinkDeviation, video_hz: float, rng: np.random.Generator):
        self._link, self._rng = link, rng
        self._lost = MarkovChain(link.frame_loss, link.frame_loss_frames, (), rng) if link.frame_loss else None
        self._keep = math.exp(-1 / (video_hz * link.video_jitter_tau_s))
        self._swing = float(rng.standard_normal()) if link.video_jitter_s else 0.0

    def __call__(self, t: float) -> FrameTransport | None:
        """Return stamp and delay of a frame exposed at t (s, simulator clock); None if the frame is lost."""
        link = self._link
        if link.video_jitter_s:
            self._swing = self._keep * self._swing + math.sqrt(1 - self._keep**2) * float(self._rng.standard_normal())
        if self._lost is not None and self._lost.step():
            return None
        more = link.video_latency_s + link.video_jitter_s * self._swing
        stamp = t * (1 + 1e-6 * link.video_drift_ppm) + link.video_offset_s
        return FrameTransport(stamp, max(0.0, more))
