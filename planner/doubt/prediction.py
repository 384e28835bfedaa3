"""Where a flight of a plan will pass its gates: the true place of the vehicle about the planned one, as a covariance.

Doubt of the estimate and dispersion of the loop add up, since what is believed is uncorrelated with what it has wrong (Bry and
Roy 2011, eq. 24). The distance from the flight's line to an edge of an opening counts across both:

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

SPEED_MIN = 0.5  # m/s along a gate's axis, as the planner asks for


def edges_of(gate: Gate) -> Array:
    """(E, 3) as `Gate.edges`; a ball has none."""
    return np.zeros((0, 3)) if gate.is_ball else gate.edges


@dataclass(frozen=True, eq=False)
class Spread:
    """A covariance and what leads to one side only; its standard deviation differs from direction to direction:

    sigma(d)^2 = d' C d + sum_k max(0, d . s_k)^2
    """

    cov: Array  # (n, n) m^2
    short: Array  # (K, n) m

    def sigmas(self, directions: Array) -> Array:
        """(E,) m, towards unit vectors (E, n)."""
        aside = np.maximum(directions @ self.short.T, 0.0)
        return np.sqrt(np.einsum("ei,ij,ej->e", directions, self.cov, directions) + (aside**2).sum(axis=1))

    def tube(self, directions: Array) -> Array:
        """(E, n) m, the points of the surface that lies one sigma(d) out in each direction: the gradient of sigma, an ellipsoid's
        where nothing is short."""
        aside = np.maximum(directions @ self.short.T, 0.0)
        return np.asarray((directions @ self.cov + aside @ self.short) / self.sigmas(directions)[:, None])


@dataclass(frozen=True, eq=False)
class Crossing:
    """How a gate will be passed."""

    gate: Gate
    t: float  # s of plan time
    p_w: Array  # (3,) m, planned
    v_w: Array  # (3,) m/s
    cov: Array  # (3, 3) m^2, true place relative to the gate as it stands, less the planned one; world NED
    short_w: Array  # (K, 3) m, where one standard deviation of each shortfall carries it beyond that, and the other way nowhere
    estimate_cov: Array  # (3, 3) m^2, of that the estimate's

    @cached_property
    def _local(self) -> tuple[Array, Array]:
        return self.gate.local(self.p_w), self.v_w @ self.gate.R_wg

    @cached_property
    def _in_plane(self) -> Array:
        """(2, 3) right and down, of where the gate's plane is crossed, by the place in the world: p_yz - v_yz / v_x p_x."""
        v = self._local[1]
        return np.asarray(np.column_stack([-v[1:] / max(v[0], SPEED_MIN), np.eye(2)]) @ self.gate.R_wg.T)

    @property
    def across(self) -> "Spread":
        """Of where the gate's plane is crossed, right and down."""
        return Spread(self._in_plane @ self.cov @ self._in_plane.T, self.short_w @ self._in_plane.T)

    @property
    def estimate_across(self) -> Array:
        """(2, 2) m^2 of that, what the estimate has wrong."""
        return np.asarray(self._in_plane @ self.estimate_cov @ self._in_plane.T)

    @cached_property
    def planned_m(self) -> Array:
        """(2,) right and down of the opening's centre."""
        return np.asarray(self._local[0][1:])

    @cached_property
    def _towards(self) -> Array:
        """(E, 3) unit vectors d in gate axes, from the path to each edge."""
        v, edges = self._local[1], edges_of(self.gate)
        out = edges[:, :2] @ v[1:]
        d = np.column_stack([-out, edges[:, :2] * v[0]])
        return np.asarray(d / np.linalg.norm(d, axis=1, keepdims=True))

    @cached_property
    def sigmas_m(self) -> Array:
        """(E,) m, towards each edge of the opening."""
        return Spread(self.cov, self.short_w).sigmas(self._towards @ self.gate.R_wg.T)

    @cached_property
    def distances_m(self) -> Array:
        """(E,) m from the planned line to each edge."""
        n, edges = self._towards, edges_of(self.gate)
        inside = edges[:, 2] - edges[:, :2] @ self.planned_m
        return np.asarray(inside * (n[:, 1:] * edges[:, :2]).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Prediction:
    """Of a whole flight."""

    motion: Motion
    cov: Array  # (M, 3, 3) m^2, true place less the planned one, relative to the gate flown to; world NED
    short_w: Array  # (M, K, 3) m, as `Crossing` has it
    crossings: tuple[Crossing, ...]


def predict(plan: Plan, task: Task, doubt: Doubt, loop: Response | None = None) -> Prediction:
    """The doubt along a plan, from rest on the pad.

    Args:
        loop: how the controller follows; None: as fitted.
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
