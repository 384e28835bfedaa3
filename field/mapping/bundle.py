"""Positions of the gates from images and IMU of flights: one robust least-squares problem.

    minimise  sum rho( |corner seen - project(x_k, corner of gate g)|^2 )  +  the chain of each flight  +  priors

over all states x_k of the flights (`field.mapping.flight`; camera tilt, clock offset and edge offset are part of them),
each gate's centre, yaw and pitch, the errors of their common size and depth, and the other uncertain parameters
(`field.mapping.flight`): bundle adjustment with square landmarks of known size (Triggs et al. 2000), by reweighted
Gauss-Newton (Cauchy), with the states eliminated first. The pad is the origin, which fixes the gauge. Gates are almost
upright.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.field.mapping.flight import (
    LEAN_IN_SHARED,
    SHARED,
    ChainNormal,
    LoggedFlight,
    M,
    MapError,
    MapPriors,
    N,
    StateChain,
    differs,
    first_guess,
    specified,
    unknown,
)
from gate_racer.model.reprojection import NEAR_M as NEAR_DEPTH_M
from gate_racer.model.reprojection import CameraContext, GateSighting, calibrated, outward, project
from gate_racer.model.rims import GateAppearance, GateRims
from gate_racer.model.states import DELAY, EDGE_PX, FOCAL, TILT, P, State
from gate_racer.perception.association import Associator
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import GateFrame
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, as_vector, exp, from_euler, matrix, product, to_euler
from gate_racer.vehicle.statistics import greatest_sigma
from gate_racer.vehicle.vehicle import Vehicle

Rows = tuple[float, Array, Array, Array]  # of one sight, see `Bundle.whitened`
# Factor on the priors below at each step; None: keep the association of the previous step.
DOUBTS = 1.0, None, 0.1, None
BY_ITSELF = DOUBTS[:2]  # steps of one flight of several, before all are solved together
PRIOR_M, PRIOR_RAD = 0.5, 0.02  # standard deviations of the trajectory for the association
SHARED_PX = 0.25  # px, common outward error of the edges in one image: large, since light and size are common to many
ROBUST = 2.0  # sigmas, scale of the Cauchy weight
X, YAW_OFFSET, PITCH = slice(0, 3), 3, 4  # unknowns of a gate
BLOCK = 5  # number of unknowns of a gate: position, yaw, pitch
COMMON = 2 + M  # edge offset of all openings, excess depth of all frames, and the parameters shared by all states
DEEPER_M = 0.02  # m, finite difference of a frame's depth for its effect on the visible opening
NO_PLACE = np.zeros(1, int)  # a gate's offset is part of its position here


@dataclass(frozen=True)
class MappedGate:
    """A gate with the covariance of centre (m), yaw and pitch (rad)."""

    p_w: Array  # (3,) m
    yaw: float  # rad
    cov: Array  # (5, 5)
    sightings: int
    pitch: float = 0.0  # rad, up: nominally 0, true to a degree or two

    @property
    def sigma_m(self) -> float:
        """Standard deviation of the centre along its worst direction, m."""
        return greatest_sigma(self.cov[X, X])

    @property
    def sigma_yaw_deg(self) -> float:
        """Standard deviation of the yaw, deg."""
        return math.degrees(math.sqrt(self.cov[YAW_OFFSET, YAW_OFFSET]))


@dataclass(frozen=True)
class Sight:
    chain: int
    state: int
    gate: int
    seen_px: Array  # (4, 2) in the order of the gate's corners
    white: Array  # (8, 8) square root of the corners' information matrix
    hole_g: Array  # (4, 3) m, visible corners of the opening, gate frame
    by_depth_g: Array  # (4, 3) derivative with respect to the depth of the frame


class Bundle:
    def __init__(
        self,
        chains: list[StateChain],
        gates: list[MappedGate],
        camera: Camera,
        frame: GateFrame,
        look: GateAppearance,
        doubt: MapPriors,
    ):
        self.chains, self.gates = chains, gates
        self.edge_offset_m, self.extra_depth_m, self.shared = 0.0, 0.0, chains[0].states[0][SHARED]
        self._camera, self._frame, self._look, self._doubt = camera, frame, look, doubt

    def solve(self, doubts: Sequence[float | None] = DOUBTS) -> tuple[Array, list[Sight]]:
        """Return the covariance of gates, edge offset, depth and shared parameters, and the sightings used."""
        sights: list[Sight] = []
        for doubt in doubts:
            sights = sights if doubt is None else self.recognised(doubt)
            cov = self._step(sights, marginal=doubt is None)
        return cov, sights

    def recognised(self, doubt: float) -> list[Sight]:
        """Associate openings with gates by the current map and trajectories."""
        f = self._frame
        known = [
            Gate(as_vector(g.p_w), math.degrees(g.yaw), math.degrees(g.pitch), f.opening_m, f.outer_m, f.depth_m)
            for g in self.gates
        ]
        sights = []
        cov = np.diag(np.repeat([doubt * PRIOR_M, 0.0, doubt * PRIOR_RAD], 3) ** 2)
        looks = self._look, replace(self._look, depth_m=self._look.depth_m + DEEPER_M)
        thin, deep = (GateRims(known, look) for look in looks)
        for c, chain in enumerate(self.chains):
            last = chain.states[-1]
            associator = Associator(known, calibrated(self._camera, last), self._look)
            for k, image in enumerate(chain.images, start=1):
                x = chain.states[k]
                tilted = np.array(product(x.q_wb, exp(x[DELAY] * chain.omega(k) + [0.0, x[TILT] - last[TILT], 0.0])))
                prior = State(x.t, x.p_wb + x[DELAY] * x.v_w, tilted, cov=cov)
                found, _ = associator.associate(prior, image.detections)
                for one in found:
                    gate, face = known[one.gate], image.detections[one.detection].near_face
                    step_w = _seen(deep, one.gate, face, x.p_wb) - _seen(thin, one.gate, face, x.p_wb)
                    hole_g, by_depth_g = (one.corners_w - gate.p_wg) @ gate.R_wg, step_w @ gate.R_wg / DEEPER_M
                    sights.append(Sight(c, k, one.gate, one.corners_px, _white(one), hole_g, by_depth_g))
        return sights

    def residual(self, sight: Sight) -> tuple[Array, Array, Array]:
        """Return the reprojection residual, measured minus predicted corners, (4, 2) px, and its Jacobians with respect to
        the state (4, 2, N), and to the gate and the common parameters (4, 2, BLOCK + COMMON).
        """
        chain, gate = self.chains[sight.chain], self.gates[sight.gate]
        x = chain.states[sight.state]
        R_gw = matrix(from_euler(0.0, gate.pitch, gate.yaw)).T
        arm_w = (sight.hole_g + self.extra_depth_m * sight.by_depth_g) @ R_gw
        context = CameraContext(self._camera, chain.omega(sight.state), 0.0, np.zeros(3), np.zeros(3))
        px, J, depth = (part[0] for part in project(x, context, NO_PLACE, (gate.p_w + arm_w)[None]))
        G = np.zeros((4, 2, BLOCK + COMMON))
        G[..., X] = -J[..., P]
        G[..., YAW_OFFSET] = G[..., 0] * -arm_w[:, 1:2] + G[..., 1] * arm_w[:, 0:1]
        G[..., PITCH] = (G[..., X] * np.cross(R_gw[1], arm_w)[:, None]).sum(-1)
        G[..., BLOCK] = J[..., EDGE_PX] * (self._camera.fx_px / np.maximum(depth, NEAR_DEPTH_M))[:, None]
        G[..., BLOCK + 1] = (G[..., X] @ (sight.by_depth_g @ R_gw)[..., None])[..., 0]
        G[..., BLOCK + 2 :] = J[..., SHARED]
        return sight.seen_px - px - self.edge_offset_m * G[..., BLOCK], J[..., :N], G

    def whitened(self, sight: Sight) -> Rows:
        """Return the Cauchy weight, and residual (8,) and Jacobians (8, N), (8, BLOCK + COMMON) with unit covariance."""
        r, J, G = self.residual(sight)
        r, J, G = sight.white @ r.ravel(), sight.white @ J.reshape(8, N), sight.white @ G.reshape(8, BLOCK + COMMON)
        return 1 / (1 + float(r @ r) / (len(r) * ROBUST**2)), r, J, G

    def _step(self, sights: list[Sight], marginal: bool = False) -> Array:
        """Take one Gauss-Newton step; return the covariance of the gates' unknowns, then edge offset, depth and `SHARED`.

        With `marginal` it maximises the density of the map alone, see `growth`.
        """
        normals = [chain.normal(self._doubt, self._look) for chain in self.chains]
        n = BLOCK * len(self.gates) + COMMON
        A, a = np.zeros((n, n)), np.zeros(n)
        E = [np.zeros((len(chain.states), N, n)) for chain in self.chains]
        A.flat[:: n + 1] = 1e-6  # regularises gates without sightings
        common = slice(n - COMMON, n)
        known = np.r_[self._doubt.edge_offset_m, self._doubt.depth_m, self._doubt.shared] ** -2.0
        A[common, common] += np.diag(known)
        a[common] -= known * np.r_[self.edge_offset_m, self.extra_depth_m, self.shared]
        for g, gate in enumerate(self.gates):
            at = block(g).start + PITCH
            A[at, at] += self._doubt.pitch_rad**-2.0
            a[at] -= self._doubt.pitch_rad**-2.0 * gate.pitch
        lean = slice(n - M + LEAN_IN_SHARED.start, n - M + LEAN_IN_SHARED.stop)
        for normal, blocks in zip(normals, E, strict=True):
            A[lean, lean] += normal.by_lean
            a[lean] += normal.of_lean
            blocks[:, :, lean] += normal.with_lean
        rows = [self.whitened(sight) for sight in sights]
        for sight, (weight, r, J, G) in zip(sights, rows, strict=True):
            normal = normals[sight.chain]
            normal.D[sight.state] += weight * J.T @ J
            normal.b[sight.state] += weight * J.T @ r
            at = np.r_[block(sight.gate), common]
            A[np.ix_(at, at)] += weight * G.T @ G
            a[at] += weight * G.T @ r
            E[sight.chain][sight.state][:, at] += weight * J.T @ G
        if marginal:
            a += self.growth(sights, rows, normals)
        # Eliminate the states: (A - E' B^-1 E) dg = a - E' B^-1 b, then B dx = b - E dg.
        eliminated = []
        for normal, blocks in zip(normals, E, strict=True):
            e = blocks.reshape(-1, n)
            back = normal.solve(np.column_stack([normal.b.ravel(), e]))
            A -= e.T @ back[:, 1:]
            a -= e.T @ back[:, 0]
            eliminated.append(back)
        cov = np.asarray(np.linalg.inv(A), float)
        dg = cov @ a
        for c, back in enumerate(eliminated):
            self.chains[c] = self.chains[c].moved((back[:, 0] - back[:, 1:] @ dg).reshape(-1, N), dg[n - M :])
        self.gates = [
            replace(gate, p_w=gate.p_w + d[X], yaw=gate.yaw + d[YAW_OFFSET], pitch=gate.pitch + d[PITCH])
            for gate, d in zip(self.gates, dg[: n - COMMON].reshape(-1, BLOCK), strict=True)
        ]
        self.edge_offset_m += dg[n - COMMON]
        self.extra_depth_m += dg[n - COMMON + 1]
        self.shared = self.shared + dg[n - M :]
        return cov

    def growth(self, sights: list[Sight], rows: list[Rows], normals: list[ChainNormal]) -> Array:
        """Return the gradient, by the map's scale, of the logarithm of the trajectories' share of the posterior.

        `rows`: of the sights, as `whitened`.

        The joint maximum over map and trajectory favours small maps: images determine positions the more closely, in metres,
        the nearer the gates are. Integrated over the states, the density of a map has the factor |B|^(-1/2), B being the
        states' normal matrix, and d log |B|^(-1/2) / d log scale = sum tr(J_p cov_px J') over the images: the number of
        coordinates that images determine (Neyman and Scott 1948). Each gate takes its share, along its direction from the pad.
        """
        covs = [normal.covariances() for normal in normals]
        shares = np.zeros(len(self.gates))
        for sight, (weight, _, J, _) in zip(sights, rows, strict=True):
            shares[sight.gate] += weight * float((J[:, P] * (J @ covs[sight.chain][sight.state])[:, P]).sum())
        p_w = np.array([gate.p_w for gate in self.gates])
        by_scale = np.zeros(BLOCK * len(self.gates) + COMMON)
        weighted = shares[:, None] * p_w
        by_scale[:-COMMON].reshape(-1, BLOCK)[:, X] = shares.sum() * weighted / max(float((weighted * p_w).sum()), 1e-9)
        return by_scale


def _seen(rims: GateRims, gate: int, near_face: bool, p_w: Array) -> Array:
    """Return the corners of a gate to which a detection from p_w (3,) m refers, (4, 3) m, world NED."""
    at, eye_w = np.array([gate]), p_w[None]
    return rims.near_face(at, eye_w)[0] if near_face else rims.opening(at, eye_w)[1][0]


def _white(one: GateSighting) -> Array:
    """Return the whitening matrix (8, 8): independent errors of the corners, and a common outward error."""
    shared = SHARED_PX * outward(one.corners_px).ravel()
    R = np.outer(shared, shared)
    for k in range(4):
        R[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] += one.cov_px[k]
    return np.asarray(np.linalg.cholesky(np.linalg.inv(R)).T)


def block(gate: int) -> slice:
    return slice(BLOCK * gate, BLOCK * (gate + 1))


LEAST_SIGHTINGS = 4  # sightings required of a gate
NEAR_M = 3.0  # m from its centre, within which a gate is flown through
SAME_M = 1.5  # m, side of an opening: gates closer than this are one gate, seen first from two places or on two flights


@dataclass(frozen=True)
class Map:
    """All gates with enough sightings, and the estimated camera."""

    gates: list[MappedGate]
    chains: list[StateChain]
    tilt_deg: float
    delay_s: float  # s, exposure minus stamp
    edge_offset_m: float  # outward offset of the gates' edges from the nominal ones
    extra_depth_m: float  # excess of the frames' depth over the nominal one
    residual_px: float  # median distance between measured and predicted corners
    calibrated: bool  # camera and IMU were estimated, since they differ from the vehicle's file
    focal: float  # relative excess of the focal length over the file's

    @property
    def pad(self) -> tuple[float, float, float]:
        """Roll, pitch and yaw (rad) of the vehicle on the pad, in the frame of the map."""
        return to_euler(self.chains[0].states[0].q_wb)


def map_gates(flights: Sequence[LoggedFlight], vehicle: Vehicle, frame: GateFrame, look: GateAppearance) -> Map:
    """Estimate all gates with enough sightings. Raises MapError if there is none, or a flight shares none with the first."""
    given, doubt = (vehicle.camera, frame, look), unknown(vehicle, look)
    chains, gates = list[StateChain](), list[MappedGate]()
    for flight in flights:
        chain, front = first_guess(flight, vehicle.camera, frame.opening_m, look)
        own = list[MappedGate]()
        for mark in sorted(front.landmarks, key=lambda mark: -mark.seen):
            if not _is_known(mark.p_w, own):
                own.append(MappedGate(mark.p_w, mark.yaw, np.eye(BLOCK), mark.seen))
        if own and len(flights) > 1:  # the filter's map drifts by metres, too far to find the gates of another flight
            alone = Bundle([chain], own, *given, doubt)
            alone.solve(BY_ITSELF)
            chain, own = alone.chains[0], alone.gates
        if gates and not any(_is_known(gate.p_w, gates) for gate in own):
            raise MapError(f"{flight.path}: no gate is one of {flights[0].path}: another course, pad or north?")
        shared = [*chains, chain][0].states[0][SHARED] - chain.states[0][SHARED]
        chains.append(chain.moved(np.zeros((len(chain.states), N)), shared))
        gates += [gate for gate in own if not _is_known(gate.p_w, gates)]
    if not gates:
        raise MapError(f"{flights[0].path}: no complete opening was seen often enough to be mapped as a gate")
    free = Bundle(list(chains), list(gates), *given, doubt)
    cov, sights = free.solve()
    if differs(free.shared, cov[-M:, -M:]):
        return _map(free, cov, sights, vehicle.camera, calibrated=True)
    held = Bundle(chains, gates, *given, specified(vehicle))
    return _map(held, *held.solve(), vehicle.camera, calibrated=False)


def _map(bundle: Bundle, cov: Array, sights: Sequence[Sight], camera: Camera, calibrated: bool) -> Map:
    counts = [sum(sight.gate == g for sight in sights) for g in range(len(bundle.gates))]
    gates = [
        replace(gate, cov=cov[block(g), block(g)], sightings=counts[g])
        for g, gate in enumerate(bundle.gates)
        if counts[g] >= LEAST_SIGHTINGS
    ]
    last = bundle.chains[0].states[-1]
    off = [np.linalg.norm(bundle.residual(sight)[0], axis=-1) for sight in sights]
    tilt, residual_px = camera.tilt_deg + math.degrees(float(last[TILT])), float(np.median(off)) if off else math.nan
    lens = calibrated, float(last[FOCAL])
    return Map(
        gates, bundle.chains, tilt, float(last[DELAY]), bundle.edge_offset_m, bundle.extra_depth_m, residual_px, *lens
    )


def _is_known(p_w: Array, gates: Sequence[MappedGate]) -> bool:
    return any(np.linalg.norm(p_w - gate.p_w) < SAME_M for gate in gates)


def passed_in_order(found: Map, frame: GateFrame) -> list[MappedGate]:
    """Return the gates flown through by the first flight, in order, each oriented along its first passage."""
    passed = []
    p = found.chains[0].path()[1]
    for gate in found.gates:
        near = np.flatnonzero(np.linalg.norm(p[:-1] - gate.p_w, axis=1) < NEAR_M).tolist()
        ways = [(gate.yaw, gate.pitch), (gate.yaw + math.pi, -gate.pitch)]
        openings = [Gate(as_vector(gate.p_w), math.degrees(yaw), 0.0, frame.opening_m) for yaw, _ in ways]
        for k, (opening, (yaw, pitch)) in itertools.product(near, zip(openings, ways, strict=True)):
            crossing = opening.crossing(p[k], p[k + 1])
            if crossing is not None and crossing.margin > 0:
                passed.append((k, replace(gate, yaw=math.remainder(yaw, 2 * math.pi), pitch=pitch)))
                break
    return [gate for _, gate in sorted(passed, key=lambda one: one[0])]
