"""The least-squares problem of a map, see `field.mapping.gates`, and its solution by reweighted Gauss-Newton (Cauchy)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.estimation.eskf.reprojection import NEAR_M as NEAR_DEPTH_M
from gate_racer.estimation.eskf.reprojection import CameraContext, calibrated, outward, project
from gate_racer.estimation.eskf.states import DELAY, EDGE_PX, TILT, P
from gate_racer.field.mapping.doubt import LEAN_IN_SHARED, SHARED, M, MapPriors
from gate_racer.field.mapping.trajectory import ChainNormal, N, StateChain, diagonal_of_inverse, solve
from gate_racer.perception.association import Associator, GateSighting
from gate_racer.perception.rims import GateAppearance, GateRims
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import GateFrame
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, exp, from_euler, matrix, product
from gate_racer.vehicle.statistics import greatest_sigma

Rows = tuple[float, Array, Array, Array]  # of one sight, see `Bundle.whitened`
# Factor on the priors below at each step; None: keep the association of the previous step.
DOUBTS = 1.0, None, 0.1, None
BY_ITSELF = DOUBTS[:2]  # steps of one flight of several, before all are solved together
PRIOR_M, PRIOR_RAD = 0.5, 0.02  # standard deviations of the trajectory for the association
SHARED_PX = 0.25  # px, common outward error of the edges in one image: large, since light and size are common to many
ROBUST = 2.0  # sigmas, scale of the Cauchy weight
X, YAW, PITCH = slice(0, 3), 3, 4  # unknowns of a gate
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
        return math.degrees(math.sqrt(self.cov[YAW, YAW]))


@dataclass(frozen=True)
class Sight:
    """One recognised opening in one image."""

    chain: int
    state: int
    gate: int
    seen_px: Array  # (4, 2) in the order of the gate's corners
    white: Array  # (8, 8) square root of the corners' information matrix
    hole_g: Array  # (4, 3) m, visible corners of the opening, gate frame
    by_depth_g: Array  # (4, 3) derivative with respect to the depth of the frame


class Bundle:
    """The problem and its current estimate."""

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
            Gate(
                tuple(gate.p_w.tolist()),
                math.degrees(gate.yaw),
                math.degrees(gate.pitch),
                f.opening_m,
                f.outer_m,
                f.depth_m,
            )
            for gate in self.gates
        ]
        sights = []
        cov_p = (doubt * PRIOR_M) ** 2 * np.eye(3)
        looks = self._look, replace(self._look, depth_m=self._look.depth_m + DEEPER_M)
        thin, deep = (GateRims(known, look) for look in looks)
        for c, chain in enumerate(self.chains):
            last = chain.states[-1]
            associator = Associator(known, calibrated(self._camera, last), self._look)
            for k, image in enumerate(chain.images, start=1):
                x = chain.states[k]
                tilted = np.array(product(x.q_wb, exp(x[DELAY] * chain.omega(k) + [0.0, x[TILT] - last[TILT], 0.0])))
                found, _ = associator.associate(
                    x.t, image.detections, x.p_wb + x[DELAY] * x.v_w, cov_p, tilted, doubt * PRIOR_RAD
                )
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
        G[..., YAW] = G[..., 0] * -arm_w[:, 1:2] + G[..., 1] * arm_w[:, 0:1]
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

        Args:
            marginal: maximise the density of the map alone, see `growth`.
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
            back = solve(normal.D, normal.L, np.column_stack([normal.b.ravel(), e]))
            A -= e.T @ back[:, 1:]
            a -= e.T @ back[:, 0]
            eliminated.append(back)
        cov = np.asarray(np.linalg.inv(A), float)
        dg = cov @ a
        for c, back in enumerate(eliminated):
            self.chains[c] = self.chains[c].moved((back[:, 0] - back[:, 1:] @ dg).reshape(-1, N), dg[n - M :])
        self.gates = [
            replace(gate, p_w=gate.p_w + d[X], yaw=gate.yaw + d[YAW], pitch=gate.pitch + d[PITCH])
            for gate, d in zip(self.gates, dg[: n - COMMON].reshape(-1, BLOCK), strict=True)
        ]
        self.edge_offset_m, self.extra_depth_m = (
            self.edge_offset_m + dg[n - COMMON],
            self.extra_depth_m + dg[n - COMMON + 1],
        )
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
        covs = [diagonal_of_inverse(normal.D, normal.L) for normal in normals]
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
    """Return the slice of a gate's unknowns."""
    return slice(BLOCK * gate, BLOCK * (gate + 1))
