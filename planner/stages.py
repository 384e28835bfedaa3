"""Stages of the fast planner's problem, compiled: motion over an interval, rows of constraints, and their derivatives.

F: w and c follow their lags exactly, the attitude follows by a Magnus expansion of fourth order, v and p by Runge-Kutta, in parts
of an interval. Rows of g are of a few kinds, with parameters, at the end of a part. `interior` has the problem and its method.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from functools import partial
from math import cos, exp, inf, sin, sqrt
from pathlib import Path

import numpy as np

from gate_racer.common.compiled import code_folder, compiled
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

kernel = partial(
    compiled, folder=code_folder(lambda: [Path(__file__), Path(__file__).with_name("interior.py")]), error_model="numpy"
)

NX, NZ, U = 13, 18, 14  # tangent of a state, that of a stage with T and input, index of the input
NP = 18  # parameters of a row
# Kinds of rows: of a state, and, from INPUT on, of a stage.
LINEAR, EDGE, BALL, SPEED, BOX, RIM, STILL, LEVEL, LEAN, VIEW, INPUT, TURN, SLEW = range(13)
TURN_S = 0.03  # s, which scales rows of angular acceleration


@kernel()
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


@kernel()
def axes(q: Array, R: Array) -> None:
    """Write the rotation matrix of q to R (3, 3)."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    R[0, 0], R[0, 1], R[0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    R[1, 0], R[1, 1], R[1, 2] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    R[2, 0], R[2, 1], R[2, 2] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)


@kernel()
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


@kernel()
def swing(w0: Array, wm: Array, w1: Array, t: float, out: Array) -> None:
    """Write the rotation vector over t of body rates w0, wm and w1 at its beginning, middle and end to `out`."""
    for i in range(3):
        a, b = (i + 1) % 3, (i + 2) % 3
        out[i] = t / 6 * (w0[i] + 4 * wm[i] + w1[i]) + t * t / 12 * (w0[a] * w1[b] - w0[b] * w1[a])


@kernel()
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


@kernel()
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


@kernel()
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


@kernel()
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


@kernel()
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


@kernel()
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


@kernel()
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


@kernel()
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


@kernel()
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
