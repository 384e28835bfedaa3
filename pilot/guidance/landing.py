"""Landing on the spot: brake, then sink until the accelerometer shows the ground. The regular end of a flight."""

import math

import numpy as np

from gate_racer.estimation.estimator import State
from gate_racer.link.messages import Imu
from gate_racer.mpc.control import Control
from gate_racer.pilot.guidance.protocol import state_vector
from gate_racer.pilot.guidance.velocity_controller import Aim, VelocityController, control
from gate_racer.vehicle.rotation import to_euler
from gate_racer.vehicle.vehicle import Vehicle

SINK_M_S = 1.5  # m/s, speed of descent (chosen)
TURN_RAD_S = 4.0  # rad/s, largest body rate (chosen)
BRAKE_SHARE = 0.4  # fraction of the vehicle's thrust used for braking
PUSH_M_S2, PUSH_S = (
    4.0,
    0.25,
)  # specific force beyond the commanded thrust, and its duration: longer than the thrust lags
BELOW_M = 0.3  # m below the floor by the estimate, where the ground counts as reached
LIMIT_S = 20.0  # s, longest landing


class Landing:
    """Landing controller, which begins with the first `step`."""

    def __init__(self, vehicle: Vehicle, floor_m: float = math.inf):
        """Create it; `floor_m`: z of the ground, world NED, if known: by slow polls its contact force may be missed."""
        self._floor_m = floor_m + BELOW_M
        self._velocity, self._brake = VelocityController(vehicle, TURN_RAD_S), BRAKE_SHARE * vehicle.thrust_max
        self._begun: float | None = None  # s, start
        self._heading, self._thrust = 0.0, np.inf
        self._free_t = 0.0  # s, last time without contact force
        self.done = False

    def receive(self, sample: Imu) -> None:
        """Process a sample: detect the contact force."""
        if self._begun is None or float(np.linalg.norm(sample.accel)) - self._thrust < PUSH_M_S2:
            self._free_t = sample.t
        late = self._begun is not None and sample.t - self._begun > LIMIT_S
        self.done |= late or sample.t - self._free_t > PUSH_S

    def step(self, state: State, t: float, dt: float) -> Control:
        """Return the command at t (s); the next one follows dt (s) later."""
        if self._begun is None:
            self._begun, self._heading = t, float(to_euler(state.q_wb)[2])
        self.done |= float(state.p_wb[2]) > self._floor_m
        aim, x = Aim.towards(np.array([0.0, 0.0, SINK_M_S]), self._heading), state_vector(state)
        command = control(x, *self._velocity.input(x, aim, dt, self._brake), aim)
        self._thrust = float(command.u[3])
        return command
