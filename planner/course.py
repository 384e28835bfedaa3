"""The course as the optimiser sees it: where a leg may end, where the vehicle may be, what must stay in view."""

from dataclasses import dataclass

import numpy as np

from planner.asked import body_half_m, flown, initial, keep_clear
from planner.clearance import Solid, portal_m, solids
from planner.options import PlanOptions
from tracks.gate import Gate
from tracks.track import Track
from vehicle.camera import Camera
from vehicle.errors import UserError
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

CROSSING_SPEED_MIN = 0.5  # m/s along the gate's axis: a gate is flown through, not touched
BY_A_BOUND_M = 10.0  # of a gate from a bound, where plans may come near that bound
BLIND = 0.15  # last share of the way to a gate, in which it may leave the picture
VIEW_FRACTION = 0.85  # of the half picture: room for the tracking error and for the gate around its centre


@dataclass(frozen=True)
class Leg:
    """One leg: it ends on a plane across a gate's axis, in a ball, or at rest at `end`.

    A gate with a plane takes three: to the plane where its prism is entered, through the prism to the gate's own plane, and on to
    where the prism is left.
    """

    gate: Gate | None
    end: np.ndarray | None = None
    plane_m: float = 0.0  # along the gate's axis, where the leg ends
    inside: bool = False  # whether it stays within the gate's prism
    coast_m: float = (
        0.0  # so far behind the gate a straight flight on is still within its prism: where a plan ends in a gate
    )
    frame: int = -1  # index in the track of the gate whose frame surrounds the leg, where it is inside one

    @property
    def passes(self) -> bool:
        """Whether a gate is passed at its end, or the vehicle stops there."""
        return self.plane_m == 0

    @property
    def target(self) -> np.ndarray:
        """World point (3,) the leg aims at."""
        if self.gate is not None:
            return self.gate.p_wg + self.plane_m * self.gate.R_wg[:, 0]
        assert self.end is not None
        return self.end


def legs(track: Track, vehicle: Vehicle, options: PlanOptions) -> list[Leg]:
    """The legs of the whole flight.

    Raises:
        UserError: a gate that this vehicle cannot pass, or a start that it cannot leave.
    """
    course, begin = flown(track, options), initial(track, options)
    first = 0 if begin is None else begin.next_gate
    end = None if options.flying_lap else options.stop_m or track.end_m
    result: list[Leg] = []
    for i, gate in enumerate(course):
        frame = track.landmarks[(first + i) % len(track.gates)]
        where, last = f"{track.name}: gates[{(first + i) % len(track.gates)}]", i + 1 == len(course)
        parts = _passage(gate, frame, portal_m(gate, vehicle, options), last and end is None and begin is not None)
        _require_room(where, gate, parts, track, vehicle, options)
        result += parts
        if last and begin is None and parts[-1].inside:
            result = [result.pop(), *result]  # a lap that ends in a gate begins with leaving it
    if end is not None:
        result.append(Leg(None, np.array(end)))
        _require_room(f"{track.name}: the end", None, result[-1:], track, vehicle, options)
    return result if begin is None else _from_start(result, np.array(begin.position_m), track, vehicle, options)


def ways(course: list[Leg]) -> list[list[int]]:
    """The legs' numbers from one passage to the next, each list up to the leg that ends in a passage."""
    result: list[list[int]] = [[]]
    for i, leg in enumerate(course):
        result[-1].append(i)
        if leg.passes and i + 1 < len(course):
            result.append([])
    return result


def _passage(gate: Gate, frame: int, portal: float, coasts: bool) -> list[Leg]:
    """The legs to a gate and through it; none that leaves it where the plan ends there."""
    if gate.is_ball:
        return [Leg(gate)]
    own = frame if gate.has_frame else -1
    through = Leg(gate, inside=True, frame=own, coast_m=portal if coasts else 0.0)
    parts = [Leg(gate, plane_m=-portal), through]
    return parts if coasts else [*parts, Leg(gate, plane_m=portal, inside=True, frame=own)]


def _require_room(
    where: str, gate: Gate | None, parts: list[Leg], track: Track, vehicle: Vehicle, options: PlanOptions
) -> None:
    """Raises UserError when nothing that flies fits there."""
    keep = keep_clear(vehicle, options)
    if gate is not None and not gate.is_ball and gate.half <= keep:
        raise UserError(f"{where}: opening {2 * gate.half:g} m is too small, {vehicle.name} needs {2 * keep:.2f} m")
    for leg in parts:
        if not _free(leg, track, vehicle, options):
            at = "" if leg.plane_m == 0 else f" {abs(leg.plane_m):.2f} m {'before' if leg.plane_m < 0 else 'behind'} it"
            others = [solid for solid in solids(track, vehicle, options) if not _own(solid, leg, track)]
            near = [solid.name for solid in others if solid.box.distance(leg.target) < keep]
            raise UserError(
                f"{where}: no place in it{at} keeps {vehicle.name} {keep:.2f} m clear of "
                + (" and ".join(near) or "its edges, the bounds, the obstacles and other gates")
            )


def _from_start(parts: list[Leg], p0: Array, track: Track, vehicle: Vehicle, options: PlanOptions) -> list[Leg]:
    """The legs of a flight that begins at p0 (3,): within a gate, it first has to leave that one, or is about to pass it."""
    body, ahead = body_half_m(vehicle), parts[0].gate
    if ahead is not None and not ahead.is_ball and _within(ahead, p0, body, parts[0].plane_m, 0.0):
        return parts[1:]
    for i, gate in enumerate(track.gates):
        portal = 0.0 if gate.is_ball else portal_m(gate, vehicle, options)
        if portal and _within(gate, p0, body, -portal, portal):
            own = track.landmarks[i] if gate.has_frame else -1
            return [Leg(gate, plane_m=portal, inside=True, frame=own), *parts]
    for solid in solids(track, vehicle, options):
        off, keep = float(solid.box.distance(p0)), keep_clear(vehicle, options)
        if off < keep:
            raise UserError(f"{track.name}: the start lies {off:.2f} m from {solid.name}, {keep:.2f} m are needed")
    return parts


def _within(gate: Gate, p_w: Array, body: float, low: float, high: float) -> bool:
    return low < gate.local(p_w)[0] < high and gate.margin(p_w) > body


def _free(leg: Leg, track: Track, vehicle: Vehicle, options: PlanOptions) -> bool:
    """Whether some place of the leg's window is clear of everything, judged on a grid."""
    side, keep = np.linspace(-1, 1, 9), keep_clear(vehicle, options)
    if leg.gate is None:
        points = leg.target[None]
    elif leg.gate.is_ball:
        points = leg.target + leg.gate.half * np.array([(x, y, z) for x in side for y in side for z in side])
        points = points[np.linalg.norm(points - leg.target, axis=1) <= leg.gate.half]
    else:
        reach, edge = leg.gate.edges[:, 2].max(), keep if leg.plane_m == 0 else body_half_m(vehicle)
        points = leg.target + reach * np.array([(0, y, z) for y in side for z in side]) @ leg.gate.R_wg.T
        points = np.vstack([leg.target, points[[leg.gate.margin(p) >= edge for p in points]]])
    low, high = box(track, vehicle, options)
    clear = ((points >= low) & (points <= high)).all(axis=1)
    for solid in solids(track, vehicle, options):
        if not _own(solid, leg, track):
            clear &= solid.box.distance(points) >= keep
    return bool(clear.any())


def _own(solid: Solid, leg: Leg, track: Track) -> bool:
    """Whether a solid is the frame of the gate that a leg leads to or through."""
    return solid.frame >= 0 and leg.gate is not None and leg.gate.same_frame(track.gates[solid.frame])


def box(track: Track, vehicle: Vehicle, options: PlanOptions) -> tuple[Array, Array]:
    """Lowest and highest places (3,) of the vehicle's centre, m.

    It is as far from a bound as from the edge of an opening, where a gate stands near that bound; else its body just fits.
    """
    low, high = np.array(track.bounds.low_m), np.array(track.bounds.high_m)
    if not options.bounds_clear:
        return low, high
    gates = np.array([gate.p_wg for gate in track.gates])
    radius, margin = vehicle.contact_radius_m, options.margin_m
    inner_low = low + radius + margin * (gates - low < BY_A_BOUND_M).any(axis=0)
    return inner_low, high - radius - margin * (high - gates < BY_A_BOUND_M).any(axis=0)


def view_window(options: PlanOptions) -> tuple[float, float]:
    """Shares of the way from one gate to the next between which the next one stays in the picture."""
    return 1 - BLIND - options.see, 1 - BLIND


def intervals(mesh: list[Array], durations: Array) -> Array:
    """(N,) s: a mesh is, per leg, the fractions of its duration that its intervals take."""
    return np.concatenate([fractions * T for fractions, T in zip(mesh, durations, strict=True)])


def view(camera: Camera, target_w, p, R_wb) -> list:
    """Four expressions, not negative while a world point is in the picture: |x_c| <= k_x z_c, |y_c| <= k_y z_c in camera axes."""
    p_c = camera.R_bc.T @ (R_wb.T @ (target_w - p) - camera.p_bc)
    kx = VIEW_FRACTION * min(camera.cx_px, camera.width_px - camera.cx_px) / camera.fx_px
    ky = VIEW_FRACTION * min(camera.cy_px, camera.height_px - camera.cy_px) / camera.fy_px
    x, y, z = p_c[0], p_c[1], p_c[2]
    return [kx * z - x, kx * z + x, ky * z - y, ky * z + y]
