"""Closed-loop dispersion of the estimated state about the plan: the covariance of a linear loop along the plan.

    dp' = dv,   dv' = da + s theta - z,   da' = (-w^2 dp - 2 zeta w dv - da) / lag,   z' = (s theta - z) / learn

A second-order response behind the vehicle's lag. Unknown parameters theta of vehicle and air act through their sensitivities s
along the plan; the controller's disturbance estimate z compensates them. The loop is driven by the corrections of the estimate
(`planner.uncertainty.covariance`), so that true dispersion = estimation error + this (Bry and Roy 2011).

Compensation needs thrust in reserve, of which a time-optimal plan leaves little. So a vehicle with less thrust or more drag than
modelled falls short: it is displaced against its thrust, to one side, until it has slowed down.
"""

import numpy as np

from gate_racer.planner.task import Task
from gate_racer.planner.uncertainty.covariance import EstimateCovariance, Motion
from gate_racer.vehicle.dynamics import layout
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import Vehicle

XYZ = "x y z"
LOOP = layout(
    p=(XYZ, "m", "deviation from the plan, world NED"),
    v=(XYZ, "m/s", "world NED"),
    a=(XYZ, "m/s^2", "world NED"),
    z=(XYZ, "m/s^2", "estimate of the unmodelled acceleration, world NED"),
    thrust=("", "-", "excess of the thrust over the model, as a share"),
    drag=("", "-", "excess of the drag over the model, as a share"),
    response=("", "s", "excess of the response delay over the model"),
    lift=("", "1/m", "thrust gained per square of the speed across the rotors"),
    wind=(XYZ, "m/s", "wind, world NED"),
)
P, V, A, Z, THRUST, DRAG, RESPONSE, LIFT, WIND = (field.at for field in LOOP.values())
UNKNOWN = slice(THRUST.start, WIND.stop)


# Closed-loop response of `mpcc`, fitted to 40 flights of VQ1 in unknown worlds, see `benchmarks/risk_calibration.py`.
BANDWIDTH, DAMPING = 5.0, 0.9  # rad/s, -
LEARN_S = 0.05  # s, time constant of the compensation of an unknown acceleration
SLOW_S = 0.5  # s, time constant with which a vehicle short of thrust slows down
# m, path error at gates without disturbances, since the controller trades distance for progress: 0.026 rms measured on VQ1
# in the world `as_believed`; 0.053 on the Split-S with `swift`, whose motors, battery and air the planner does not model.
LINE_M, LINE_GREY_M = 0.02, 0.05


def line_covariance(vehicle: Vehicle) -> Array:
    """Return the covariance (3, 3), m^2, of the path error at gates without disturbances."""
    return np.asarray((LINE_GREY_M if vehicle.grey_box else LINE_M) ** 2 * np.eye(3))


def tracking_covariance(motion: Motion, estimate: EstimateCovariance, task: Task, doubt: Doubt) -> Array:
    """Propagate the closed loop along a motion, driven by the corrections of the estimate.

    Returns:
        (M, 6, 6) covariance of the estimated position, m, and velocity, m/s, about the plan, NED, without `line_covariance`.
    """
    steps, cov = transitions(motion, task.vehicle), np.zeros((LOOP.size, LOOP.size))
    sigma = np.zeros(LOOP.size)
    sigma[THRUST], sigma[DRAG], sigma[RESPONSE] = doubt.thrust, doubt.drag, doubt.response_s
    sigma[LIFT] = doubt.lift_1_m if task.vehicle.aero else 0.0  # the planner's models omit lift
    sigma[WIND] = (doubt.wind_m_s, doubt.wind_m_s, 0.0)
    cov = np.diag(sigma**2)
    found, fed = np.empty((len(motion.t), 6, 6)), slice(0, V.stop)
    for k in range(len(motion.t)):
        if k:
            cov = steps[k - 1] @ cov @ steps[k - 1].T
        cov[fed, fed] += estimate.moved[k]
        found[k] = cov[fed, fed]
    return found


def shortfalls(motion: Motion, vehicle: Vehicle, doubt: Doubt) -> Array:
    """Return one-sided displacements (M, 2, 3), m, world NED, by one standard deviation less thrust, or more drag, of which the
    rotors lack the part that balances it; the opposite has no effect."""
    steps, thrust = transitions(motion, vehicle, SLOW_S), motion.thrust_w
    resisted = sensitivities(motion, vehicle)[:, :, 1]
    share = np.clip(-(resisted * thrust).sum(axis=1) / np.maximum((thrust**2).sum(axis=1), 1e-6), 0.0, 1.0)
    missing = -thrust[:, None] * np.stack([np.full(len(share), doubt.thrust), doubt.drag * share], axis=1)[..., None]
    x, found = np.zeros((Z.stop, 2)), np.zeros((len(motion.t), 2, 3))
    for k, dt in enumerate(np.diff(motion.t)):
        x = steps[k][: Z.stop, : Z.stop] @ x
        x[V] += dt * missing[k].T
        x[Z] += dt / SLOW_S * missing[k].T
        found[k + 1] = x[P].T
    return found


def sensitivities(motion: Motion, vehicle: Vehicle) -> Array:
    """Return the derivatives (M, 3, U) of the acceleration, m/s^2, with respect to the U parameters in `UNKNOWN`."""
    n, v, quadratic = len(motion.t), motion.v_w, vehicle.drag_quadratic_1_m
    speed = np.linalg.norm(v, axis=1)[:, None]
    linear = motion.R_wb * np.array(vehicle.drag_linear_1_s) @ np.swapaxes(motion.R_wb, 1, 2)
    resisted = -quadratic * speed * v - (linear @ v[..., None])[..., 0]
    by_air = quadratic * (
        speed[..., None] * np.eye(3) + v[:, :, None] * v[:, None] / np.maximum(speed, 1e-3)[..., None]
    )
    dt = np.diff(motion.t)[:, None]
    jerk = np.diff(motion.thrust_w, axis=0, append=motion.thrust_w[-1:]) / np.append(dt, dt[-1:], axis=0)
    s = np.zeros((n, 3, UNKNOWN.stop - UNKNOWN.start))
    v_b = (v[:, None] @ motion.R_wb)[:, 0]
    lifted = -(v_b[:, :2] ** 2).sum(axis=1)[:, None] * motion.R_wb[:, :, 2]
    s[:, :, 0], s[:, :, 1], s[:, :, 2], s[:, :, 3], s[:, :, 4:] = (
        motion.thrust_w,
        resisted,
        -jerk,
        lifted,
        by_air + linear,
    )
    return s


def transitions(motion: Motion, vehicle: Vehicle, learn_s: float = LEARN_S) -> Array:
    """Return the transition matrices (M - 1, n, n) of `LOOP` from sample to sample."""
    dt, lag = np.diff(motion.t)[:, None, None], vehicle.command_delay_s + max(vehicle.rate_lag_s[:2])
    s, w = sensitivities(motion, vehicle)[:-1], BANDWIDTH
    F = np.zeros((len(dt), LOOP.size, LOOP.size))
    F[:, P, V], F[:, V, A], F[:, V, Z] = np.eye(3), np.eye(3), -np.eye(3)
    F[:, A, P], F[:, A, V], F[:, A, A] = (gain * np.eye(3) / lag for gain in (-(w**2), -2 * DAMPING * w, -1.0))
    F[:, Z, Z] = -np.eye(3) / learn_s
    F[:, V, UNKNOWN], F[:, Z, UNKNOWN] = s, s / learn_s
    step = F * dt
    return np.asarray(np.eye(LOOP.size) + step + 0.5 * step @ step)
