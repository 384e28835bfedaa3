"""Where the gates stand, from what a camera saw on flights and the IMU: one robust least-squares problem.

    minimise  sum rho( |corner seen - project(x_k, corner of gate g)|^2 )  +  the chain of each flight  +  priors

over all states x_k of the flights (`field.trajectory`; camera tilt, clock offset and the edges' error are part of them), each
gate's centre and yaw, and the error of their common size: bundle adjustment with square landmarks of known size (Triggs et al.
2000), by Gauss and Newton, reweighted (Cauchy), the states eliminated first. The pad is the origin, so nothing is free. Gates
stand upright.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from estimation.eskf.noise import Noise
from estimation.eskf.reprojection import NEAR_M as NEAR_DEPTH_M
from estimation.eskf.reprojection import CameraContext, outward, project
from estimation.eskf.states import DELAY, EDGE_PX, TILT, P, varied
from field.mapping.sights import LoggedFlight, MapError
from field.mapping.trajectory import N, StateChain, first_guess, solve
from perception.association import Associator, GateSighting
from perception.rims import GateAppearance
from tracks.gate import Gate
from tracks.track import GateFrame
from vehicle.rotation import Array, exp, product
from vehicle.statistics import greatest_sigma
from vehicle.vehicle import Vehicle

DOUBTS = (
    1.0,
    None,
    0.1,
    None,
)  # of each step: how much of the priors below; None: which gate is which is told as before
LEAST_SIGHTINGS = 4  # of a gate
MOST_STATES = 2000  # of a flight
PRIOR_M, PRIOR_RAD = 0.5, 0.02  # how far off the trajectory may be when gates are recognised
SIZE_SIGMA_M = 0.003  # how well it is known where the edges of all gates lie
ACCEL_WALK, EDGE_WALK = 0.005, 0.01  # as in the filter's noise, but of a slow flight
IMU_SCALE = 1e-4  # relative: simulators' sensors are true to scale, and so is the map, whose only measure they are
SHARED_PX = 0.25  # by which a detector's edges lie outward, of one image: large, as light and size share it over many
ROBUST = 2.0  # residuals beyond so many sigmas count less
NEAR_M = 3.0  # from its centre a gate is flown through
SAME_M = 2.0  # gates nearer to each other than that are one, first seen from two places or on two flights
X, YAW = slice(0, 3), 3  # a gate's unknowns
BLOCK = 4
NO_PLACE = np.zeros(1, int)  # a gate's offset is part of its own place here


@dataclass(frozen=True)
class MappedGate:
    """A gate with the covariance of centre (m) and yaw (rad)."""

    p_w: Array  # (3,) m
    yaw: float  # rad
    cov: Array  # (4, 4)
    sightings: int

    @property
    def sigma_m(self) -> float:
        """Standard deviation of the centre along its worst direction."""
        return greatest_sigma(self.cov[X, X])

    @property
    def sigma_yaw_deg(self) -> float:
        return math.degrees(math.sqrt(self.cov[YAW, YAW]))


@dataclass(frozen=True)
class Map:
    """All gates that were seen well, and what the camera turned out to be."""

    gates: list[MappedGate]
    chains: list[StateChain]
    tilt_deg: float
    delay_s: float  # of the exposure after its stamp
    swell_m: float  # by which the gates' edges lie outside of the nominal ones
    residual_px: float  # median distance of a corner from where it should be seen


@dataclass(frozen=True)
class _Sight:
    """One opening in one image, recognised."""

    chain: int
    state: int
    gate: int
    seen_px: Array  # (4, 2) in the order of the gate's corners
    white: Array  # (8, 8) square root of the corners' information
    hole_g: Array  # (4, 3) m, what is seen of the opening, in gate axes


def map_gates(flights: Sequence[LoggedFlight], vehicle: Vehicle, frame: GateFrame, look: GateAppearance) -> Map:
    """Estimates all gates that the flights saw often enough.

    Raises:
        MapError: there are none, or a flight shares none with the first.
    """
    chains, gates = [], list[MappedGate]()
    for flight in flights:
        chain, front = first_guess(flight, vehicle.camera, frame.opening_m, look, MOST_STATES)
        chains.append(chain)
        marks = sorted(front.landmarks, key=lambda mark: -mark.seen)
        if gates and not any(_stands(mark.p_w, gates) for mark in marks):
            raise MapError(
                f"{flight.path}: none of its gates stands where {flights[0].path} has one: another course, pad or north?"
            )
        for mark in marks:
            if not _stands(mark.p_w, gates):
                gates.append(MappedGate(mark.p_w, mark.yaw, np.eye(4), mark.seen))
    if not gates:
        raise MapError(f"{flights[0].path}: no opening was seen whole and often enough to be a gate")
    return _Bundle(chains, gates, vehicle, frame, look).solved()


def _stands(p_w: Array, gates: Sequence[MappedGate]) -> bool:
    """Whether one of the gates stands there already."""
    return any(np.linalg.norm(p_w - gate.p_w) < SAME_M for gate in gates)


class _Bundle:
    def __init__(
        self,
        chains: list[StateChain],
        gates: list[MappedGate],
        vehicle: Vehicle,
        frame: GateFrame,
        look: GateAppearance,
    ):
        self._chains, self._gates = chains, gates
        self._camera, self._frame, self._look = vehicle.camera, frame, look
        scale = {"prior": IMU_SCALE}
        self._noise = Noise(
            vehicle.imu, varied(s_a=scale, s_g=scale, v={"walk": ACCEL_WALK}, edge_px={"walk": EDGE_WALK})
        )
        self._swell_m = 0.0

    def solved(self) -> Map:
        sights: list[_Sight] = []
        for doubt in DOUBTS:
            sights = sights if doubt is None else self._recognised(doubt)
            cov = self._step(sights)
        counts = [sum(sight.gate == g for sight in sights) for g in range(len(self._gates))]
        gates = [
            replace(gate, cov=cov[_block(g), _block(g)], sightings=counts[g])
            for g, gate in enumerate(self._gates)
            if counts[g] >= LEAST_SIGHTINGS
        ]
        last = self._chains[0].states[-1]
        off = [np.linalg.norm(self._residual(sight)[0], axis=-1) for sight in sights]
        tilt = self._camera.tilt_deg + math.degrees(float(last[TILT]))
        return Map(
            gates, self._chains, tilt, float(last[DELAY]), self._swell_m, float(np.median(off)) if off else math.nan
        )

    def _recognised(self, doubt: float) -> list[_Sight]:
        """Which gate each opening is, by the present map and trajectories."""
        f = self._frame
        known = [
            Gate(tuple(gate.p_w.tolist()), math.degrees(gate.yaw), 0.0, f.opening_m, f.outer_m, f.depth_m)
            for gate in self._gates
        ]
        associator, sights = Associator(known, self._camera, self._look), []
        cov_p = (doubt * PRIOR_M) ** 2 * np.eye(3)
        for c, chain in enumerate(self._chains):
            for k, image in enumerate(chain.images, start=1):
                x = chain.states[k]
                tilted = np.array(product(x.q_wb, exp(x[DELAY] * chain.omega(k) + [0.0, x[TILT], 0.0])))
                found, _ = associator.associate(
                    x.t, image.detections, x.p_wb + x[DELAY] * x.v_w, cov_p, tilted, doubt * PRIOR_RAD
                )
                for one in found:
                    hole_g = (one.corners_w - known[one.gate].p_wg) @ known[one.gate].R_wg
                    sights.append(_Sight(c, k, one.gate, one.corners_px, _white(one), hole_g))
        return sights

    def _residual(self, sight: _Sight) -> tuple[Array, Array, Array]:
        """Seen minus expected (4, 2) px, and its Jacobians: (4, 2, N) by state, (4, 2, BLOCK + 1) by gate and swell."""
        chain, gate = self._chains[sight.chain], self._gates[sight.gate]
        x = chain.states[sight.state]
        c, s = math.cos(gate.yaw), math.sin(gate.yaw)
        arm_w = sight.hole_g @ np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        context = CameraContext(self._camera, chain.omega(sight.state), 0.0, np.zeros(3), np.zeros(3))
        px, J, depth = (part[0] for part in project(x, context, NO_PLACE, (gate.p_w + arm_w)[None]))
        J = J[..., :N]
        G = np.zeros((4, 2, BLOCK + 1))
        G[..., X] = -J[..., P]
        G[..., YAW] = G[..., 0] * -arm_w[:, 1:2] + G[..., 1] * arm_w[:, 0:1]
        G[..., BLOCK] = J[..., EDGE_PX] * (self._camera.fx_px / np.maximum(depth, NEAR_DEPTH_M))[:, None]
        return sight.seen_px - px - self._swell_m * G[..., BLOCK], J, G

    def _step(self, sights: list[_Sight]) -> Array:
        """One step of Gauss and Newton; returns the covariance of the gates' unknowns, with the swell last."""
        normals = [chain.normal(self._noise, self._look) for chain in self._chains]
        n = BLOCK * len(self._gates) + 1
        A, a = np.zeros((n, n)), np.zeros(n)
        E = [np.zeros((len(chain.states), N, n)) for chain in self._chains]
        A.flat[:: n + 1] = 1e-6  # a gate that nothing shows any more stays
        A[-1, -1], a[-1] = SIZE_SIGMA_M**-2, -self._swell_m * SIZE_SIGMA_M**-2
        for sight in sights:
            r, J, G = self._residual(sight)
            r, J, G = sight.white @ r.ravel(), sight.white @ J.reshape(8, N), sight.white @ G.reshape(8, BLOCK + 1)
            weight = 1 / (1 + float(r @ r) / (len(r) * ROBUST**2))
            D, _, b = normals[sight.chain]
            D[sight.state] += weight * J.T @ J
            b[sight.state] += weight * J.T @ r
            at = np.append(np.arange(n)[_block(sight.gate)], n - 1)
            A[np.ix_(at, at)] += weight * G.T @ G
            a[at] += weight * G.T @ r
            E[sight.chain][sight.state][:, at] += weight * J.T @ G
        # The states first: (A - E' B^-1 E) dg = a - E' B^-1 b, then B dx = b - E dg.
        eliminated = []
        for (D, L, b), blocks in zip(normals, E, strict=True):
            e = blocks.reshape(-1, n)
            back = solve(D, L, np.column_stack([b.ravel(), e]))
            A -= e.T @ back[:, 1:]
            a -= e.T @ back[:, 0]
            eliminated.append(back)
        cov = np.asarray(np.linalg.inv(A), float)
        dg = cov @ a
        for c, back in enumerate(eliminated):
            self._chains[c] = self._chains[c].moved((back[:, 0] - back[:, 1:] @ dg).reshape(-1, N))
        self._gates = [
            replace(gate, p_w=gate.p_w + d[X], yaw=gate.yaw + d[YAW])
            for gate, d in zip(self._gates, dg[:-1].reshape(-1, BLOCK), strict=True)
        ]
        self._swell_m += dg[-1]
        return cov


def _white(one: GateSighting) -> Array:
    """(8, 8): the corners err each for itself, and all outward together."""
    shared = SHARED_PX * outward(one.corners_px).ravel()
    R = np.outer(shared, shared)
    for k in range(4):
        R[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] += one.cov_px[k]
    return np.asarray(np.linalg.cholesky(np.linalg.inv(R)).T)


def _block(gate: int) -> slice:
    """Where a gate's unknowns are."""
    return slice(BLOCK * gate, BLOCK * (gate + 1))


def passed_in_order(found: Map, frame: GateFrame) -> list[MappedGate]:
    """The gates that the first flight has flown through, in that order, each turned the way of its first passing."""
    passed = []
    p = found.chains[0].path()[1]
    for gate in found.gates:
        for yaw in (gate.yaw, gate.yaw + math.pi):
            opening = Gate(tuple(gate.p_w.tolist()), math.degrees(yaw), 0.0, frame.opening_m)
            near = np.flatnonzero(np.linalg.norm(p[:-1] - gate.p_w, axis=1) < NEAR_M)
            for k in near.tolist():
                crossing = opening.crossing(p[k], p[k + 1])
                if crossing is not None and crossing.margin > 0:
                    passed.append((k, replace(gate, yaw=math.remainder(yaw, 2 * math.pi))))
                    break
    return [gate for _, gate in sorted(passed, key=lambda one: one[0])]
