"""SIMD layout of several vehicles, entry k of vehicle i of n at index k n + i of a flat array, and Runge-Kutta steps of tuples.

A single vehicle is i = 0, n = 1. States are tuples of scalars, which stay in registers where arrays would be allocated.
"""

import math

from gate_racer.sim.physics.jit import inlined

LANES = 32  # vehicles per block


@inlined
def three(x, k, i, n):
    """Return entries k to k + 2 of vehicle i of n."""
    return x[k * n + i], x[(k + 1) * n + i], x[(k + 2) * n + i]


@inlined
def four(x, k, i, n):
    """Return entries k to k + 3 of vehicle i of n."""
    return x[k * n + i], x[(k + 1) * n + i], x[(k + 2) * n + i], x[(k + 3) * n + i]


@inlined
def rigid(x, i, n):
    """Return pose and motion (13) of vehicle i of n."""
    return (*three(x, 0, i, n), *four(x, 3, i, n), *three(x, 7, i, n), *three(x, 10, i, n))


@inlined
def put(x, values, first, i, n):
    """Store values in the entries from `first` on of vehicle i of n."""
    for k in range(len(values)):
        x[(first + k) * n + i] = values[k]


@inlined
def add_scaled_rigid(x, h, k):
    """Return x + h k of pose and motion (13), scalar by scalar."""
    return (
        x[0] + h * k[0],
        x[1] + h * k[1],
        x[2] + h * k[2],
        x[3] + h * k[3],
        x[4] + h * k[4],
        x[5] + h * k[5],
        x[6] + h * k[6],
        x[7] + h * k[7],
        x[8] + h * k[8],
        x[9] + h * k[9],
        x[10] + h * k[10],
        x[11] + h * k[11],
        x[12] + h * k[12],
    )


@inlined
def add_scaled_with_four(x, h, k):
    """Return x + h k of pose, motion and four states of motors or rotors (17), scalar by scalar."""
    return (*add_scaled_rigid(x, h, k), x[13] + h * k[13], x[14] + h * k[14], x[15] + h * k[15], x[16] + h * k[16])


@inlined
def runge_kutta(slope, add_scaled, begin, x, u, residual, par, dt):
    """Return `begin` + dt (k1 + 2 k2 + 2 k3 + k4) / 6 of a step from x at constant u; add_scaled (x, h, k) returns x + h k."""
    k1 = slope(x, u, residual, par)
    k2 = slope(add_scaled(x, dt / 2, k1), u, residual, par)
    k3 = slope(add_scaled(x, dt / 2, k2), u, residual, par)
    k4 = slope(add_scaled(x, dt, k3), u, residual, par)
    half = add_scaled(add_scaled(begin, dt / 6, k1), dt / 3, k2)
    return add_scaled(add_scaled(half, dt / 3, k3), dt / 6, k4)


@inlined
def with_unit_attitude(x):
    norm = math.sqrt(x[3] ** 2 + x[4] ** 2 + x[5] ** 2 + x[6] ** 2)
    return (*x[:3], x[3] / norm, x[4] / norm, x[5] / norm, x[6] / norm, *x[7:])


@inlined
def gather(x, begin, end, block):
    """Copy rows [begin, end) of x (N, n) into a block (n LANES,); the last row is repeated to fill it."""
    for i in range(LANES):
        row = x[min(begin + i, end - 1)]
        for k in range(x.shape[1]):
            block[k * LANES + i] = row[k]


@inlined
def scatter(block, i, row):
    """Copy vehicle i of a block (n LANES,) into a row (n,)."""
    for k in range(len(row)):
        row[k] = block[k * LANES + i]
