"""Checks of a replayed path: gate passages in order, no passage out of turn, and clearances."""

import numpy as np

from gate_racer.planner.certificate.limits import MARGIN_TOLERANCE
from gate_racer.planner.certificate.replay import ReplayedPath
from gate_racer.planner.certificate.sweep import Near, Passage, clearances, local, out_of_turn, passage, touched
from gate_racer.planner.models import P, V
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import Task
from gate_racer.vehicle.rotation import Array

COAST_MOST_M = 5.0  # m, longest straight extension behind the last gate, on which leaving it is checked
COAST_STEP_M = 0.02  # m, spacing of points on that extension
NODE_TOLERANCE_S = 1e-3  # s, between a gate's node and the crossing of its plane


def beyond(path: ReplayedPath, task: Task) -> tuple[Array, Array]:
    """Return times (M,), s, and positions (M, 3), m, of the path, extended if it ends in a gate.

    A flying lap continues with its beginning; otherwise the vehicle flies straight on, as with both controllers.
    """
    p_w, v, last, length = path.x[:, P], path.x[-1, V], task.gates[-1], task.passage_m
    if task.end_m is not None or last.is_ball:
        return path.t, p_w
    if task.begin is None:
        leaves = np.flatnonzero(local(last, p_w)[:, 0] > length)
        count = int(leaves[0]) + 1 if len(leaves) else len(p_w)
        return np.append(path.t, path.t[-1] + path.t[1:count] - path.t[0]), np.vstack([p_w, p_w[1:count]])
    through = local(last, p_w[-1:] + v)[0, 0] - local(last, p_w[-1:])[0, 0]
    reach = min(1.01 * length * np.linalg.norm(v) / max(through, 1e-3), COAST_MOST_M) + COAST_STEP_M
    steps = np.arange(1, int(reach / COAST_STEP_M) + 2)[:, None] * COAST_STEP_M
    speed = max(float(np.linalg.norm(v)), 1e-3)
    return np.append(path.t, path.t[-1] + steps[:, 0] / speed), np.vstack([p_w, p_w[-1] + steps * v / speed])


def passages(t: Array, p_w: Array, plan: Plan, task: Task) -> tuple[list[Passage], list[str]]:
    """Return the passages of the gates, in order, and sentences on violations."""
    found, failures, before = list[Passage](), list[str](), -1.0
    for i, (gate, node) in enumerate(zip(task.gates, plan.gate_nodes, strict=False)):
        when = float(plan.t[min(max(node, 0), len(plan.t) - 1)])
        if gate.is_ball:
            ends = plan.t[[max(node - 1, 0), min(node + 1, len(plan.t) - 1)]]
            one = touched(gate, t, p_w, *np.searchsorted(t, ends).tolist())
            planned = np.zeros(0)
        else:
            one = passage(gate, t, p_w, before, when, task.passage_m, task.body_m)
            planned = task.keeps_m(i)
            if not one.fault and abs(one.t - when) > NODE_TOLERANCE_S:
                failures.append(f"gate {i} is passed {one.t - when:+.3f} s from the time of its row")
        if one.fault or one.margin_m < (-MARGIN_TOLERANCE if gate.is_ball else 0.0):
            failures.append(f"gate {i} {one.fault or 'is not passed'}")
        elif len(short := np.flatnonzero(np.array(one.edges_m) < planned - MARGIN_TOLERANCE)):
            off, needed = one.edges_m[short[0]], planned[short[0]]
            failures.append(f"gate {i} is passed with {off:.3f} m to an edge instead of {needed:.3f} m")
        elif one.margin_m < planned.min(initial=np.inf) - MARGIN_TOLERANCE and len(planned):
            failures.append(
                f"gate {i} is passed with a margin of {one.margin_m:.3f} m instead of {planned.min():.3f} m"
            )
        found.append(one)
        before = one.t
    return found, failures


def broken_turns(t: Array, p_w: Array, passed: list[Passage], task: Task) -> list[str]:
    """Return sentences on openings that are passed out of order."""
    begin = float(t[0])
    meant = [(mark, one.t) for mark, one in zip(task.landmarks, passed, strict=False)]
    if task.begin is None:
        meant.append((task.landmarks[-1], begin))
    if task.options.start is not None:  # the start may lie within any gate
        meant += [(mark, begin) for mark in set(task.track.landmarks)]
    return out_of_turn(task.track, t, p_w, meant)


def too_near(t: Array, p_w: Array, task: Task) -> tuple[Near | None, list[str]]:
    """Return the nearest solid to the path, and sentences on all solids that are too near.

    At an oblique passage the depth of a frame may reduce the margin, but never the contact radius.
    """
    found, failures = clearances(task.track, p_w), []
    for near in found:
        need = (
            max(task.vehicle.contact_radius_m, task.vehicle.half_diagonal) if near.frame else task.clear_m(near.solid)
        )
        if not near.distance_m >= need - MARGIN_TOLERANCE:
            failures.append(
                f"it comes within {near.distance_m:.3f} m of {near.solid} at {t[near.at]:.2f} s, the least is {need:.3f} m"
            )
    return min(found, key=lambda near: near.distance_m, default=None), failures
