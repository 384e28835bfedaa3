"""Interior-point method of the fast planner, compiled: a Newton step is two Riccati sweeps along the course.

Multiple shooting of the `rates` model. Per interval k a state x_k = (p, q, v, w, c), a held input u_k, and per leg a duration T:

    minimise  sum_l T_l + WEIGHT |u_w|^2 dt,   x_k+1 = F(x_k, u_k, T_l share_k),   g(x_k, u_k, T_l) = s >= 0,   e(x_k) = 0

Tangents are local, (dp, dtheta of the body, dv, dw, dc), so that the quaternion needs no constraint. T is a state that is
constant within a leg and free where one begins. Slacks and multipliers are eliminated (Waechter and Biegler, 2006), equalities
are held by a proximal method of multipliers. The Hessian is that of the Hamiltonian and of the limits of torque, the rest is
left out; without it, and regularised, where a block of the inputs is not positive definite.

`stages` has F and the rows of g and e, with their derivatives.

Arrays are contiguous; their types are in the signature of `minimise`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from math import inf, log, sqrt

import numpy as np

from gate_racer.planner import stages
from gate_racer.planner.stages import BALL, INPUT, NX, NZ, TURN, U, kernel, stage_row, state_row

PARTS = 8  # most parts of an interval
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


@kernel()
def values(X, V, T, legs, shares, parts, par, begins, kinds, at, given, ways, d, g):
    """Evaluate paths, defects d (N, 13) and rows g (R,)."""
    N = len(legs)
    G, D, h = np.empty(NX), np.empty(NZ), 1.0
    for k in range(N + 1):
        if k < N:
            h = T[legs[k]] * shares[k]
            stages.flow(X[k], V[k], h, parts[k], par, ways[k])
            stages.apart(ways[k, parts[k]], X[k + 1], d[k])
        for r in range(begins[k], begins[k + 1]):
            if kinds[r] >= INPUT:
                g[r] = stage_row(kinds[r], given[r], X[k], V[k], h, shares[k], par, D)
            else:
                g[r] = state_row(kinds[r], given[r], X[k] if at[r] == 0 else ways[k, at[r]], G)


@kernel()
def eliminated(Q, q, a, reg, K):
    """Minimise 0.5 z' Q z + q' z over z_a = K . (z_0 .. z_a-1) + K_a in place; returns whether there is a minimum."""
    pivot = Q[a, a] + reg
    if not pivot > 1e-9:
        return False
    K[a] = -q[a] / pivot
    for j in range(a):
        K[j] = -Q[a, j] / pivot
    for i in range(a):
        q[i] += Q[i, a] * K[a]
        for j in range(a):
            Q[i, j] += Q[i, a] * K[j]
    return True


@kernel()
def backward(H, h, J, d, starts, reg, P, p, K):
    """Riccati sweep; returns whether every input and every T has a minimum.

    H, h: (N + 1, 18, 18), (N + 1, 18) Hessians and gradients of the stages; J: (N, 13, 18) derivatives of the intervals' ends;
    d: (N, 13) defects; P, p: (N + 1, 14, 14), (N + 1, 14) cost-to-go of x and T; K: (N, 5, 18) feedback of T and the inputs.
    """
    N = len(J)
    A, off = np.zeros((14, NZ)), np.zeros(14)
    P[N], p[N] = H[N, :14, :14], h[N, :14]
    for k in range(N - 1, -1, -1):
        A[:NX], off[:NX] = J[k], d[k]
        A[13, 13] = 1.0 if k + 1 < N and not starts[k + 1] else 0.0  # whether T is the same in the next stage
        Q, q = H[k] + A.T @ (P[k + 1] @ A), h[k] + A.T @ (p[k + 1] + P[k + 1] @ off)
        for a in range(NZ - 1, 12 if starts[k] else 13, -1):
            if not eliminated(Q, q, a, reg, K[k, a - 13]):
                return False
        P[k], p[k] = Q[:14, :14], q[:14]
    return True


@kernel()
def forward(J, d, legs, starts, P, p, K, dx, du, dT, lam):
    """Write the Newton step dx (N + 1, 13), du (N, 4), dT (L,), and the costates lam (N + 1, 13)."""
    N = len(J)
    z = np.zeros(NZ)
    dx[0] = 0.0
    for k in range(N):
        z[:NX] = dx[k]
        for a in range(13 if starts[k] else U, NZ):
            z[a] = K[k, a - 13, :a] @ z[:a] + K[k, a - 13, a]
        dT[legs[k]], du[k] = z[13], z[U:]
        dx[k + 1] = d[k] + J[k] @ z
    for k in range(1, N + 1):
        z[:NX] = dx[k]
        z[13] = 0.0 if k == N or starts[k] else dT[legs[k]]
        lam[k] = (p[k] + P[k] @ z[:14])[:NX]


@kernel()
def derivatives(
    X, V, T, legs, shares, parts, par, begins, kinds, at, given, equal, ways, mu, g, s, z, lam, J, G, H, h, C
):
    """Write the derivatives of intervals to J (N, 13, 18) and of rows to G (R, 18), and Hessian H, gradient h and curvature C.

    H (N + 1, 18, 18) holds barrier, equalities and cost, C the Lagrangian's curvature; only their lower halves are written.
    """
    N = len(legs)
    S, gx, gz, hk = np.zeros((PARTS + 1, NX, NZ)), np.empty(NX), np.empty(NZ), 1.0
    H[:], C[:], h[:] = 0.0, 0.0, 0.0
    for k in range(N + 1):
        if k < N:
            hk = T[legs[k]] * shares[k]
            stages.spread(X[k], V[k], hk, shares[k], parts[k], par, ways[k], S)
            J[k] = S[parts[k]]
            stages.curvature(C[k], X[k], V[k], hk, shares[k], par, lam[k + 1])
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
            if kind in (TURN, BALL):
                stages.bend(C[k], kind, given[r], X[k], V[min(k, N - 1)], hk, shares[min(k, N - 1)], par, z[r])
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


@kernel()
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


@kernel()
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


@kernel(
    "Tuple((b1, i8))(f8[:,::1], f8[:,::1], f8[::1], i8[::1], f8[::1], i8[::1], f8[::1], i8[::1], i8[::1], i8[::1], f8[:,::1],"
    " b1[::1], f8, i8)",
)
def minimise(X, V, T, legs, shares, parts, par, begins, kinds, at, given, equal, mu, most):
    """Improve X (N + 1, 14), V (N, 4) and T (L,) in place; returns whether the tolerances are met, and the iterations.

    legs, shares, parts: (N,) leg of each interval, its share of the leg's duration, and its number of parts; begins: (N + 2,)
    first row of each node; kinds, at, equal, given: (R,) kind, part, whether an equality, and (R, NP) parameters of the rows;
    mu: first parameter of the barrier.
    """
    N, R, L = len(legs), len(kinds), len(T)
    ways, d, g = np.zeros((N, PARTS + 1, 14)), np.zeros((N, NX)), np.zeros(R)
    G, J = np.zeros((R, NZ)), np.zeros((N, NX, NZ))
    H, h, C = np.zeros((N + 1, NZ, NZ)), np.zeros((N + 1, NZ)), np.zeros((N + 1, NZ, NZ))
    P, p, K = np.zeros((N + 1, 14, 14)), np.zeros((N + 1, 14)), np.zeros((N, 5, NZ))
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
                    H[k, j, i], C[k, j, i] = H[k, i, j], C[k, i, j]
        H += C
        if backward(H, h, J, d, starts, 0.0, P, p, K):
            reg = max(reg / 3, REG_LEAST)
        else:
            H -= C
            if not backward(H, h, J, d, starts, REG_LEAST, P, p, K):
                return False, count
            reg = min(4 * reg, REG_MOST)
        forward(J, d, legs, starts, P, p, K, dx, du, dT, lam)
        alpha, beta = lengths(begins, legs, equal, mu, T, g, s, z, G, dx, du, dT, ds)
        for trial in range(TRIALS):
            for k in range(N + 1):
                stages.moved(X[k], dx[k], alpha, newX[k])
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
