"""Flight by commanded velocities, used by explorer, exciter, recovery and landing instead of a plan.

    a = k e + k_i sum e dt + a*,   e = v* - v,   f = a - g + drag(v),   |f| along -z of the body,   omega = k_q log(q^-1 q*)

The integral compensates errors of the vehicle's file. q* is the attitude whose z axis lies along -f and whose nose has the
commanded heading. Landing on the spot, the regular end: brake, then sink until the accelerometer shows the ground.
"""

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from gate_racer.estimation.estimator import State
from gate_racer.link.messages import Imu
from gate_racer.mpc.control import Control, Source
from gate_racer.mpc.geometric import limited
from gate_racer.pilot.guidance.protocol import state_vector
from gate_racer.vehicle.dynamics import G_W, RATES_X, drag
from gate_racer.vehicle.rotation import Array, aligned, conjugate, log, product, to_euler
from gate_racer.vehicle.vehicle import Vehicle

P, V, Q = (RATES_X[name].at for name in "pvq")
VELOCITY_GAIN = 2.0  # 1/s, proportional gain
TRIM_GAIN, TRIM_LIMIT = 1.0, 4.0  # 1/s^2, integral gain, and m/s^2, its limit
ACCEL_LIMIT = 4.0  # m/s^2, limit of the proportional term
ATTITUDE_GAIN = 8.0  # 1/s, attitude error to body rates
LEAST_THRUST = 1.0  # m/s^2, below which the force has no defined direction


@dataclass(frozen=True, slots=True)
class Aim:
    """Commanded velocity, heading and acceleration, world NED."""

    v_w: Array  # (3,) m/s
    heading: float  # rad, yaw of the nose
    accel_w: Array = field(default_factory=lambda: np.zeros(3))  # (3,) m/s^2, feed-forward


class VelocityController:
    def __init__(self, vehicle: Vehicle, turn_limit: float):
        self._vehicle, self._air, self._turn_limit = vehicle, vehicle.rates_parameters, turn_limit
        self._trim = np.zeros(3)  # m/s^2

    def input(
        self, x: Array, aim: Aim, dt: float, accel_limit: float = ACCEL_LIMIT, learn: bool = True
    ) -> tuple[Array, Array]:
        """Return the input (4,) and the commanded attitude (4,) for the state x (14,), dt (s) before the next call.

        `learn` updates the integral; not while the input is flown only in part, or the aim jumps.
        """
        q, v = x[Q], x[V]
        error = aim.v_w - v
        if learn:  # horizontal and vertical apart, so that a thrust error shows while speed is gained
            level = math.hypot(error[0], error[1])
            within = VELOCITY_GAIN * np.array([level, level, abs(error[2])]) < accel_limit
            self._trim = limited(self._trim + TRIM_GAIN * dt * error * within, TRIM_LIMIT)
        air = np.array(drag(q, v, self._air.drag_linear, self._air.drag_quadratic))
        force = limited(VELOCITY_GAIN * error, accel_limit) + self._trim + aim.accel_w - air - G_W
        thrust = max(float(np.linalg.norm(force)), LEAST_THRUST)
        nose = np.array([math.cos(aim.heading), math.sin(aim.heading), 0.0])
        q_target = aligned(-force / thrust, nose)
        omega = limited(ATTITUDE_GAIN * log(product(conjugate(q), q_target)), self._turn_limit)
        return np.array([*omega, min(thrust, self._vehicle.thrust_max)]), q_target


def control(x: Array, u: Array, q_wb: Array, aim: Aim) -> Control:
    """Return an input as a command without a solver; its reference (14,) is the aim at the position x[P]."""
    reference = np.concatenate([x[P], q_wb, aim.v_w, u])
    return Control(u, q_wb, Source.SOLVED, "", 0, 0.0, 0.0, 0.0, reference)


SINK_M_S = 1.5  # m/s, speed of descent (chosen)
TURN_RAD_S = 4.0  # rad/s, largest body rate (chosen)
BRAKE_SHARE = 0.4  # fraction of the vehicle's thrust used for braking
# Specific force beyond the commanded thrust that all but a share of the samples show, over a time longer than the thrust lags.
# On the ground the controller takes VELOCITY_GAIN * SINK_M_S off the thrust: two thirds of it suffice where the floor is near.
PUSH_M_S2, NEAR_PUSH_M_S2, PUSH_S, NOISE_SHARE = 4.0, 2 / 3 * VELOCITY_GAIN * SINK_M_S, 0.3, 0.2
NEAR_M, BELOW_M = 0.5, 0.3  # m above the floor by the estimate, where it is near, and below, where it counts as reached
LIMIT_S = 20.0  # s, longest landing


class Landing:
    """Landing controller, which begins with the first `step`."""

    def __init__(self, vehicle: Vehicle, floor_m: float = math.inf):
        """Create it; `floor_m`: z of the ground, world NED, if known: by slow polls its contact force may be missed."""
        self._floor_m, self._push = floor_m, PUSH_M_S2
        self._velocity, self._brake = VelocityController(vehicle, TURN_RAD_S), BRAKE_SHARE * vehicle.thrust_max
        self._begun: float | None = None  # s, start
        self._heading, self._thrust = 0.0, np.inf
        self._pushes = deque[tuple[float, float]]()  # time and force beyond the commanded thrust, of the last PUSH_S
        self.done = False

    def receive(self, sample: Imu) -> None:
        if self._begun is None:
            return
        self._pushes.append((sample.t, float(np.linalg.norm(sample.accel)) - self._thrust))
        if sample.t - self._pushes[0][0] > PUSH_S:
            self.done |= float(np.quantile([push for _, push in self._pushes], NOISE_SHARE)) > self._push
        while sample.t - self._pushes[0][0] > PUSH_S:
            self._pushes.popleft()
        self.done |= sample.t - self._begun > LIMIT_S

    def step(self, state: State, t: float, dt: float) -> Control:
        if self._begun is None:
            self._begun, self._heading = t, float(to_euler(state.q_wb)[2])
        below = float(state.p_wb[2]) - self._floor_m
        self.done |= below > BELOW_M
        self._push = NEAR_PUSH_M_S2 if below > -NEAR_M else PUSH_M_S2
        aim, x = Aim(np.array([0.0, 0.0, SINK_M_S]), self._heading), state_vector(state)
        command = control(x, *self._velocity.input(x, aim, dt, self._brake), aim)
        self._thrust = float(command.u[3])
        return command
