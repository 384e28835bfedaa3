"""Mount of an RflySim sensor: its pose and motion from the vehicle's."""

import math
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.link.rflysim.checks import EARTH_FIXED, ON_GROUND
from gate_racer.link.rflysim.config import mount_deg
from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.sim.simulator import Exposure
from gate_racer.vehicle.rotation import Array, from_euler, matrix, product


@dataclass(frozen=True)
class Mount:
    """Pose of a sensor relative to the body: p_bs (3,) m, q_bs (4,).

    For an Earth-fixed sensor q_bs, for one on the ground both, are relative to the world.
    """

    p_bs: Array
    q_bs: Array
    kind: int

    def seen(self, exposure: Exposure) -> Exposure:
        """Return the exposure with the sensor's pose and motion in place of the body's."""
        if self.kind == ON_GROUND:
            still = np.zeros(3)
            return replace(exposure, p_wb=self.p_bs, q_wb=self.q_bs, v_w=still, omega_b=still)
        R_wb = matrix(exposure.q_wb)
        p_ws = exposure.p_wb + R_wb @ self.p_bs
        v_w = exposure.v_w + R_wb @ np.cross(exposure.omega_b, self.p_bs)
        if self.kind == EARTH_FIXED:
            return replace(exposure, p_wb=p_ws, q_wb=self.q_bs, v_w=v_w, omega_b=np.zeros(3))
        q_ws, omega_s = np.array(product(exposure.q_wb, self.q_bs)), matrix(self.q_bs).T @ exposure.omega_b
        return replace(exposure, p_wb=p_ws, q_wb=q_ws, v_w=v_w, omega_b=omega_s)


def mount_of(request: SensorRequest) -> Mount:
    """Return the mount of a request, whose angles are in degrees (4.12)."""
    q_bs = from_euler(*map(math.radians, mount_deg(request)))
    return Mount(np.array(request.position_m), q_bs, request.mount_type)
