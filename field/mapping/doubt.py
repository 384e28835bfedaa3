"""What is known of camera and IMU while gates are mapped: all that the files say, or as little as of an unknown simulator.

Openings of known size tell ranges as far as the focal length is known, and the IMU tells lengths as far as its scale is. Turns
that ATTITUDE tells show the focal length. Where the files are right, to free all this would only cost certainty, so it is first
left free, and held as told unless it turns out to be otherwise.
"""

from dataclasses import dataclass, replace

import numpy as np

from estimation.eskf.noise import Noise
from estimation.eskf.states import ARM, CENTRE, FOCAL, KNOWN, LEAN, RADIAL, READOUT, ROLL, YAW, column, varied
from perception.rims import GateAppearance
from vehicle.rotation import Array
from vehicle.statistics import chi2_limit
from vehicle.vehicle import Vehicle

# What all states of all flights share, by its place in the error state: the camera, and how ATTITUDE leans.
SHARED = np.r_[YAW, ROLL, FOCAL, CENTRE, ARM, LEAN, RADIAL, READOUT]
M = len(SHARED)
LEAN_IN_SHARED = slice(int(np.flatnonzero(LEAN.start == SHARED)[0]), int(np.flatnonzero(LEAN.start == SHARED)[0]) + 3)
ACCEL_WALK, EDGE_WALK = 0.005, 0.01  # as in the filter's noise, but of a slow flight
IMU_SCALE = 1e-4  # relative: where the files are right sensors are true to scale, and so is the map
SIZE_SIGMA_M = 0.003  # how well it is known there where the edges of all gates lie
DEPTH_SIGMA_M = (
    0.05  # of frames: boxes fitted to real ones are 0.16 m deep, the wire says 0.26 m, physical ones may have 0.14 m
)
PAD_SIGMA_RAD = 0.01  # of the attitude on the pad that is told
HELD = 1e-3  # of its prior, by which a thing that is as told may differ
FALSE_ALARM = 1e-3  # how often files that are right would be doubted,
OVERCONFIDENT = 2.0  # were the covariances not too small by so many standard deviations


@dataclass(frozen=True)
class MapDoubt:
    """Standard deviations of everything but the gates and the trajectories."""

    noise: Noise
    shared: Array  # (M,) of `SHARED`
    swell_m: float
    depth_m: float
    pitch_rad: float  # of each gate
    pad_rad: float


def as_told(vehicle: Vehicle) -> MapDoubt:
    """Camera and IMU are what the vehicle's file says, but for the camera's tilt and clock."""
    scale = {"prior": IMU_SCALE}
    return MapDoubt(
        Noise(vehicle.imu, varied(s_a=scale, s_g=scale, v={"walk": ACCEL_WALK}, edge_px={"walk": EDGE_WALK})),
        HELD * column("prior")[SHARED],
        SIZE_SIGMA_M,
        DEPTH_SIGMA_M,
        HELD,
        PAD_SIGMA_RAD,
    )


def unknown(vehicle: Vehicle, look: GateAppearance) -> MapDoubt:
    """As little is known of them as the error-state filter assumes."""
    states = varied(v={"walk": ACCEL_WALK}, edge_px={"walk": EDGE_WALK})
    bias = {"accel_bias_m_s2": states["b_a"].prior, "gyro_bias_rad_s": states["b_g"].prior}
    imu = replace(
        vehicle.imu, **{name: float(np.hypot(getattr(vehicle.imu, name), more)) for name, more in bias.items()}
    )
    shared = column("prior", states)[SHARED]
    pad_rad = float(np.hypot(PAD_SIGMA_RAD, shared[LEAN_IN_SHARED][0]))
    return MapDoubt(Noise(imu, states), shared, look.edge_offset_m, DEPTH_SIGMA_M, KNOWN.map_turn, pad_rad)


def differs(shared: Array, cov: Array) -> bool:
    """Whether what came out for `SHARED` (M,), with its covariance (M, M), is not what was told."""
    return float(shared @ np.linalg.solve(cov, shared)) > OVERCONFIDENT**2 * chi2_limit(M, FALSE_ALARM)
