"""Stages of the fast planner's problem, compiled: motion over an interval, rows of constraints, and their derivatives.

F: w and c follow their lags exactly, the attitude follows by a Magnus expansion of fourth order, v and p by Runge-Kutta, in parts
of an interval. Rows of g are of a few kinds, with parameters, at the end of a part. `interior` has the problem and its method.

`par` are the parameters of the `rates` model, `flat`: lags of w (3) and c, linear drag (3), quadratic drag, lift.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from functools import partial
from math import exp, inf, sqrt
from pathlib import Path

import numpy as np

from gate_racer.common.compiled import code_folder, compiled, inlined
from gate_racer.vehicle import dynamics, rotation
from gate_racer.vehicle.dynamics import translation
from gate_racer.vehicle.rotation import Array, Scalars, conjugate, product, rotate, turn

SOURCES = (__file__, str(Path(__file__).with_name("interior.py")), dynamics.__file__, rotation.__file__)
kernel = partial(compiled, folder=code_folder(lambda: [Path(file) for file in SOURCES]), error_model="numpy")

NX, NZ, U = 13, 18, 14  # tangent of a state, that of a stage with T and input, index of the input
NP = 18  # parameters of a row
# Kinds of rows: of a state, and, from INPUT on, of a stage.
LINEAR, EDGE, BALL, BOX, RIM, LEVEL, LEAN, VIEW, HOLD, INPUT, TURN, SLEW = range(12)
TURN_S = 0.03  # s, which scales rows of angular acceleration


@kernel()
def axes(q: Scalars, R: Array) -> None:
    """Write the rotation matrix of q to R (3, 3)."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    R[0, 0], R[0, 1], R[0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    R[1, 0], R[1, 1], R[1, 2] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    R[2, 0], R[2, 1], R[2, 2] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)


@inlined
def slope(q, c, v, par):
    return translation(q, v, c, (par[4], par[5], par[6]), par[7], par[8])


@inlined
def ahead(v, dt, a):
    return (v[0] + dt * a[0], v[1] + dt * a[1], v[2] + dt * a[2])


@inlined
def spun(x, u, par, t):
    """Return the body rates (3) at t after a state x, under an input u."""
    return (
        u[0] + (x[10] - u[0]) * exp(-t / par[0]),
        u[1] + (x[11] - u[1]) * exp(-t / par[1]),
        u[2] + (x[12] - u[2]) * exp(-t / par[2]),
    )


@inlined
def swung(q, w0, wm, w1, t):
    """Return the attitude after q, turned over t with body rates w0, wm and w1 at the beginning, in the middle and at the end."""
    a, b = t / 6, t * t / 12
    return product(
        q,
        turn(
            a * (w0[0] + 4 * wm[0] + w1[0]) + b * (w0[1] * w1[2] - w0[2] * w1[1]),
            a * (w0[1] + 4 * wm[1] + w1[1]) + b * (w0[2] * w1[0] - w0[0] * w1[2]),
            a * (w0[2] + 4 * wm[2] + w1[2]) + b * (w0[0] * w1[1] - w0[1] * w1[0]),
        ),
    )


@kernel()
def flow(x: Array, u: Array, h: float, n: int, par: Array, way: Array) -> None:
    """Write the states (n + 1, 14) after 0 to n parts of an interval of h to `way`."""
    way[0] = x
    d = h / n
    for j in range(n):
        a, b, t = way[j], way[j + 1], j * d
        w0, w1, w2 = spun(x, u, par, t), spun(x, u, par, t + d / 4), spun(x, u, par, t + d / 2)
        w3, w4 = spun(x, u, par, t + 3 * d / 4), spun(x, u, par, t + d)
        q0 = (a[3], a[4], a[5], a[6])
        q1 = swung(q0, w0, w1, w2, d / 2)
        q2 = swung(q1, w2, w3, w4, d / 2)
        c1 = u[3] + (x[13] - u[3]) * exp(-(t + d / 2) / par[3])
        c2 = u[3] + (x[13] - u[3]) * exp(-(t + d) / par[3])
        v0 = (a[7], a[8], a[9])
        k0 = slope(q0, a[13], v0, par)
        k1 = slope(q1, c1, ahead(v0, d / 2, k0), par)
        k2 = slope(q1, c1, ahead(v0, d / 2, k1), par)
        k3 = slope(q2, c2, ahead(v0, d, k2), par)
        for i in range(3):
            b[i] = a[i] + d * a[7 + i] + d * d / 6 * (k0[i] + k1[i] + k2[i])
            b[7 + i] = a[7 + i] + d / 6 * (k0[i] + 2 * k1[i] + 2 * k2[i] + k3[i])
            b[10 + i] = w4[i]
        b[3], b[4], b[5], b[6], b[13] = q2[0], q2[1], q2[2], q2[3], c2


@kernel()
def force(R: Array, c: float, v: Array, par: Array, G: Array, D: Array) -> None:
    """Write d(dv/dt)/dtheta to G and d(dv/dt)/dv to D (3, 3)."""
    speed = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + 1e-8)
    b0 = R[0, 0] * v[0] + R[1, 0] * v[1] + R[2, 0] * v[2]
    b1 = R[0, 1] * v[0] + R[1, 1] * v[1] + R[2, 1] * v[2]
    b2 = R[0, 2] * v[0] + R[1, 2] * v[1] + R[2, 2] * v[2]
    l0, l1, l2, k = par[4], par[5], par[6], par[8]
    c += k * (b0 * b0 + b1 * b1)
    for i in range(3):
        r0, r1, r2 = R[i, 0], R[i, 1], R[i, 2]
        # R ([l v_b]x - l [v_b]x) of the linear drag, c R [e_z]x of the thrust with lift, and that of the lift's size
        G[i, 0] = c * r1 + r1 * (l2 - l1) * b2 + r2 * (l2 - l1) * b1 - 2 * k * r2 * b1 * b2
        G[i, 1] = -c * r0 + r0 * (l0 - l2) * b2 + r2 * (l0 - l2) * b0 + 2 * k * r2 * b0 * b2
        G[i, 2] = r0 * (l1 - l0) * b1 + r1 * (l1 - l0) * b0
        for j in range(3):
            D[i, j] = -(r0 * R[j, 0] * l0 + r1 * R[j, 1] * l1 + r2 * R[j, 2] * l2) - par[7] * v[i] * v[j] / speed
            D[i, j] -= 2 * k * r2 * (b0 * R[j, 0] + b1 * R[j, 1])
        D[i, i] -= par[7] * speed


@kernel()
def apply(M: Array, A: Array, Z: Array) -> None:
    """Add M A (3, 18) of a matrix (3, 3) and derivatives (3, 18) to Z."""
    for i in range(3):
        for m in range(NZ):
            Z[i, m] += M[i, 0] * A[0, m] + M[i, 1] * A[1, m] + M[i, 2] * A[2, m]


@kernel()
def spread(x: Array, u: Array, h: float, share: float, n: int, par: Array, way: Array, S: Array) -> None:
    """Write the derivatives (n + 1, 13, 18) of the tangents of `way` by those of the stage (x, T, u) to S."""
    d = h / n
    R, G, D, turned = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.eye(3)
    slopes, by_v = np.empty((2, 3, NZ)), np.empty((3, NZ))  # of dv/dt: at both ends of a part, without that by v; by v
    phi, by = np.empty(3), np.zeros((3, NZ))  # rotation vector of a part, and its derivatives
    S[0] = 0.0
    for i in range(NX):
        S[0, i, i] = 1.0
    for j in range(n):
        a, b, A, Z = way[j], way[j + 1], S[j], S[j + 1]
        Z[:], slopes[:], by_v[:] = 0.0, 0.0, 0.0
        for i in range(4):
            e0, e1 = exp(-j * d / par[i]), exp(-(j + 1) * d / par[i])
            Z[9 + i, 9 + i], Z[9 + i, U + i] = e1, 1 - e1
            if i < 3:
                by_w = par[i] * (e0 - e1)
                phi[i] = u[i] * d + (x[10 + i] - u[i]) * by_w
                by[i, 9 + i], by[i, U + i] = by_w, d - by_w
        # dtheta' = exp(-phi) dtheta + (1 - [phi]x / 2) dphi
        axes(turn(-phi[0], -phi[1], -phi[2]), R)
        for i in range(3):
            k, m = (i + 1) % 3, (i + 2) % 3
            turned[i, k], turned[i, m] = 0.5 * phi[m], -0.5 * phi[k]
        apply(R, A[3:6], Z[3:6])
        apply(turned, by, Z[3:6])
        for part, state, of in ((0, a, A), (1, b, Z)):
            axes(state[3:7], R)
            force(R, state[13], state[7:10], par, G, D)
            apply(G, of[3:6], slopes[part])
            for i in range(3):
                for m in range(NZ):
                    slopes[part, i, m] -= R[i, 2] * of[12, m]
        force(R, 0.0, ahead(a[7:10], 0.5, (b[7] - a[7], b[8] - a[8], b[9] - a[9])), par, G, D)
        apply(D, A[6:9], by_v)
        apply(D, by_v, Z[6:9])
        for i in range(3):
            for m in range(NZ):
                f, r0, r1 = by_v[i, m], slopes[0, i, m], slopes[1, i, m]
                Z[6 + i, m] = A[6 + i, m] + d * (f + 0.5 * (r0 + r1)) + 0.5 * d * d * Z[6 + i, m]
                Z[i, m] = A[i, m] + d * A[6 + i, m] + d * d * (0.5 * f + r0 / 3 + r1 / 6)
        # by T: the state at the share (j + 1) / n moves along its own derivative
        a_w, moved = slope(b[3:7], b[13], b[7:10], par), share * (j + 1) / n
        for i in range(3):
            Z[i, 13], Z[3 + i, 13], Z[6 + i, 13] = moved * b[7 + i], moved * b[10 + i], moved * a_w[i]
            Z[9 + i, 13] = moved * (u[i] - b[10 + i]) / par[i]
        Z[12, 13] = moved * (u[3] - b[13]) / par[3]


@kernel()
def state_row(kind, given, x, G):
    """Return the value of a row of the state x (14,), and write its derivatives by the tangent of x to G (13,)."""
    G[:] = 0.0
    if kind == LINEAR:  # constant, factors of p, v and w
        value = given[0]
        for i in range(3):
            value += given[1 + i] * x[i] + given[4 + i] * x[7 + i] + given[7 + i] * x[10 + i]
            G[i], G[6 + i], G[9 + i] = given[1 + i], given[4 + i], given[7 + i]
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
    if kind == BALL:  # radius, centre; whether of the velocity
        value, fast = given[0] * given[0], given[4] > 0
        for i in range(3):
            off = x[7 + i if fast else i] - given[1 + i]
            value -= off * off
            G[6 + i if fast else i] = -off / given[0]
        return value / (2 * given[0])
    if kind == BOX:  # centre, axes by column, half, keep
        far, best, face, sign = 0.0, -inf, 0, 1.0
        for j in range(3):
            local = 0.0
            for i in range(3):
                local += given[3 + 3 * j + i] * (x[i] - given[i])
            off, side = abs(local) - given[12 + j], 1.0 if local > 0 else -1.0
            if off > best:
                best, face, sign = off, j, side
            if off > 0:
                far += off * off
                for i in range(3):
                    G[i] += off * side * given[3 + 3 * j + i]
        if far > 0:
            G /= sqrt(far)
            return sqrt(far) - given[15]
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
    if kind in (LEVEL, LEAN):
        R = np.empty((3, 3))
        axes(x[3:7], R)
        if kind == LEVEL:  # world axis normal to the body's z axis
            i = int(given[0])
            G[3], G[4] = -R[i, 1], R[i, 0]
            return R[i, 2]
        room = (given[0] - x[2]) / given[1]  # height, rim
        G[2], G[3], G[4] = -2 * room / given[1], -2 * R[2, 2] * R[2, 1], 2 * R[2, 2] * R[2, 0]
        return room * room - 1 + R[2, 2] * R[2, 2]
    if kind == VIEW:
        # Target, camera's position, direction in the body; scale: not negative for n.(R'(t - p) - p_bc) >= 0.
        q, n, value = (x[3], x[4], x[5], x[6]), (given[6], given[7], given[8]), 0.0
        e, n_w = rotate(conjugate(q), (given[0] - x[0], given[1] - x[1], given[2] - x[2])), rotate(q, n)
        for i in range(3):
            a, b = (i + 1) % 3, (i + 2) % 3
            value += n[i] * (e[i] - given[3 + i])
            G[i] = -given[9] * n_w[i]
            G[3 + i] = given[9] * (n[a] * e[b] - n[b] * e[a])  # d e = e x dtheta: n . (e x dtheta) = dtheta . (n x e)
        return given[9] * value
    if kind == HOLD:  # factors of v_x and v_y of the body, share at no thrust, fall by thrust
        q, v, f0, f1 = (x[3], x[4], x[5], x[6]), (x[7], x[8], x[9]), given[0], given[1]
        v_b, f_w = rotate(conjugate(q), v), rotate(q, (f0, f1, 0.0))
        for i in range(3):
            G[6 + i] = -f_w[i]
        G[3], G[4], G[5] = -f1 * v_b[2], f0 * v_b[2], f1 * v_b[0] - f0 * v_b[1]  # d v_b = v_b x dtheta
        G[12] = -given[3]
        return given[2] - given[3] * x[13] - f0 * v_b[0] - f1 * v_b[1]
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
            D[9 + i], D[U + i] = given[i] * (1 - e), -given[i] * (1 - e)
            by_h -= given[i] * (u[i] - first[10 + i]) * e / par[i]
        D[13] = by_h * share
        D /= TURN_S
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
    out[:3], out[6:] = a[:3] - b[:3], a[7:] - b[7:]
    w, x, y, z = product(conjugate(b[3:7]), a[3:7])
    size, sign = sqrt(x * x + y * y + z * z), -1.0 if w < 0 else 1.0
    k = sign * (2 * np.arctan2(size, sign * w) / size if size > 1e-10 else 2.0)
    out[3], out[4], out[5] = k * x, k * y, k * z


@kernel()
def moved(x: Array, dx: Array, alpha: float, out: Array) -> None:
    """Write the state x, moved by alpha dx (13,), to `out`."""
    out[:3], out[7:] = x[:3] + alpha * dx[:3], x[7:] + alpha * dx[6:]
    q = product(x[3:7], turn(alpha * dx[3], alpha * dx[4], alpha * dx[5]))
    size = sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    for i in range(4):
        out[3 + i] = q[i] / size


@kernel()
def curvature(H, x, u, h, share, par, lam):
    """Add the lower half of the Hessian of h lam . f, with the costates `lam` (13,), to that of a stage (18, 18)."""
    R, G, D, b = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3)), np.empty(3)
    axes(x[3:7], R)
    c, v = x[13], x[7:10]
    for j in range(3):
        b[j] = R[0, j] * lam[6] + R[1, j] * lam[7] + R[2, j] * lam[8]
    # theta with itself, -c b . exp(theta) e_z, and with c, -(e_z x b) dc
    for i in range(2):
        H[3 + i, 3 + i] += h * c * b[2]
        H[5, 3 + i] -= 0.5 * h * c * b[i]
    H[12, 3] += h * b[1]
    H[12, 4] -= h * b[0]
    # quadratic drag
    speed = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + 1.0)
    lv = (lam[6] * v[0] + lam[7] * v[1] + lam[8] * v[2]) / speed
    for i in range(3):
        for j in range(i + 1):
            H[6 + i, 6 + j] -= h * par[7] * (lam[6 + i] * v[j] + v[i] * lam[6 + j] - lv * v[i] * v[j] / speed) / speed
        H[6 + i, 6 + i] -= h * par[7] * lv
    force(R, c, v, par, G, D)
    for i in range(3):
        m, n = (i + 1) % 3, (i + 2) % 3
        # theta with w: -h/2 [lam_theta]x
        H[9 + n, 3 + m] += 0.5 * h * lam[3 + i]
        H[9 + m, 3 + n] -= 0.5 * h * lam[3 + i]
        # T with the state and the input
        e = exp(-h / par[i])
        turning, slowing = share * lam[3 + i], share * e / par[i] * lam[9 + i]
        H[13, 3 + i] += share * (lam[6] * G[0, i] + lam[7] * G[1, i] + lam[8] * G[2, i])
        H[13, 6 + i] += share * (lam[i] + lam[6] * D[0, i] + lam[7] * D[1, i] + lam[8] * D[2, i])
        H[13, 9 + i] += turning * e - slowing
        H[U + i, 13] += turning * (1 - e) + slowing
        H[13, 13] += share * share * e / par[i] * (u[i] - x[10 + i]) * (lam[3 + i] - lam[9 + i] / par[i])
    e = exp(-h / par[3])
    pushing, slowing = -share * b[2], share * e / par[3] * lam[12]
    H[13, 12] += pushing * e - slowing
    H[U + 3, 13] += pushing * (1 - e) + slowing
    H[13, 13] -= share * share * e / par[3] ** 2 * (u[3] - c) * lam[12]


@kernel()
def bend(H, kind, given, x, u, h, share, par, z):
    """Add the lower half of -z times the Hessian of a row of a stage to H (18, 18), for the kinds of rows where it matters."""
    if kind == BALL:
        first = 6 if given[4] > 0 else 0
        for i in range(first, first + 3):
            H[i, i] += z / given[0]
    elif kind == TURN:
        a = z * share / TURN_S
        for i in range(3):
            e = exp(-h / par[i]) / par[i]
            H[13, 9 + i] -= a * given[i] * e
            H[U + i, 13] += a * given[i] * e
            H[13, 13] -= a * share * given[i] * (u[i] - x[10 + i]) * e / par[i]
        by_c, by_u = given[4], 0.0
        if given[5] > 0:
            e, r = exp(-h / par[3]), h / par[3]
            by_c, by_u = given[4] * e * (1 - r), given[4] * (1 - e + e * r)
            H[13, 13] += a * share * given[4] * (u[3] - x[13]) * e / par[3] * (2 - r)
        H[13, 12] += a * by_c
        H[U + 3, 13] += a * by_u
