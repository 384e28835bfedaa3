"""A vehicle to fly, and a solver that fails when told to."""

import numpy as np

from gate_racer.mpc.problem import Solution
from gate_racer.vehicle.dynamics import rates, rk4


class Failing:
    """A solver that does as it is told."""

    def __init__(self, inner):
        self.inner, self.status, self.nan, self.starts = inner, 0, False, 0

    def start(self, x, u):
        self.starts += 1
        self.inner.start(x, u)

    def prepare(self, parameters):
        self.inner.prepare(parameters)

    def solve(self, x0):
        good = self.inner.solve(x0)
        u = good.u * np.nan if self.nan else good.u
        return Solution(good.x, u, self.status, good.solve_s)


def flown(x, u, vehicle, dt):
    """The state (14,) dt after x under a held input."""
    for _ in range(4):
        x = rk4(rates, x, u, vehicle.rates_parameters, dt / 4)
    return np.array(x)
