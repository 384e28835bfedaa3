"""Prior uncertainty of camera and IMU for mapping: either of the vehicle's file, or of an unknown simulator.

Openings of known size give ranges as accurate as the focal length, and the IMU gives lengths as accurate as its scale.
Rotations in ATTITUDE make the focal length observable. Where the files are right, free parameters would only reduce accuracy,
so all are estimated first, and then held at the files' values unless they differ significantly.
"""

from dataclasses import dataclass, replace

import numpy as np

from gate_racer.estimation.eskf.noise import Noise
from gate_racer.estimation.eskf.states import (
    ARM,
    CENTRE,
    FOCAL,
    KNOWN,
    LEAN,
    RADIAL,
    READOUT,
    ROLL,
    YAW,
    column,
    varied,
)
from gate_racer.perception.rims import GateAppearance
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import chi2_limit
from gate_racer.vehicle.vehicle import Vehicle

# Parameters shared by all states of all flights, by index in the error state: the camera, and the tilt error of ATTITUDE.
SHARED = np.r_[YAW, ROLL, FOCAL, CENTRE, ARM, LEAN, RADIAL, READOUT]
M = len(SHARED)
_LEAN_BEGIN = SHARED.tolist().index(LEAN.start)
LEAN_IN_SHARED = slice(_LEAN_BEGIN, _LEAN_BEGIN + 3)  # indices of LEAN among the shared parameters
ACCEL_WALK, EDGE_WALK = 0.005, 0.01  # random walks as in the filter's noise, for a slow flight
IMU_SCALE = 1e-4  # relative: scale error of sensors where the files are right, and so of the map
SIZE_SIGMA_M = 0.003  # m, standard deviation of the gates' common edge offset in that case
# m, of frames: boxes fitted to real ones are 0.16 m deep, the wire says 0.26 m, physical ones may have 0.14.
DEPTH_SIGMA_M = 0.05
PAD_SIGMA_RAD = 0.01  # rad, standard deviation of the reported attitude on the pad (chosen)
HELD = 1e-3  # -, factor on the prior of a parameter that is held (chosen)
FALSE_ALARM = 1e-3  # -, rate at which correct files are rejected with correct covariances (chosen)
OVERCONFIDENT = 2.0  # factor by which the standard deviations are too small


@dataclass(frozen=True)
class MapPriors:
    """Standard deviations of all parameters except gates and trajectories."""

    noise: Noise
    shared: Array  # (M,) in the order of `SHARED`
    edge_offset_m: float
    depth_m: float
    pitch_rad: float  # pitch of each gate
    pad_rad: float


def specified(vehicle: Vehicle) -> MapPriors:
    """Return the uncertainty for a camera and IMU as in the vehicle's file, except the camera's tilt and clock."""
    scale = {"prior": IMU_SCALE}
    return MapPriors(
        Noise(vehicle.imu, varied(s_a=scale, s_g=scale, v={"walk": ACCEL_WALK}, edge_px={"walk": EDGE_WALK})),
        HELD * column("prior")[SHARED],
        SIZE_SIGMA_M,
        DEPTH_SIGMA_M,
        HELD,
        PAD_SIGMA_RAD,
    )


def unknown(vehicle: Vehicle, look: GateAppearance) -> MapPriors:
    """Return the uncertainty for an unknown camera and IMU, as assumed by the error-state filter."""
    states = varied(v={"walk": ACCEL_WALK}, edge_px={"walk": EDGE_WALK})
    bias = {"accel_bias_m_s2": states["b_a"].prior, "gyro_bias_rad_s": states["b_g"].prior}
    imu = replace(
        vehicle.imu, **{name: float(np.hypot(getattr(vehicle.imu, name), more)) for name, more in bias.items()}
    )
    shared = column("prior", states)[SHARED]
    pad_rad = float(np.hypot(PAD_SIGMA_RAD, shared[LEAN_IN_SHARED][0]))
    return MapPriors(Noise(imu, states), shared, look.edge_offset_m, DEPTH_SIGMA_M, KNOWN.map_turn, pad_rad)


def differs(shared: Array, cov: Array) -> bool:
    """Return whether the estimate of `SHARED` (M,), with covariance (M, M), differs significantly from the file."""
    return float(shared @ np.linalg.solve(cov, shared)) > OVERCONFIDENT**2 * chi2_limit(M, FALSE_ALARM)
