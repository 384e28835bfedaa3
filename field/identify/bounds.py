"""95 % bounds of estimates by regression, honest where residuals are correlated and where none shows the error.

Residuals of logs are correlated over seconds, since the velocity and the attitude in them are estimates: white-noise formulas
promise too much. The scores of whole blocks are summed instead (the sandwich of Liang and Zeger, Biometrika 73, 1986), for
several lengths of block, of which the widest bound holds. Scales of the sensors fit any data and are added as known by class.
"""

import numpy as np

from gate_racer.vehicle.rotation import Array

BLOCKS_S = (1.0, 2.0, 4.0)  # s, lengths of a block: errors of estimated velocities last about as long (chosen)
LOG_S = 1e6  # s, a block of which holds a whole log: what a model misses lasts as long as the flight
FEWEST, FEWEST_LOGS = 3, 6  # blocks, and logs, from which a covariance can be estimated
QUANTILE = 0.975  # -, two-sided 95 %
# Standard deviations of what no residual shows: of a consumer IMU's scales, -, as in `sim/worlds/unknown.yaml`; of the scale of
# lengths, and so of velocities, in a flight without a map, - (measured: drag errs by 1.5 % rms in five explorations of VQ1); of
# the accelerometer's bias along the thrust, m/s^2, as by 0.3 deg between pad and body axes.
FORCE_SCALE, RATE_SCALE, LENGTH_SCALE, FORCE_BIAS = 0.005, 0.005, 0.008, 0.05
LOG_SCALE = FORCE_SCALE  # of the thrust in one log against another: temperature and offset of the same accelerometer


def half_widths(J: Array, residual: Array, t: Array, prior: Array | None = None) -> Array:
    """Return the 95 % half widths (K,) by the residuals of a least-squares fit.

    Args:
        J: Jacobian (N, K) of the prediction, nonlinear parameters included, weighted as the residuals.
        residual: (N,).
        t: s, time of each residual (N,); those of different logs are far apart.
        prior: further rows (P, K) of the fit without residuals of their own.
    """
    from scipy.special import stdtrit  # slow to load

    information = J.T @ J if prior is None else J.T @ J + prior.T @ prior
    inverse, widths = np.linalg.pinv(information), [np.full(J.shape[1], np.inf)]
    for length in (*BLOCKS_S, LOG_S):
        _, block = np.unique(np.floor(t / length), return_inverse=True)
        n = int(block.max()) + 1
        if n < (FEWEST if length < LOG_S else FEWEST_LOGS):
            continue
        scores = np.zeros((n, J.shape[1]))
        np.add.at(scores, block, J * residual[:, None])
        variance = np.diag(inverse @ scores.T @ scores @ inverse) * n / (n - 1)
        widths.append(float(stdtrit(n - 1, QUANTILE)) * np.sqrt(variance))
    return np.max(widths[1:], axis=0) if len(widths) > 1 else widths[0]


def white_widths(J: Array, residual: Array, prior: Array) -> Array:
    """Return the 95 % half widths (K,) that white residuals would allow; arguments as of `half_widths`."""
    from scipy.special import ndtri  # slow to load

    inverse = np.linalg.pinv(J.T @ J + prior.T @ prior)
    return float(ndtri(QUANTILE)) * np.sqrt(np.diag(inverse) * float(np.mean(residual**2)))


def widened(half: Array, sigma: Array) -> Array:
    """Return half widths (K,) with independent errors of standard deviation `sigma` (K,) in addition."""
    from scipy.special import ndtri  # slow to load

    return np.hypot(half, float(ndtri(QUANTILE)) * sigma)
