"""Probabilities of deviations towards edges: mixtures of normal distributions, and normal ones with a one-sided limit."""

from dataclasses import dataclass

import numpy as np

from gate_racer.vehicle.rotation import Array

HALVINGS = 60  # of the interval that holds a quantile, to below its rounding error


@dataclass(frozen=True, eq=False)
class Tails:
    """Deviations towards J edges, a mixture of C cases, in each of which they are normal."""

    weights: Array  # (C,), or (J, C): probabilities of the cases
    means_m: Array  # (J, C) m, towards the edge
    sigmas_m: Array  # (J, C) m

    @staticmethod
    def normal(sigmas_m: Array) -> "Tails":
        """Return a single case with these standard deviations (J,), m, and zero mean."""
        return Tails(np.ones(1), np.zeros((len(sigmas_m), 1)), np.asarray(sigmas_m)[:, None])

    @staticmethod
    def joined(parts: list["Tails"]) -> "Tails":
        """Concatenate along the edges; missing cases have no probability."""
        most = max(part.means_m.shape[1] for part in parts)

        def filled(values: Array, edges: int, by: float) -> Array:
            values = np.broadcast_to(values, (edges, values.shape[-1]))
            return np.pad(values, ((0, 0), (0, most - values.shape[1])), constant_values=by)

        columns = [(part.weights, part.means_m, part.sigmas_m, len(part.means_m)) for part in parts]
        return Tails(
            np.concatenate([filled(weights, n, 0.0) for weights, _, _, n in columns]),
            np.concatenate([filled(means, n, 0.0) for _, means, _, n in columns]),
            np.concatenate([filled(sigmas, n, 1.0) for _, _, sigmas, n in columns]),
        )

    def scaled(self, factors: Array) -> "Tails":
        """Return the deviations multiplied by factors (J,)."""
        return Tails(self.weights, factors[:, None] * self.means_m, factors[:, None] * self.sigmas_m)

    @property
    def spread_m(self) -> Array:
        """Standard deviations (J,), m, of the mixture."""
        mean = (self.weights * self.means_m).sum(axis=-1, keepdims=True)
        return np.sqrt((self.weights * (self.sigmas_m**2 + (self.means_m - mean) ** 2)).sum(axis=-1))

    def by_case(self, rooms_m: Array) -> Array:
        """Return the probabilities (J, C) of more than these deviations (J,), m, in each case."""
        from scipy.special import ndtr  # slow to load, and not needed to fly a plan

        return np.asarray(ndtr((self.means_m - np.asarray(rooms_m)[:, None]) / self.sigmas_m))

    def risks(self, rooms_m: Array) -> Array:
        """Return the probabilities (J,) of more than these deviations (J,), m."""
        return np.asarray((self.weights * self.by_case(rooms_m)).sum(axis=-1))

    def rooms(self, risks: Array) -> Array:
        """Return the deviations (J,), m, exceeded with these probabilities (J,), by bisection."""
        from scipy.special import ndtri  # slow to load, as above

        each = self.means_m - ndtri(np.asarray(risks))[:, None] * self.sigmas_m
        low, high = each.min(axis=1), each.max(axis=1)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            beyond = self.risks(middle) > risks
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        return np.asarray(high)


def limited(sigma_m: Array, limit_m: Array) -> Array:
    """Return the standard deviations, m, towards one side, of zero-mean normal variables that are cut off at a limit >= 0:

    s^2 = 2 E[min(x, limit)^2; x > 0] = sigma^2 (2 Phi(b) - 1 - 2 b phi(b)) + 2 limit^2 (1 - Phi(b)),   b = limit / sigma
    """
    from scipy.special import ndtr  # slow to load, as above

    b = limit_m / sigma_m
    density = np.exp(-(b**2) / 2) / np.sqrt(2 * np.pi)
    inside = 2 * ndtr(b) - 1 - 2 * b * density
    return np.asarray(np.sqrt(sigma_m**2 * inside + 2 * limit_m**2 * ndtr(-b)))
