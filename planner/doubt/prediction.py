"""Predicted distribution of the true position about the planned one, along a flight and at its gate crossings.

The covariances of estimation error and closed-loop dispersion add, since the estimate is uncorrelated with its error (Bry and
Roy 2011, eq. 24). The distance from the flight's line to an edge of an opening is measured normal to both:

    d = (v . x) n - (v . n) x, normalised,   sigma^2 = d' C d,   room = h' (the edge's distance along d) - contact radius
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.doubt.estimate import IMU_HZ, estimate_doubt
from planner.doubt.motion import Motion, motion
from planner.doubt.tracking import Response, tracking_doubt
from planner.models import P
from planner.plan import Plan
from planner.task import Task
from tracks.gate import Gate
from vehicle.doubt import Doubt
from vehicle.rotation import Array

SPEED_MIN = 0.5  # m/s along a gate's axis, as in the planner's constraint


def edges_of(gate: Gate) -> Array:
    """Return `Gate.edges` (E, 3); a ball has none."""
    return np.zeros((0, 3)) if gate.is_ball else gate.edges


@dataclass(frozen=True, eq=False)
class Spread:
    """Covariance with one-sided contributions s_k; its standard deviation depends on the direction d, a unit vector:

    sigma(d)^2 = d' C d + sum_k max(0, d . s_k)^2
    """

    cov: Array  # (n, n) m^2
    short: Array  # (K, n) m, one-sided contributions

    def sigmas(self, directions: Array) -> Array:
        """Return standard deviations (E,), m, towards unit vectors (E, n)."""
        shortfall = np.maximum(directions @ self.short.T, 0.0)
        return np.sqrt(np.einsum("ei,ij,ej->e", directions, self.cov, directions) + (shortfall**2).sum(axis=1))

    def tube(self, directions: Array) -> Array:
        """Return points (E, n), m, of the one-sigma surface with normals d, the gradient of sigma; an ellipsoid if nothing is
        one-sided."""
        shortfall = np.maximum(directions @ self.short.T, 0.0)
        return np.asarray((directions @ self.cov + shortfall @ self.short) / self.sigmas(directions)[:, None])


@dataclass(frozen=True, eq=False)
class Crossing:
    """Predicted passage of a gate."""

    gate: Gate
    t: float  # s of plan time
    p_w: Array  # (3,) m, planned position
    v_w: Array  # (3,) m/s, planned velocity
    cov: Array  # (3, 3) m^2, world NED, of the true position relative to the true gate, minus the planned one
    short_w: Array  # (K, 3) m, world NED, one-sided shift by one standard deviation of each shortfall
    estimate_cov: Array  # (3, 3) m^2, world NED, the estimation error's part of `cov`

    @cached_property
    def _local(self) -> tuple[Array, Array]:
        return self.gate.local(self.p_w), self.v_w @ self.gate.R_wg

    @cached_property
    def _in_plane(self) -> Array:
        """Derivative (2, 3) of the crossing point, right and down, with respect to the position: p_yz - v_yz / v_x p_x."""
        v = self._local[1]
        return np.asarray(np.column_stack([-v[1:] / max(v[0], SPEED_MIN), np.eye(2)]) @ self.gate.R_wg.T)

    @property
    def across(self) -> "Spread":
        """Distribution of the crossing point in the gate's plane, right and down."""
        return Spread(self._in_plane @ self.cov @ self._in_plane.T, self.short_w @ self._in_plane.T)

    @property
    def estimate_across(self) -> Array:
        """Covariance (2, 2), m^2, of the estimation error in the crossing point."""
        return np.asarray(self._in_plane @ self.estimate_cov @ self._in_plane.T)

    @cached_property
    def planned_m(self) -> Array:
        """Planned crossing point (2,), m, right and down of the opening's centre."""
        return np.asarray(self._local[0][1:])

    @cached_property
    def _towards(self) -> Array:
        """Unit vectors d (E, 3) in gate axes, from the path to each edge."""
        v, edges = self._local[1], edges_of(self.gate)
        out = edges[:, :2] @ v[1:]
        d = np.column_stack([-out, edges[:, :2] * v[0]])
        return np.asarray(d / np.linalg.norm(d, axis=1, keepdims=True))

    @cached_property
    def sigmas_m(self) -> Array:
        """Standard deviations (E,), m, towards each edge of the opening."""
        return Spread(self.cov, self.short_w).sigmas(self._towards @ self.gate.R_wg.T)

    @cached_property
    def distances_m(self) -> Array:
        """Distances (E,), m, from the planned line to each edge."""
        n, edges = self._towards, edges_of(self.gate)
        inside = edges[:, 2] - edges[:, :2] @ self.planned_m
        return np.asarray(inside * (n[:, 1:] * edges[:, :2]).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted distribution of the position along a whole flight."""

    motion: Motion
    cov: Array  # (M, 3, 3) m^2, world NED, of the true position minus the planned one, relative to the next gate
    short_w: Array  # (M, K, 3) m, as in `Crossing`
    crossings: tuple[Crossing, ...]


def predict(plan: Plan, task: Task, doubt: Doubt, loop: Response | None = None) -> Prediction:
    """Predict the distribution of the position along a plan, from rest on the pad.

    Args:
        loop: closed-loop response of the controller; None for the fitted one.
    """
    loop = loop or Response()
    path = motion(plan, task.vehicle, IMU_HZ)
    passed = plan.gate_times_s[: len(task.gates)]
    flown_to = np.minimum(passed.searchsorted(path.t), len(passed) - 1)
    estimate = estimate_doubt(path, flown_to, task, doubt)
    tracked = tracking_doubt(path, estimate, task, doubt, loop)
    cov, short_w = (estimate.cov + tracked.cov)[:, :3, :3], tracked.short_w
    last = path.t.searchsorted(passed, side="right") - 1  # the last sample on the way to each gate
    crossings = tuple(
        Crossing(gate, float(t), plan.x[node, P], path.v_w[k], cov[k], short_w[k], estimate.cov[k][:3, :3])
        for gate, t, node, k in zip(task.gates, passed, plan.gate_nodes, last, strict=False)
    )
    return Prediction(path, cov, short_w, crossings)
