"""Gusts: Dryden turbulence of MIL-F-8785C (3.7.2.2 and 3.7.3, low altitude), along, across and normal to the mean wind.

    H_u(s) = sigma_u sqrt(2 T_u) / (1 + T_u s),    H_v(s) = sigma_v sqrt(T_v) (1 + sqrt(3) T_v s) / (1 + T_v s)^2,    w like v
    T = L / V,    L_w = h,    L_u = L_v = h / (0.177 + 0.000823 h)^1.2,    sigma_w = sigma_u (0.177 + 0.000823 h)^0.4

with the height h in feet and V the airspeed, here at least 1 m/s. Each filter is advanced exactly over a step with held T: in
units of its own standard deviation, u is an Ornstein-Uhlenbeck process, and v = (sqrt(3) x1 + (1 - sqrt(3)) x2) / sqrt(2) of
x1' = -x1 / T + noise, x2' = (x1 - x2) / T, whose stationary covariance is ((1, 1/2), (1/2, 1/2)).
"""

import math

import numpy as np

from gate_racer.vehicle.rotation import Array

FOOT_M = 0.3048  # m per foot: the standard's equations are in feet
LEAST_AIRSPEED_M_S = 1.0  # lower limit of V, so that gusts change in hover too (chosen)
ROOT3 = math.sqrt(3.0)
STATIONARY = np.array([[1.0, 0.5], [0.5, 0.5]])


class Dryden:
    """Realisation of Dryden turbulence, advanced step by step."""

    def __init__(self, sigma_m_s: float, height_m: float, rng: np.random.Generator):
        """Draw a stationary state. `sigma_m_s`: standard deviation along and across the wind. `height_m`: above ground."""
        feet = height_m / FOOT_M
        rough = 0.177 + 0.000823 * feet
        self._rng = rng
        self._sigma = sigma_m_s * np.array([1.0, 1.0, rough**0.4])
        self._length_m = FOOT_M * np.array([feet / rough**1.2, feet / rough**1.2, feet])
        self._u = rng.standard_normal()
        self._across = np.linalg.cholesky(STATIONARY) @ rng.standard_normal((2, 2))  # x1 and x2 of v and of w

    @property
    def gust(self) -> Array:
        """Gust velocity (3,) m/s: along the wind, to its right, and down."""
        v, w = (ROOT3 * self._across[0] + (1 - ROOT3) * self._across[1]) / math.sqrt(2)
        return self._sigma * np.array([self._u, v, w])

    def advance(self, dt: float, airspeed_m_s: float) -> None:
        """Advance by dt (s) at this airspeed."""
        share = dt * max(airspeed_m_s, LEAST_AIRSPEED_M_S) / self._length_m  # dt / T
        keep = np.exp(-share)
        self._u = keep[0] * self._u + math.sqrt(1 - keep[0] ** 2) * self._rng.standard_normal()
        noise = self._rng.standard_normal((2, 2))
        for k in (1, 2):
            A = keep[k] * np.array([[1.0, 0.0], [share[k], 1.0]])
            spread = np.linalg.cholesky(STATIONARY - A @ STATIONARY @ A.T)
            self._across[:, k - 1] = A @ self._across[:, k - 1] + spread @ noise[:, k - 1]
