"""Controller that commands by a learned policy, from the state and the next gate."""

import time

import numpy as np

from gate_racer.mpc import geometric
from gate_racer.mpc.control import Control, Source
from gate_racer.mpc.policy.policy import Policy
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array, exp, product
from gate_racer.vehicle.vehicle import Vehicle

P, Q, V = (RATES_X[name].at for name in "pqv")


class PolicyController:
    """Policy in the loop; call `step` once per command. Its only memory is the last action."""

    def __init__(self, policy: Policy, vehicle: Vehicle):
        self._policy, self._attitude_gain = policy, vehicle.attitude_gain_1_s
        self._action = policy.scaling.hover

    def step(self, x: Array, gate: Gate) -> Control:
        """Compute the command for a state x (14,), RATES_X, and the next gate, in the map frame; hover if x is not finite."""
        begin = time.perf_counter()
        if not np.isfinite(x).all():
            u, q_wb = geometric.brake(x), np.array([1.0, 0.0, 0.0, 0.0])
            reference = np.concatenate([np.zeros(3), q_wb, np.zeros(3), u])
            return Control(u, q_wb, Source.LEVEL, "the state is not finite", -1, 0.0, 0.0, 0.0, reference)
        scaling = self._policy.scaling
        self._action = self._policy.act(scaling.observation(x, gate.corners(), self._action))
        u = scaling.input(self._action)
        q_wb = np.array(product(x[Q], exp(u[:3] / self._attitude_gain)))
        reference = np.concatenate([x[P], x[Q], x[V], u])
        step_s = time.perf_counter() - begin
        return Control(u, q_wb, Source.SOLVED, "", 0, step_s, step_s, 0.0, reference)
