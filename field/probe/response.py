"""Response to commands: a delay, a first-order lag, and a gain for each kind of command.

    y = lag[ sum_m a_m u_m(t - delay) + b_m u_m |u_m| (t - delay) ]

Commands are held constant in between. a and b are linear least squares for given delay and lag (variable projection).
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.field.probe.motion import Order
from gate_racer.vehicle.rotation import Array

GRID_S = 0.002  # s, spacing of the time grid: finer than the lags of interest (chosen)
BEFORE_S = 0.4  # s of commands before the interval that still act in it
DELAYS_S, LAGS_S = np.arange(0.0, 0.16, 0.01), (0.01, 0.03, 0.06, 0.1)
USUAL_LAG_S = 0.03  # s, lag assumed in the search for the delay: that of a racing rate loop (chosen)
LONGEST_S = 0.3  # s, largest delay and lag (chosen)


@dataclass(frozen=True)
class Fitted:
    """Gains of each kind of command, delay and lag."""

    gain: tuple[float, ...]  # a_m
    growth: tuple[float, ...]  # b_m / a_m
    delay_s: float
    lag_s: float
    unexplained: float  # share of the motion, 0..1


@dataclass(frozen=True)
class Commands:
    """Commands on a fine time grid, and the times t of the response."""

    t: Array  # (N,) s
    grid: Array  # (G,) s
    u: Array  # (G, M), one column for each kind

    def followed(self, delay: float, lag: float, growth: tuple[float, ...] | None) -> Array:
        """Return the responses (N, M) of unit gain; with `growth` None (N, 2 M), to the commands and to their signed squares."""
        from scipy.signal import lfilter  # slow to load, and rarely needed

        square = self.u * np.abs(self.u)
        u = np.column_stack([self.u, square]) if growth is None else self.u + square * np.array(growth)
        late = np.column_stack([np.interp(self.grid - delay, self.grid, column) for column in u.T])
        decay = np.exp(-GRID_S / max(lag, GRID_S))
        response = lfilter([1 - decay], [1.0, -decay], late, axis=0)
        return np.column_stack([np.interp(self.t, self.grid, column) for column in response.T])

    def quick_gain(self, measured: Array) -> float:
        """Return the gain of a single kind for the best delay; 0 if it explains less than half."""
        best, gain = 0.5 * float(measured @ measured), 0.0
        for delay in DELAYS_S:
            c = self.followed(delay, USUAL_LAG_S, (0.0,))[:, 0]
            if (power := float(c @ c)) > 1e-9:
                a = float(c @ measured) / power
                misfit = float(((measured - a * c) ** 2).sum())
                if misfit < best:
                    best, gain = misfit, a
        return gain

    def fit(self, measured: Array, used: np.ndarray, growth: tuple[float, ...] | None) -> Fitted | None:
        """Return the best fit over delays and lags on the samples used; None without excitation.

        Args:
            growth: growth of each kind if known; None to fit it.
        """
        from scipy.optimize import minimize  # slow to load

        y, M = measured[used], self.u.shape[1]
        if used.sum() < 30 or float(y @ y) < 1e-9 or not np.abs(self.u).max():
            return None

        def solved(parameters: Array) -> tuple[Array, float]:
            delay, lag = np.clip(parameters, [0.0, GRID_S], LONGEST_S)
            A = self.followed(float(delay), float(lag), growth)[used]
            x = np.linalg.lstsq(A, y, rcond=None)[0]
            return x, float(((A @ x - y) ** 2).sum())

        first = min(((d, lag) for d in DELAYS_S for lag in LAGS_S), key=lambda p: solved(np.array(p))[1])
        best = minimize(lambda p: solved(p)[1], first, method="Nelder-Mead", options={"xatol": 2e-4, "fatol": 1e-7})
        (delay, lag), (x, misfit) = np.clip(best.x, [0.0, GRID_S], LONGEST_S), solved(best.x)
        grown = growth or tuple(float(b / a) if abs(a) > 1e-3 else 0.0 for a, b in zip(x[:M], x[M:], strict=True))
        return Fitted(tuple(x[:M].tolist()), grown, float(delay), float(lag), misfit / float(y @ y))


def commands(sent: list[tuple[float, Order]], t: Array, axis: int | None, masks: tuple[int, ...]) -> Commands:
    """Return the commands for the times t (N,): rates about an axis by kind of command, or for axis None throttle of any kind."""
    grid = np.arange(t[0] - BEFORE_S, t[-1] + GRID_S, GRID_S)
    rows = sent or [(0.0, Order(0, (0.0, 0.0, 0.0), 0.0))]
    stamps = np.array([row[0] for row in rows])
    if axis is None:
        values = np.array([[order.throttle] for _, order in rows])
    else:
        values = np.array([[order.rates[axis] if order.mask == mask else 0.0 for mask in masks] for _, order in rows])
    held = np.searchsorted(stamps, grid, side="right") - 1
    return Commands(t, grid, np.where(held[:, None] >= 0, values[np.maximum(held, 0)], 0.0))
