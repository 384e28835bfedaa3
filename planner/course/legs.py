"""Legs of a flight: each ends on a plane normal to a gate's axis, in a ball, or at rest.

A planar gate has three legs: to the plane at which its prism is entered, through the prism to the gate's plane, and on to the
plane at which the prism is left.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from gate_racer.planner.course.solids import ROUND_M, FreeSpace, Solid, edge_half_m
from gate_racer.planner.task import Task
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array


@dataclass(frozen=True, eq=False)
class Leg:
    """Leg to a gate, or to rest at `end` (3,), m, world NED."""

    gate: Gate | None
    end: Array | None = None
    plane_m: float = 0.0  # m along the gate's axis, plane on which the leg ends
    inside: bool = False  # whether the leg stays within the gate's prism
    # m behind the gate up to which a straight extension stays within the prism, if the plan ends in the gate.
    coast_m: float = 0.0
    frame: int = -1  # index in the track of the gate whose frame surrounds the leg; -1 outside of frames
    edge_half_m: float = 0.0  # m, half length of the opening's edges along the gate's axis
    # (E,) m, distance from the vehicle's centre to each edge of the opening.
    keep_m: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def passes(self) -> bool:
        """Whether the leg ends with the passage of a gate or a stop."""
        return self.plane_m == 0

    @property
    def target(self) -> Array:
        """Target point (3,), m, world NED."""
        if self.gate is not None:
            return self.gate.p_wg + self.plane_m * self.gate.R_wg[:, 0]
        assert self.end is not None
        return self.end


def legs(task: Task, space: FreeSpace) -> list[Leg]:
    """Return the legs of the whole flight.

    Raises:
        UserError: the vehicle cannot pass a gate, or cannot leave its start.
    """
    result: list[Leg] = []
    for i in range(len(task.gates)):
        last = i + 1 == len(task.gates)
        parts = _passage(task, i, last and task.end_m is None and task.begin is not None)
        _require_room(f"gates[{task.number(i)}]", parts, task, space)
        result += parts
        if last and task.begin is None and parts[-1].inside:
            result = [result.pop(), *result]  # a lap that ends in a gate begins by leaving it
    if task.end_m is not None:
        result.append(Leg(None, np.array(task.end_m)))
        _require_room("the end position", result[-1:], task, space)
    return result if task.begin is None else _from_start(result, np.array(task.begin.position_m), task, space)


def _portal_m(task: Task, edge_m: float) -> float:
    """Return the distance in m from a gate's plane to the planes at which its prism is entered and left, clear of its frame.

    Args:
        edge_m: half length of the opening's edges along the gate's axis.
    """
    return max(task.passage_m, edge_m + task.keep_m) + ROUND_M


def _passage(task: Task, i: int, coasts: bool) -> list[Leg]:
    """Return the legs to and through the i-th gate of the flight; without the leg out of it if the plan ends there."""
    gate, keep = task.gates[i], task.keeps_m(i)
    if gate.is_ball:
        return [Leg(gate)]
    edge = edge_half_m(gate, float(keep.min()) - task.vehicle.contact_radius_m)
    portal, frame = _portal_m(task, edge), task.landmarks[i] if gate.has_frame else -1
    to = Leg(gate, plane_m=-portal, edge_half_m=edge, keep_m=keep)
    through = replace(to, plane_m=0.0, inside=True, coast_m=portal if coasts else 0.0, frame=frame)
    return [to, through] if coasts else [to, through, replace(through, plane_m=portal)]


def _from_start(parts: list[Leg], p0: Array, task: Task, space: FreeSpace) -> list[Leg]:
    """Return the legs of a flight that begins at p0 (3,): inside a gate's prism it first leaves that gate, or passes it.

    Raises:
        UserError: the start is too near to a solid.
    """
    track, ahead = task.track, parts[0].gate
    if ahead is not None and not ahead.is_ball and _within(ahead, p0, task.body_m, parts[0].plane_m, 0.0):
        return parts[1:]
    for i, gate in enumerate(track.gates):
        edge = edge_half_m(gate, task.options.margin_m)
        portal = 0.0 if gate.is_ball else _portal_m(task, edge)
        if portal and _within(gate, p0, task.body_m, -portal, portal):
            frame = track.landmarks[i] if gate.has_frame else -1
            keep = np.full(len(gate.edges), task.keep_m)
            out = Leg(gate, plane_m=portal, inside=True, frame=frame, edge_half_m=edge, keep_m=keep)
            return [out, *parts]
    for solid in space.solids:
        off = float(solid.box.distance(p0))
        if off < solid.keep_m:
            raise UserError(
                f"{track.name}: the start lies {off:.2f} m from {solid.name}, at least {solid.keep_m:.2f} m are needed"
            )
    return parts


def _within(gate: Gate, p_w: Array, body: float, low: float, high: float) -> bool:
    return low < gate.local(p_w)[0] < high and gate.margin(p_w) > body


def _require_room(where: str, parts: list[Leg], task: Task, space: FreeSpace) -> None:
    """Check that the vehicle fits at the end of each leg to a goal named `where`.

    Raises:
        UserError: it does not.
    """
    gate, name, keep = parts[0].gate, task.vehicle.name, float(min(parts[0].keep_m, default=task.keep_m))
    where = f"{task.track.name}: {where}"
    if gate is not None and not gate.is_ball and gate.half <= keep:
        raise UserError(
            f"{where}: the opening of {2 * gate.half:g} m is too small, {name} needs more than {2 * keep:.2f} m"
        )
    for leg in parts:
        ends = _ends(leg, task)
        reach = float(np.linalg.norm(ends - leg.target, axis=1).max())
        others = [solid for solid in space.near(leg.target, reach) if not _surrounds(solid, leg, task)]
        if not space.holds(ends, others).any():
            at = "at it" if leg.gate is None else "in its opening"
            if not leg.passes:
                at = f"{abs(leg.plane_m):.2f} m {'before' if leg.plane_m < 0 else 'behind'} it"
            near = [solid.name for solid in others if solid.box.distance(leg.target) < keep]
            raise UserError(
                f"{where}: no position {at} is {keep:.2f} m clear of "
                + (" and ".join(near) or "its edges, the bounds, the obstacles and other gates")
            )


def _surrounds(solid: Solid, leg: Leg, task: Task) -> bool:
    """Check whether a solid is the frame of the gate of a leg."""
    return solid.frame >= 0 and leg.gate is not None and leg.gate.same_frame(task.track.gates[solid.frame])


def _ends(leg: Leg, task: Task) -> Array:
    """Return a grid of points (M, 3), m, at which the leg may end, apart from solids and bounds."""
    side, gate = np.linspace(-1, 1, 9), leg.gate
    if gate is None:
        return leg.target[None]
    if gate.is_ball:
        points = leg.target + gate.half * np.array([(x, y, z) for x in side for y in side for z in side])
        return points[np.linalg.norm(points - leg.target, axis=1) <= gate.half]
    reach, keep = gate.edges[:, 2].max(), leg.keep_m if leg.passes else task.body_m
    points = reach * np.array([(0, y, z) for y in side for z in side])
    room = gate.edges[:, 2] - points[:, 1:] @ gate.edges[:, :2].T
    return np.vstack([leg.target, leg.target + points[(room >= keep).all(axis=1)] @ gate.R_wg.T])
