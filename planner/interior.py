"""Interior-point method of the fast planner, compiled: a Newton step is two Riccati sweeps along the course.

Multiple shooting of the `rates` model. Per interval k a state x_k = (p, q, v, w, c), a held input u_k, and per leg a duration T:

    minimise  sum_l T_l + WEIGHT |u_w|^2 dt,   x_k+1 = F(x_k, u_k, T_l share_k),   g(x_k, u_k, T_l) = s >= 0,   e(x_k) = 0

Tangents are local, (dp, dtheta of the body, dv, dw, dc), so that the quaternion needs no constraint. T is a state that is
constant within a leg and free where one begins. Slacks and multipliers are eliminated (Waechter and Biegler, 2006), equalities
are held by a proximal method of multipliers. The Hessian is that of the Hamiltonian and of the limits of torque, the rest is
left out; without it, and regularised, where a block of the inputs is not positive definite.

F: w and c follow their lags exactly, the attitude follows by a Magnus expansion of fourth order, v and p by Runge-Kutta, in parts
of an interval. Rows of g are of a few kinds, with parameters, at the end of a part.

Arrays are contiguous; their types are in the signature of `minimise`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from math import cos, exp, inf, log, sin, sqrt
from typing import Any

import numpy as np

from gate_racer.common.compiled import compiled
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

NX, NZ, U = 13, 18, 14  # tangent of a state, that of a stage with T and input, index of the input
PARTS = 8  # most parts of an interval
NP = 18  # parameters of a row
# Kinds of rows: of a state, and, from INPUT on, of a stage.
LINEAR, EDGE, BALL, SPEED, BOX, RIM, STILL, LEVEL, LEAN, VIEW, INPUT, TURN, SLEW = range(13)
TURN_S = 0.03  # s, which scales rows of angular acceleration
WEIGHT = 1e-3  # s^2/rad^2, weight of commanded rates, which determines yaw
STIFF = 1e4  # weight of equalities
MU, MU_NEARBY, MU_LEAST = 1e-2, 1e-3, 1e-5  # s, parameter of the barrier: at first, from a nearby solution, at last
SLACK_LEAST, INSIDE = 0.05, 0.99  # least initial slack; largest share of the way to a bound in one step
TURN_MOST, FALL_MOST, RISE_MOST = 0.8, 0.5, 0.7  # rad, -, largest changes of an attitude and of a duration in one step
REG, REG_LEAST, REG_MOST = 1e-2, 1e-7, 100.0  # multiples of SCALES on the Hessian's diagonal
SCALES = np.array([0.01] * 3 + [1.0] * 3 + [0.01] * 6 + [1e-3, 1.0] + [0.01] * 3 + [1e-3])
TRIALS, PRICE = 5, 2.0  # steps of a line search; s, price of a violation
TUBE = 0.02  # violations per interval below which they do not count in it, which would cut the step (Maratos)
# The search settles where T changes by less than a share over some iterations; then steps held near close the last defects.
SETTLED_IN, SETTLED, NEARBY, HELD, HELD_MOST = 3, 2e-3, 0.2, 1.0, 1e3
DEFECT, BROKEN = 4e-6, 5e-5  # tolerances of intervals and of rows


@compiled(error_model="numpy")
def turned(q: Array, phi: Array, out: Array) -> None:
    """Write the quaternion q, turned by the body's rotation vector phi, to `out`."""
    angle2 = phi[0] * phi[0] + phi[1] * phi[1] + phi[2] * phi[2]
    half = 0.5 * sqrt(angle2)
    k = 0.5 - angle2 / 48 if angle2 < 1e-8 else sin(half) / (2 * half)
    a, b, c, d = cos(half), k * phi[0], k * phi[1], k * phi[2]
    w, x, y, z = q[0], q[1], q[2], q[3]
    out[0] = w * a - x * b - y * c - z * d
    out[1] = w * b + x * a + y * d - z * c
    out[2] = w * c - x * d + y * a + z * b
    out[3] = w * d + x * c - y * b + z * a


@compiled(error_model="numpy")
def axes(q: Array, R: Array) -> None:
    """Write the rotation matrix of q to R (3, 3)."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    R[0, 0], R[0, 1], R[0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    R[1, 0], R[1, 1], R[1, 2] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    R[2, 0], R[2, 1], R[2, 2] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)


@compiled(error_model="numpy")
def slope(R: Array, c: float, v: Array, par: Array, out: Array) -> None:
    """Write dv/dt to `out`; par: lags of w (3) and c, linear drag (3), quadratic drag."""
    speed = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + 1e-8)
    for i in range(3):
        out[i] = -c * R[i, 2] - par[7] * speed * v[i]
    for j in range(3):
        along = par[4 + j] * (R[0, j] * v[0] + R[1, j] * v[1] + R[2, j] * v[2])
        for i in range(3):
            out[i] -= along * R[i, j]
    out[2] += GRAVITY


@compiled(error_model="numpy")
def swing(w0: Array, wm: Array, w1: Array, t: float, out: Array) -> None:
    """Write the rotation vector over t of body rates w0, wm and w1 at its beginning, middle and end to `out`."""
    for i in range(3):
        a, b = (i + 1) % 3, (i + 2) % 3
        out[i] = t / 6 * (w0[i] + 4 * wm[i] + w1[i]) + t * t / 12 * (w0[a] * w1[b] - w0[b] * w1[a])


@compiled(error_model="numpy")
def flow(x: Array, u: Array, h: float, n: int, par: Array, way: Array) -> None:
    """Write the states (n + 1, 14) after 0 to n parts of an interval of h to `way`."""
    w = np.empty((5, 3))
    c = np.empty(3)
    phi, qm, R = np.empty(3), np.empty(4), np.empty((3, 3, 3))
    k, v = np.empty((4, 3)), np.empty(3)
    way[0] = x
    d = h / n
    for j in range(n):
        a, b = way[j], way[j + 1]
        for m in range(5):
            t = (j + m / 4) * d
            for i in range(3):
                w[m, i] = u[i] + (x[10 + i] - u[i]) * exp(-t / par[i])
        for m in range(3):
            c[m] = u[3] + (x[13] - u[3]) * exp(-(j + m / 2) * d / par[3])
        swing(w[0], w[1], w[2], d / 2, phi)
        turned(a[3:7], phi, qm)
        swing(w[2], w[3], w[4], d / 2, phi)
        turned(qm, phi, b[3:7])
        axes(a[3:7], R[0])
        axes(qm, R[1])
        axes(b[3:7], R[2])
        v[:] = a[7:10]
        slope(R[0], c[0], v, par, k[0])
        for i in range(3):
            v[i] = a[7 + i] + d / 2 * k[0, i]
        slope(R[1], c[1], v, par, k[1])
        for i in range(3):
            v[i] = a[7 + i] + d / 2 * k[1, i]
        slope(R[1], c[1], v, par, k[2])
        for i in range(3):
            v[i] = a[7 + i] + d * k[2, i]
        slope(R[2], c[2], v, par, k[3])
        for i in range(3):
            b[i] = a[i] + d * a[7 + i] + d * d / 6 * (k[0, i] + k[1, i] + k[2, i])
            b[7 + i] = a[7 + i] + d / 6 * (k[0, i] + 2 * k[1, i] + 2 * k[2, i] + k[3, i])
            b[10 + i] = w[4, i]
        b[13] = c[2]


@compiled(error_model="numpy")
def force(R: Array, c: float, v: Array, par: Array, G: Array, D: Array) -> None:
    """Write d(dv/dt)/dtheta to G and d(dv/dt)/dv to D (3, 3)."""
    speed = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + 1e-8)
    b0 = R[0, 0] * v[0] + R[1, 0] * v[1] + R[2, 0] * v[2]
    b1 = R[0, 1] * v[0] + R[1, 1] * v[1] + R[2, 1] * v[2]
    b2 = R[0, 2] * v[0] + R[1, 2] * v[1] + R[2, 2] * v[2]
    l0, l1, l2 = par[4], par[5], par[6]
    for i in range(3):
        r0, r1, r2 = R[i, 0], R[i, 1], R[i, 2]
        # R ([l v_b]x - l [v_b]x) of the linear drag, and c R [e_z]x of the thrust
        G[i, 0] = c * r1 + r1 * (l2 - l1) * b2 + r2 * (l2 - l1) * b1
        G[i, 1] = -c * r0 + r0 * (l0 - l2) * b2 + r2 * (l0 - l2) * b0
        G[i, 2] = r0 * (l1 - l0) * b1 + r1 * (l1 - l0) * b0
        for j in range(3):
            D[i, j] = -(r0 * R[j, 0] * l0 + r1 * R[j, 1] * l1 + r2 * R[j, 2] * l2) - par[7] * v[i] * v[j] / speed
        D[i, i] -= par[7] * speed


@compiled(error_model="numpy")
def spread(x: Array, u: Array, h: float, share: float, n: int, par: Array, way: Array, S: Array) -> None:
    """Write the derivatives (n + 1, 13, 18) of the tangents of `way` by those of the stage (x, T, u) to S."""
    d = h / n
    R = np.empty((3, 3))
    G, D = np.empty((3, 3)), np.empty((3, 3))
    B = np.empty((3, 3, NZ))  # derivatives of dv/dt without the part by v, at beginning, middle and end
    M = np.empty((3, NZ))
    f = np.empty(3)
    q, phi, vm = np.empty(4), np.empty(3), np.empty(3)
    S[0] = 0.0
    for i in range(NX):
        S[0, i, i] = 1.0
    for j in range(n):
        a, b = way[j], way[j + 1]
        A, Z = S[j], S[j + 1]
        Z[:] = 0.0
        t0, t1 = j * d, (j + 1) * d
        for i in range(3):
            phi[i] = 0.0
            lag = par[i]
            e0, e1 = exp(-t0 / lag), exp(-t1 / lag)
            by_w = lag * (e0 - e1)
            phi[i] = u[i] * d + (x[10 + i] - u[i]) * by_w
            Z[9 + i, 9 + i], Z[9 + i, U + i] = e1, 1 - e1
            for m in range(NZ):
                M[i, m] = 0.0
            M[i, 9 + i], M[i, U + i] = by_w, d - by_w
        e1 = exp(-t1 / par[3])
        Z[12, 12], Z[12, U + 3] = e1, 1 - e1
        # dtheta' = exp(-phi) dtheta + (1 - [phi]x / 2) dphi, to second order about the middle: (1 - [phi]x)
        turned(np.array([1.0, 0.0, 0.0, 0.0]), phi, q)
        axes(q, R)
        for m in range(3, NZ):
            if m == 13:
                continue
            t_0, t_1, t_2 = A[3, m], A[4, m], A[5, m]
            o_0, o_1, o_2 = M[0, m], M[1, m], M[2, m]
            Z[3, m] = R[0, 0] * t_0 + R[1, 0] * t_1 + R[2, 0] * t_2 + o_0 - 0.5 * (phi[1] * o_2 - phi[2] * o_1)
            Z[4, m] = R[0, 1] * t_0 + R[1, 1] * t_1 + R[2, 1] * t_2 + o_1 - 0.5 * (phi[2] * o_0 - phi[0] * o_2)
            Z[5, m] = R[0, 2] * t_0 + R[1, 2] * t_1 + R[2, 2] * t_2 + o_2 - 0.5 * (phi[0] * o_1 - phi[1] * o_0)
        for part in range(2):
            c, by_c = (a[13], A) if part == 0 else (b[13], Z)
            state = a if part == 0 else b
            axes(state[3:7], R)
            force(R, c, state[7:10], par, G, D)
            for i in range(3):
                for m in range(3, NZ):
                    B[2 * part, i, m] = (
                        G[i, 0] * by_c[3, m] + G[i, 1] * by_c[4, m] + G[i, 2] * by_c[5, m] - R[i, 2] * by_c[12, m]
                    )
        for i in range(3):
            vm[i] = 0.5 * (a[7 + i] + b[7 + i])
        force(R, 0.0, vm, par, G, D)
        for m in range(3, NZ):
            if m == 13:
                continue
            for i in range(3):
                f[i] = D[i, 0] * A[6, m] + D[i, 1] * A[7, m] + D[i, 2] * A[8, m]
            for i in range(3):
                late = D[i, 0] * f[0] + D[i, 1] * f[1] + D[i, 2] * f[2]
                r0, r1 = B[0, i, m], B[2, i, m]
                Z[6 + i, m] = A[6 + i, m] + d * (f[i] + 0.5 * (r0 + r1)) + 0.5 * d * d * late
                Z[i, m] = A[i, m] + d * A[6 + i, m] + d * d * (0.5 * f[i] + r0 / 3 + r1 / 6)
        for i in range(3):
            Z[i, i] = 1.0
        # by T: the state at the share (j + 1) / n moves along its own derivative
        rate = share * (j + 1) / n
        axes(b[3:7], R)
        slope(R, b[13], b[7:10], par, f)
        for i in range(3):
            Z[i, 13] = rate * b[7 + i]
            Z[3 + i, 13] = rate * b[10 + i]
            Z[6 + i, 13] = rate * f[i]
            Z[9 + i, 13] = rate * (u[i] - b[10 + i]) / par[i]
        Z[12, 13] = rate * (u[3] - b[13]) / par[3]


@compiled(error_model="numpy")
def state_row(kind, given, x, G):
    """Return the value of a row of the state x (14,), and write its derivatives by the tangent of x to G (13,)."""
    G[:] = 0.0
    if kind == LINEAR:
        value = given[6]
        for i in range(3):
            value += given[i] * x[i] + given[3 + i] * x[7 + i]
            G[i], G[6 + i] = given[i], given[3 + i]
        return value
    if kind == EDGE:  # axis, normal, centre, h, end, keep
        inside, along, out = given[9], 0.0, 0.0
        for i in range(3):
            inside -= given[3 + i] * (x[i] - given[6 + i])
            along += given[i] * x[7 + i]
            out += given[3 + i] * x[7 + i]
        most = max(along, 0.5)
        ratio = out / most
        root = sqrt(1 + ratio * ratio)
        by_ratio = -given[10] - given[11] * ratio / root
        for i in range(3):
            G[i] = -given[3 + i]
            G[6 + i] = by_ratio * (given[3 + i] - (ratio * given[i] if along > 0.5 else 0.0)) / most
        return inside - given[10] * ratio - given[11] * root
    if kind == BALL:
        value = given[3] * given[3]
        for i in range(3):
            off = x[i] - given[i]
            value -= off * off
            G[i] = -off / given[3]
        return value / (2 * given[3])
    if kind == SPEED:
        value = given[0] * given[0]
        for i in range(3):
            value -= x[7 + i] * x[7 + i]
            G[6 + i] = -x[7 + i] / given[0]
        return value / (2 * given[0])
    if kind == BOX:  # centre, axes by column, half, keep
        far, best, face, sign = 0.0, -inf, 0, 1.0
        for j in range(3):
            local = 0.0
            for i in range(3):
                local += given[3 + 3 * j + i] * (x[i] - given[i])
            off = abs(local) - given[12 + j]
            if off > best:
                best, face, sign = off, j, 1.0 if local > 0 else -1.0
            if off > 0:
                far += off * off
                for i in range(3):
                    G[i] += off * (1.0 if local > 0 else -1.0) * given[3 + 3 * j + i]
        if far > 0:
            far = sqrt(far)
            for i in range(3):
                G[i] /= far
            return far - given[15]
        for i in range(3):
            G[i] = sign * given[3 + 3 * face + i]
        return best - given[15]
    if kind == RIM:  # axis, normal, centre, h, half depth, keep
        inside, deep = given[9], 0.0
        for i in range(3):
            inside -= given[3 + i] * (x[i] - given[6 + i])
            deep += given[i] * (x[i] - given[6 + i])
        off = max(abs(deep) - given[10], 0.0)
        far = sqrt(off * off + inside * inside + 1e-12)
        side = 1.0 if deep > 0 else -1.0
        for i in range(3):
            G[i] = (off * side * given[i] - inside * given[3 + i]) / far
        return far - given[11]
    if kind == STILL:
        G[9 + int(given[0])] = 1.0
        return x[10 + int(given[0])]
    if kind in (LEVEL, LEAN):
        w, a, b, c = x[3], x[4], x[5], x[6]
        if kind == LEVEL:
            if given[0] == 0:
                G[3], G[4] = -2 * (a * b - w * c), 1 - 2 * (b * b + c * c)
                return 2 * (a * c + w * b)
            G[3], G[4] = -(1 - 2 * (a * a + c * c)), 2 * (a * b + w * c)
            return 2 * (b * c - w * a)
        up = 1 - 2 * (a * a + b * b)
        room = (given[0] - x[2]) / given[1]
        G[3], G[4], G[2] = -2 * up * 2 * (b * c + w * a), 2 * up * 2 * (a * c - w * b), -2 * room / given[1]
        return room * room - 1 + up * up
    if (
        kind == VIEW
    ):  # target, camera's position, direction in the body; scale: nonnegative for n.(R'(t - p) - p_bc) >= 0
        w, a, b, c = x[3], x[4], x[5], x[6]
        r = np.empty((3, 3))
        axes(x[3:7], r)
        value = 0.0
        e = np.empty(3)
        for j in range(3):
            e[j] = 0.0
            for i in range(3):
                e[j] += r[i, j] * (given[i] - x[i])
            value += given[6 + j] * (e[j] - given[3 + j])
        for i in range(3):
            G[i] = -given[9] * (r[i, 0] * given[6] + r[i, 1] * given[7] + r[i, 2] * given[8])
        # d e = e x dtheta: n . (e x dtheta) = dtheta . (n x e)
        G[3] = given[9] * (given[7] * e[2] - given[8] * e[1])
        G[4] = given[9] * (given[8] * e[0] - given[6] * e[2])
        G[5] = given[9] * (given[6] * e[1] - given[7] * e[0])
        return given[9] * value
    return inf  # no such kind


@compiled(error_model="numpy")
def stage_row(kind, given, first, u, h, share, par, D):
    """Return the value of a row of a stage, and write its derivatives by (x_k, T, u_k) to D (18,); x_k is `first`."""
    D[:] = 0.0
    if kind == INPUT:  # number, sign over range, bound
        i = int(given[0])
        D[U + i] = given[1]
        return given[1] * (u[i] - given[2])
    if kind == TURN:  # signs over slew_max, share at no thrust, fall by thrust, end
        ec = exp(-h / par[3])
        c, by_e = (first[13], 0.0) if given[5] == 0 else (u[3] + (first[13] - u[3]) * ec, 1.0)
        room = given[3] - given[4] * c
        D[12] = -given[4] * (ec if by_e else 1.0) * h
        D[U + 3] = -given[4] * (1 - ec) * h * by_e
        by_h = room - given[4] * h * by_e * (u[3] - first[13]) * ec / par[3]
        value = room * h
        for i in range(3):
            e = exp(-h / par[i])
            value -= given[i] * (1 - e) * (u[i] - first[10 + i])
            D[9 + i] = given[i] * (1 - e)
            D[U + i] = -given[i] * (1 - e)
            by_h -= given[i] * (u[i] - first[10 + i]) * e / par[i]
        D[13] = by_h * share
        for i in range(9, NZ):
            D[i] /= TURN_S
        return value / TURN_S
    # SLEW: sign over limit
    e = exp(-h / par[3])
    mean = (1 - e) / h
    D[12], D[U + 3] = given[0] * mean, -given[0] * mean
    D[13] = -given[0] * (u[3] - first[13]) * (e / par[3] - mean) / h * share
    return 1 - given[0] * (u[3] - first[13]) * mean


@compiled(error_model="numpy")
def apart(a: Array, b: Array, out: Array) -> None:
    """Write the tangent (13,) from state b to state a to `out`."""
    for i in range(3):
        out[i], out[6 + i], out[9 + i] = a[i] - b[i], a[7 + i] - b[7 + i], a[10 + i] - b[10 + i]
    out[12] = a[13] - b[13]
    w = b[3] * a[3] + b[4] * a[4] + b[5] * a[5] + b[6] * a[6]
    x = b[3] * a[4] - b[4] * a[3] - b[5] * a[6] + b[6] * a[5]
    y = b[3] * a[5] + b[4] * a[6] - b[5] * a[3] - b[6] * a[4]
    z = b[3] * a[6] - b[4] * a[5] + b[5] * a[4] - b[6] * a[3]
    size = sqrt(x * x + y * y + z * z)
    sign = -1.0 if w < 0 else 1.0
    k = 2 * np.arctan2(size, sign * w) / size * sign if size > 1e-10 else 2.0 * sign
    out[3], out[4], out[5] = k * x, k * y, k * z


@compiled(error_model="numpy")
def moved(x: Array, dx: Array, alpha: float, out: Array) -> None:
    """Write the state x, moved by alpha dx (13,), to `out`."""
    for i in range(3):
        out[i], out[7 + i], out[10 + i] = (
            x[i] + alpha * dx[i],
            x[7 + i] + alpha * dx[6 + i],
            x[10 + i] + alpha * dx[9 + i],
        )
    out[13] = x[13] + alpha * dx[12]
    turned(x[3:7], alpha * dx[3:6], out[3:7])
    size = sqrt(out[3] * out[3] + out[4] * out[4] + out[5] * out[5] + out[6] * out[6])
    for i in range(3, 7):
        out[i] /= size


@compiled(error_model="numpy")
def values(X, V, T, legs, shares, parts, par, begins, kinds, at, given, ways, d, g):
    """Evaluate paths, defects d (N, 13) and rows g (R,)."""
    N = len(legs)
    G, D, h = np.empty(NX), np.empty(NZ), 1.0
    for k in range(N + 1):
        if k < N:
            h = T[legs[k]] * shares[k]
            flow(X[k], V[k], h, parts[k], par, ways[k])
            apart(ways[k, parts[k]], X[k + 1], d[k])
        for r in range(begins[k], begins[k + 1]):
            if kinds[r] >= INPUT:
                g[r] = stage_row(kinds[r], given[r], X[k], V[k], h, shares[k], par, D)
            else:
                g[r] = state_row(kinds[r], given[r], X[k] if at[r] == 0 else ways[k, at[r]], G)


@compiled(error_model="numpy")
def curvature(H, x, u, h, share, par, lam):
    """Add the Hessian of the Hamiltonian, h lam . f, with the costates `lam` (13,), to that of a stage (18, 18)."""
    R = np.empty((3, 3))
    axes(x[3:7], R)
    c = x[13]
    b = np.empty(3)
    for j in range(3):
        b[j] = R[0, j] * lam[6] + R[1, j] * lam[7] + R[2, j] * lam[8]
    for i in range(3):  # -c b . exp(theta) e_z
        for j in range(3):
            if j == 2:
                H[3 + i, 5] -= 0.5 * h * c * b[i]
            if i == 2:
                H[5, 3 + j] -= 0.5 * h * c * b[j]
        H[3 + i, 3 + i] += h * c * b[2]
    # theta with c: -(e_z x b) dc
    H[3, 12] += h * b[1]
    H[4, 12] -= h * b[0]
    H[12, 3] += h * b[1]
    H[12, 4] -= h * b[0]
    # quadratic drag
    v = x[7:10]
    speed = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + 1.0)
    lv = (lam[6] * v[0] + lam[7] * v[1] + lam[8] * v[2]) / speed
    for i in range(3):
        for j in range(3):
            H[6 + i, 6 + j] -= h * par[7] * (lam[6 + i] * v[j] + v[i] * lam[6 + j] - lv * v[i] * v[j] / speed) / speed
        H[6 + i, 6 + i] -= h * par[7] * lv
    # theta with w: -h/2 [lam_theta]x
    for i in range(3):
        m, n = (i + 1) % 3, (i + 2) % 3
        H[3 + m, 9 + n] += 0.5 * h * lam[3 + i]
        H[9 + n, 3 + m] += 0.5 * h * lam[3 + i]
        H[3 + n, 9 + m] -= 0.5 * h * lam[3 + i]
        H[9 + m, 3 + n] -= 0.5 * h * lam[3 + i]
    # T with the state
    G, D = np.empty((3, 3)), np.empty((3, 3))
    force(R, c, v, par, G, D)
    for j in range(3):
        t = share * (lam[6] * G[0, j] + lam[7] * G[1, j] + lam[8] * G[2, j])
        H[13, 3 + j] += t
        H[3 + j, 13] += t
        t = share * (lam[j] + lam[6] * D[0, j] + lam[7] * D[1, j] + lam[8] * D[2, j])
        H[13, 6 + j] += t
        H[6 + j, 13] += t
        e = exp(-h / par[j])
        t = share * lam[3 + j]
        H[13, 9 + j] += t * e
        H[9 + j, 13] += t * e
        H[13, U + j] += t * (1 - e)
        H[U + j, 13] += t * (1 - e)
        t = share * e / par[j] * lam[9 + j]
        H[13, 9 + j] -= t
        H[9 + j, 13] -= t
        H[13, U + j] += t
        H[U + j, 13] += t
        H[13, 13] += share * share * e / par[j] * (u[j] - x[10 + j]) * (lam[3 + j] - lam[9 + j] / par[j])
    e = exp(-h / par[3])
    t = share * e / par[3] * lam[12]
    H[13, 12] -= t
    H[12, 13] -= t
    H[13, U + 3] += t
    H[U + 3, 13] += t
    H[13, 13] -= share * share * e / par[3] ** 2 * (u[3] - c) * lam[12]
    t = -share * b[2]
    H[13, 12] += t * e
    H[12, 13] += t * e
    H[13, U + 3] += t * (1 - e)
    H[U + 3, 13] += t * (1 - e)


@compiled(error_model="numpy")
def bend(H, kind, given, x, u, h, share, par, z):
    """Add -z times the Hessian of a row of a stage to H (18, 18), for the kinds of rows where it matters."""
    if kind == SPEED:
        for i in range(6, 9):
            H[i, i] += z / given[0]
    elif kind == BALL:
        for i in range(3):
            H[i, i] += z / given[3]
    elif kind == TURN:
        a = z * share / TURN_S
        for i in range(3):
            e = exp(-h / par[i]) / par[i]
            t = a * given[i] * e
            H[13, 9 + i] -= t
            H[9 + i, 13] -= t
            H[13, U + i] += t
            H[U + i, 13] += t
            H[13, 13] -= a * share * given[i] * (u[i] - x[10 + i]) * e / par[i]
        if given[5] == 0:
            by_c, by_u = given[4], 0.0
        else:
            e, r = exp(-h / par[3]), h / par[3]
            by_c, by_u = given[4] * e * (1 - r), given[4] * (1 - e + e * r)
            H[13, 13] += a * share * given[4] * (u[3] - x[13]) * e / par[3] * (2 - r)
        H[13, 12] += a * by_c
        H[12, 13] += a * by_c
        H[13, U + 3] += a * by_u
        H[U + 3, 13] += a * by_u


@compiled(error_model="numpy", fastmath=True)
def backward(H0, h0, J, d, starts, reg, P, p, K, k0, KT, kT):
    """Riccati sweep; returns whether every block of the inputs and of T is positive definite.

    Args:
        H0, h0: (N + 1, 18, 18), (N + 1, 18) Hessians and gradients of the stages.
        J: (N, 13, 18) derivatives of the ends of the intervals; d: (N, 13) defects.
        starts: (N,) whether a leg begins.
        P, p, K, k0, KT, kT: results.
    """
    N = len(J)
    Q, q = np.empty((NZ, NZ)), np.empty(NZ)
    W = np.empty((14, NZ))
    t = np.empty(14)
    L = np.empty((4, 4))
    for i in range(14):
        p[N, i] = h0[N, i]
        for j in range(14):
            P[N, i, j] = H0[N, i, j]
    for k in range(N - 1, -1, -1):
        Pn, pn, A = P[k + 1], p[k + 1], J[k]
        keeps = k + 1 == N or not starts[k + 1]  # whether T is the same in the next stage
        if k + 1 == N:
            keeps = False
        for i in range(NX):
            t[i] = pn[i]
            for j in range(NX):
                t[i] += Pn[i, j] * d[k, j]
        t[13] = pn[13]
        for j in range(NX):
            t[13] += Pn[13, j] * d[k, j]
        for i in range(NX):
            for m in range(NZ):
                s = 0.0
                for j in range(NX):
                    s += Pn[i, j] * A[j, m]
                W[i, m] = s
        if keeps:
            for i in range(NX):
                W[i, 13] += Pn[i, 13]
            for m in range(NZ):
                s = 0.0
                for j in range(NX):
                    s += Pn[13, j] * A[j, m]
                W[13, m] = s
            W[13, 13] += Pn[13, 13]
        for a in range(NZ):
            s = h0[k, a]
            for j in range(NX):
                s += A[j, a] * t[j]
            q[a] = s
            for b in range(a + 1):
                s = H0[k, a, b]
                for j in range(NX):
                    s += A[j, a] * W[j, b]
                Q[a, b] = s
        if keeps:
            q[13] += t[13]
            for b in range(14):
                Q[13, b] += W[13, b]
        for a in range(NZ):
            for b in range(a):
                Q[b, a] = Q[a, b]
        for a in range(4):
            for b in range(a + 1):
                s = Q[U + a, U + b] + (reg if a == b else 0.0)
                for j in range(b):
                    s -= L[a, j] * L[b, j]
                if a == b:
                    if not s > 1e-9:
                        return False
                    L[a, a] = sqrt(s)
                else:
                    L[a, b] = s / L[b, b]
        for m in range(15):
            for a in range(4):
                s = -(Q[U + a, m] if m < 14 else q[U + a])
                for j in range(a):
                    s -= L[a, j] * t[j]
                t[a] = s / L[a, a]
            for a in range(3, -1, -1):
                s = t[a]
                for j in range(a + 1, 4):
                    s -= L[j, a] * t[j]
                t[a] = s / L[a, a]
                if m < 14:
                    K[k, a, m] = t[a]
                else:
                    k0[k, a] = t[a]
        for a in range(14):
            s = q[a]
            for j in range(4):
                s += Q[U + j, a] * k0[k, j]
            p[k, a] = s
            for b in range(a + 1):
                s = Q[a, b]
                for j in range(4):
                    s += Q[U + j, a] * K[k, j, b]
                P[k, a, b] = s
                P[k, b, a] = s
        if starts[k]:
            z = P[k, 13, 13] + reg
            if not z > 1e-9:
                return False
            kT[k] = -p[k, 13] / z
            for a in range(NX):
                KT[k, a] = -P[k, 13, a] / z
            for a in range(NX):
                p[k, a] += P[k, 13, a] * kT[k]
                for b in range(NX):
                    P[k, a, b] += P[k, 13, a] * KT[k, b]
    return True


@compiled(error_model="numpy", fastmath=True)
def forward(J, d, legs, starts, P, p, K, k0, KT, kT, dx, du, dT, lam):
    """Write the Newton step dx (N + 1, 13), du (N, 4), dT (L,), and the costates lam (N + 1, 13)."""
    N = len(J)
    z = np.empty(NZ)
    dx[0] = 0.0
    for k in range(N):
        if starts[k]:
            s = kT[k]
            for j in range(NX):
                s += KT[k, j] * dx[k, j]
            dT[legs[k]] = s
        for j in range(NX):
            z[j] = dx[k, j]
        z[13] = dT[legs[k]]
        for a in range(4):
            s = k0[k, a]
            for j in range(14):
                s += K[k, a, j] * z[j]
            du[k, a] = s
            z[U + a] = s
        for i in range(NX):
            s = d[k, i]
            for j in range(NZ):
                s += J[k, i, j] * z[j]
            dx[k + 1, i] = s
    for k in range(1, N + 1):
        T = 0.0 if k == N or starts[k] else dT[legs[k]]
        for i in range(NX):
            s = p[k, i] + P[k, i, 13] * T if T != 0.0 else p[k, i]
            for j in range(NX):
                s += P[k, i, j] * dx[k, j]
            lam[k, i] = s


@compiled(error_model="numpy")
def derivatives(
    X, V, T, legs, shares, parts, par, begins, kinds, at, given, equal, ways, mu, g, s, z, lam, J, G, H, h, C
):
    """Write the derivatives of intervals to J (N, 13, 18) and of rows to G (R, 18), and Hessian H, gradient h and curvature C.

    H (N + 1, 18, 18) holds the barrier, the equalities' weight and the cost, of which only the lower half is written; C is the
    Lagrangian's curvature, which may be indefinite.
    """
    N = len(legs)
    S, gx, gz, hk = np.zeros((PARTS + 1, NX, NZ)), np.empty(NX), np.empty(NZ), 1.0
    H[:], C[:], h[:] = 0.0, 0.0, 0.0
    for k in range(N + 1):
        if k < N:
            hk = T[legs[k]] * shares[k]
            spread(X[k], V[k], hk, shares[k], parts[k], par, ways[k], S)
            J[k] = S[parts[k]]
            curvature(C[k], X[k], V[k], hk, shares[k], par, lam[k + 1])
            for i in range(U, U + 3):
                h[k, i] += 2 * WEIGHT * hk * V[k, i - U]
                H[k, i, i] += 2 * WEIGHT * hk
            if k == 0 or legs[k] != legs[k - 1]:
                h[k, 13] += 1.0
        for r in range(begins[k], begins[k + 1]):
            kind, Gr, first = kinds[r], G[r], 0
            if kind >= INPUT:
                stage_row(kind, given[r], X[k], V[k], hk, shares[k], par, gz)
                Gr[:], first = gz, 9
            else:
                state_row(kind, given[r], X[k] if at[r] == 0 else ways[k, at[r]], gx)
                if at[r] == 0:
                    Gr[:NX], Gr[NX:] = gx, 0.0
                else:
                    for m in range(NZ):
                        total = 0.0
                        for i in range(9):
                            total += gx[i] * S[at[r], i, m]
                        Gr[m] = total
            if kind in (TURN, SPEED, BALL):
                bend(C[k], kind, given[r], X[k], V[min(k, N - 1)], hk, shares[min(k, N - 1)], par, z[r])
            if equal[r]:
                weight, push = STIFF, STIFF * g[r] + z[r]
            else:
                weight = z[r] / s[r]
                push = weight * (g[r] - s[r]) - mu / s[r]
            if kind == INPUT:
                first = U + int(given[r, 0])
                h[k, first] += push * Gr[first]
                H[k, first, first] += weight * Gr[first] * Gr[first]
                continue
            for i in range(first, NZ):
                if Gr[i] != 0.0:
                    h[k, i] += push * Gr[i]
                    for j in range(first, i + 1):
                        H[k, i, j] += weight * Gr[i] * Gr[j]


@compiled(error_model="numpy")
def lengths(begins, legs, equal, mu, T, g, s, z, G, dx, du, dT, ds):
    """Write the steps of slacks, or of equalities' values, to ds (R,); return the largest steps of primal and dual variables."""
    N, alpha, beta = len(legs), 1.0, 1.0
    for k in range(N + 1):
        for r in range(begins[k], begins[k + 1]):
            step = g[r] if equal[r] else g[r] - s[r]
            for i in range(NX):
                step += G[r, i] * dx[k, i]
            if k < N:
                step += G[r, 13] * dT[legs[k]]
                for i in range(4):
                    step += G[r, U + i] * du[k, i]
            ds[r] = step
            if not equal[r]:
                dz = (mu - z[r] * step) / s[r] - z[r]
                if step < 0:
                    alpha = min(alpha, -INSIDE * s[r] / step)
                if dz < 0:
                    beta = min(beta, -INSIDE * z[r] / dz)
        turn = sqrt(dx[k, 3] ** 2 + dx[k, 4] ** 2 + dx[k, 5] ** 2)
        alpha = min(alpha, TURN_MOST / max(turn, 1e-9))
    for i in range(len(T)):
        share = FALL_MOST if dT[i] < 0 else RISE_MOST
        alpha = min(alpha, share * T[i] / max(abs(dT[i]), 1e-9))
    return alpha, beta


@compiled(error_model="numpy")
def merit(T, d, g, s, equal, mu):
    """Return the cost with its barrier, the sum of all violations, and the largest ones of intervals and of rows."""
    cost, total, defect, broken = T.sum(), 0.0, 0.0, 0.0
    for k in range(len(d)):
        for i in range(NX):
            total += abs(d[k, i])
            defect = max(defect, abs(d[k, i]))
    for r in range(len(g)):
        off = abs(g[r]) if equal[r] else abs(g[r] - s[r])
        total += off
        broken = max(broken, off)
        if not equal[r]:
            cost -= mu * log(s[r])
    return cost, total, defect, broken


@compiled(
    "Tuple((b1, i8))(f8[:,::1], f8[:,::1], f8[::1], i8[::1], f8[::1], i8[::1], f8[::1], i8[::1], i8[::1], i8[::1], f8[:,::1],"
    " b1[::1], f8, i8)",
    error_model="numpy",
)
def minimise(
    X: Any,
    V: Any,
    T: Any,
    legs: Any,
    shares: Any,
    parts: Any,
    par: Any,
    begins: Any,
    kinds: Any,
    at: Any,
    given: Any,
    equal: Any,
    mu: Any,
    most: Any,
) -> tuple[bool, int]:
    """Improve X (N + 1, 14), V (N, 4) and T (L,) in place; returns whether the tolerances are met, and the iterations.

    Args:
        legs, shares, parts: (N,) leg of each interval, its share of the leg's duration, and its number of parts.
        begins: (N + 2,) first row of each node; kinds, at, equal: (R,) kind, part and whether the row is an equality.
        given: (R, NP) parameters of the rows.
        mu: first parameter of the barrier.
        most: largest number of iterations.
    """
    N, R, L = len(legs), len(kinds), len(T)
    ways, d, g = np.zeros((N, PARTS + 1, 14)), np.zeros((N, NX)), np.zeros(R)
    G, J = np.zeros((R, NZ)), np.zeros((N, NX, NZ))
    H, h, C = np.zeros((N + 1, NZ, NZ)), np.zeros((N + 1, NZ)), np.zeros((N + 1, NZ, NZ))
    P, p = np.zeros((N + 1, 14, 14)), np.zeros((N + 1, 14))
    K, k0, KT, kT = np.zeros((N, 4, 14)), np.zeros((N, 4)), np.zeros((N, NX)), np.zeros(N)
    dx, du, dT, lam, ds = np.zeros((N + 1, NX)), np.zeros((N, 4)), np.zeros(L), np.zeros((N + 1, NX)), np.zeros(R)
    newX, newV, newT, newd, newg = X.copy(), V.copy(), T.copy(), d.copy(), g.copy()
    starts = np.append(True, np.diff(legs) != 0)
    values(X, V, T, legs, shares, parts, par, begins, kinds, at, given, ways, d, g)
    s = np.maximum(g, SLACK_LEAST)
    z = np.where(equal, 0.0, mu / s)
    news, number = s.copy(), R - equal.sum()
    reg, closing, held, stalled, recent = REG, False, HELD, 0, np.full(SETTLED_IN, inf)
    for count in range(most):
        cost, off, defect, broken = merit(T, d, g, s, equal, mu)
        if closing and defect < DEFECT and broken < BROKEN:
            return True, count
        total = T.sum()
        if not closing and mu <= MU_LEAST and max(defect, broken) < NEARBY:
            closing = abs(recent[count % SETTLED_IN] / total - 1) < SETTLED
        recent[count % SETTLED_IN] = total
        if closing:
            reg, held = max(reg, held), min(4 * held, HELD_MOST)
        derivatives(
            X, V, T, legs, shares, parts, par, begins, kinds, at, given, equal, ways, mu, g, s, z, lam, J, G, H, h, C
        )
        for k in range(N + 1):
            for i in range(NZ):
                H[k, i, i] += reg * SCALES[i]
                for j in range(i):
                    H[k, j, i] = H[k, i, j]
        H += C
        if backward(H, h, J, d, starts, 0.0, P, p, K, k0, KT, kT):
            reg = max(reg / 3, REG_LEAST)
        else:
            H -= C
            if not backward(H, h, J, d, starts, REG_LEAST, P, p, K, k0, KT, kT):
                return False, count
            reg = min(4 * reg, REG_MOST)
        forward(J, d, legs, starts, P, p, K, k0, KT, kT, dx, du, dT, lam)
        alpha, beta = lengths(begins, legs, equal, mu, T, g, s, z, G, dx, du, dT, ds)
        for trial in range(TRIALS):
            for k in range(N + 1):
                moved(X[k], dx[k], alpha, newX[k])
            newV[:], newT[:] = V + alpha * du, T + alpha * dT
            values(newX, newV, newT, legs, shares, parts, par, begins, kinds, at, given, ways, newd, newg)
            news[:] = np.where(equal, 1.0, np.maximum(s + alpha * ds, newg))
            new_cost, new_off, _, _ = merit(newT, newd, newg, news, equal, mu)
            descends = new_cost + PRICE * new_off <= cost + PRICE * off + 1e-4 * mu * number
            if descends or (new_off <= TUBE * N and new_cost <= cost and not closing):
                break
            alpha /= 2
            if trial == 2:
                reg = min(6 * reg, REG_MOST)
        for r in range(R):
            if equal[r]:
                z[r] += alpha * STIFF * ds[r]
            else:
                z[r] += beta * ((mu - z[r] * ds[r]) / s[r] - z[r])
                s[r] = news[r]
                z[r] = min(max(z[r], 1e-3 * mu / s[r]), 1e3 * mu / s[r])
        X[:], V[:], T[:], d[:], g[:] = newX, newV, newT, newd, newg
        mean = (np.where(equal, 0.0, s * z)).sum() / number
        stalled = stalled + 1 if alpha < 0.05 else 0
        if stalled > 2 or (closing and alpha < 0.5):  # slacks are far off their centres
            mu, closing, held, stalled = min(3 * max(mu, mean), MU), False, HELD, 0
        elif alpha > 0.1:
            mu = max(MU_LEAST, min(mu, (0.3 if alpha > 0.5 else 0.8) * mean))
    return False, most
