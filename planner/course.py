"""The course as the optimiser sees it: where a leg may end, where the vehicle may be, what must stay in view."""

from dataclasses import dataclass

import casadi as ca
import numpy as np

from planner.options import Initial, PlanOptions
from tracks.gate import Gate
from tracks.track import Obstacle, Track
from vehicle.camera import Camera
from vehicle.errors import UserError
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

CROSSING_SPEED_MIN = 0.5  # m/s along the gate's axis: a gate is flown through, not touched
ALONG = (0.25, 0.5, 0.75, 1.0)  # of an interval, where it is kept clear of obstacles
SHARPNESS = 10.0  # of the smooth maximum, per distance kept
BY_A_BOUND_M = 10.0  # of a gate from a bound, where plans may come near that bound
VIEW_FRACTION = 0.85  # of the half picture: room for the tracking error and for the gate around its centre


@dataclass(frozen=True)
class Leg:
    """One leg: it ends at a gate, or at rest at `end`."""

    gate: Gate | None
    end: np.ndarray | None = None

    @property
    def target(self) -> np.ndarray:
        """World point (3,) the leg aims at."""
        if self.gate is not None:
            return self.gate.p_wg
        assert self.end is not None
        return self.end


def legs(track: Track, vehicle: Vehicle, options: PlanOptions) -> list[Leg]:
    """The legs of the whole flight.

    Raises:
        UserError: a gate that this vehicle cannot pass, or two gates at one place.
    """
    result = [Leg(gate) for gate in flown(track, options)]
    end = None if options.flying_lap else options.stop_m or track.end_m
    if end is not None:
        result.append(Leg(None, np.array(end)))
    begin = initial(track, options)
    previous = result[-1].target if begin is None else np.array(begin.position_m)
    first = 0 if begin is None else begin.next_gate
    for i, leg in enumerate(result, first):
        where = f"{track.name}: gates[{i % len(track.gates)}]" if leg.gate is not None else f"{track.name}: the end"
        if leg.gate is not None and not leg.gate.is_ball and leg.gate.half <= keep_clear(vehicle, options):
            need = 2 * keep_clear(vehicle, options)
            raise UserError(f"{where}: opening {2 * leg.gate.half:g} m is too small, {vehicle.name} needs {need:.2f} m")
        if np.linalg.norm(leg.target - previous) < 0.1:
            raise UserError(f"{where}: lies where the leg before it starts, so the leg has no length")
        if not _free(leg, track, vehicle, options):
            raise UserError(
                f"{where}: no place in it keeps {vehicle.name} {keep_clear(vehicle, options):.2f} m clear of its edges,"
                f" the bounds and the obstacles"
            )
        previous = leg.target
    return result


def flown(track: Track, options: PlanOptions) -> tuple[Gate, ...]:
    """The gates of a plan, in order.

    Raises:
        UserError: the course does not allow what the options ask.
    """
    course = track.course(options.laps)
    if options.flying_lap and not track.closed:
        raise UserError(f"{track.name}: the course is not closed, so it has no flying lap")
    first = options.start.next_gate if options.start is not None else 0
    if not 0 <= first < len(course):
        raise UserError(f"{track.name}: next_gate {first}: the course has gates 0 to {len(course) - 1}")
    return course[first:]


def initial(track: Track, options: PlanOptions) -> Initial | None:
    """The state before the first leg; None for a flying lap, which begins as it ends."""
    if options.flying_lap:
        return None
    pad = track.start
    return options.start or Initial(pad.position_m, pitch_deg=pad.pitch_deg, yaw_deg=pad.yaw_deg)


def _free(leg: Leg, track: Track, vehicle: Vehicle, options: PlanOptions) -> bool:
    """Whether some place of the leg's window is clear of everything, judged on a grid."""
    side = np.linspace(-1, 1, 9)
    if leg.gate is None:
        points = leg.target[None]
    elif leg.gate.is_ball:
        points = leg.target + leg.gate.half * np.array([(x, y, z) for x in side for y in side for z in side])
        points = points[np.linalg.norm(points - leg.target, axis=1) <= leg.gate.half]
    else:
        reach, keep = leg.gate.edges[:, 2].max(), keep_clear(vehicle, options)
        points = leg.target + reach * np.array([(0, y, z) for y in side for z in side]) @ leg.gate.R_wg.T
        points = np.vstack([leg.target, points[[leg.gate.margin(p) >= keep for p in points]]])
    low, high = box(track, vehicle, options)
    clear = ((points >= low) & (points <= high)).all(axis=1)
    for obstacle in track.obstacles:
        clear &= obstacle.distance(points) >= keep_clear(vehicle, options)
    return bool(clear.any())


def keep_clear(vehicle: Vehicle, options: PlanOptions) -> float:
    """m, from the vehicle's centre to the edge of an opening. A ball is a window for the centre already."""
    return vehicle.contact_radius_m + options.margin_m


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


def intervals(mesh: list[Array], durations: Array) -> Array:
    """(N,) s: a mesh is, per leg, the fractions of its duration that its intervals take."""
    return np.concatenate([fractions * T for fractions, T in zip(mesh, durations, strict=True)])


def cubic(p0, v0, p1, v1, dt, s: float):
    """The place at the fraction s of an interval of dt: Hermite's cubic through both ends (3, N or none); CasADi or numpy."""
    ends = (1 + 2 * s) * (1 - s) ** 2 * p0 + s**2 * (3 - 2 * s) * p1
    return ends + dt * (s * (1 - s) ** 2 * v0 - s**2 * (1 - s) * v1)


def passing(leg: Leg, p, v, still: list, keep: float) -> tuple[list, list[float], list[float]]:
    """Constraints (expressions, lower, upper) on the position and velocity (CasADi columns) at the leg's last node.

    At a stop, `still` must vanish as well.

    The path's distance to each edge of an opening, measured across the path, is at least `keep`:
    (h - n p) cos(slope) >= keep, so that an oblique passage shrinks the window as it does in reality; in a tunnel, at both ends.
    """
    gate = leg.gate
    if gate is None:
        assert leg.end is not None
        stop = ca.vertcat(p - leg.end, v, *still)
        return [stop], [0.0] * stop.numel(), [0.0] * stop.numel()
    d = p - gate.p_wg
    if gate.is_ball:
        return [ca.dot(d, d) / gate.half], [0.0], [gate.half]
    p_g, v_g = gate.R_wg.T @ d, gate.R_wg.T @ v
    sides = []
    for n_y, n_z, h in gate.edges:
        inside, out = h - n_y * p_g[1] - n_z * p_g[2], n_y * v_g[1] + n_z * v_g[2]
        across = keep * ca.sqrt(v_g[0] ** 2 + out**2 + 1e-6)
        ends = (-gate.tunnel_m / 2, gate.tunnel_m / 2) if gate.tunnel_m else (0.0,)
        sides += [inside * v_g[0] - end * out - across for end in ends]
    return [p_g[0], v_g[0], *sides], [0.0, CROSSING_SPEED_MIN, *[0.0] * len(sides)], [0.0, *[ca.inf] * (1 + len(sides))]


def clearance(obstacle: Obstacle, keep: float) -> ca.Function:
    """(p_k, v_k, p_k+1, v_k+1, dt) -> numbers, not negative while the cubic through both ends keeps clear of a box.

    Each is a smooth maximum of the distances from the box's faces, less `keep`. The corners of {max = keep} lie farther away
    than `keep`, which outweighs what the smoothing gives away there.
    """
    p0, v0, p1, v1 = (ca.SX.sym(name, 3) for name in ("p0", "v0", "p1", "v1"))
    dt = ca.SX.sym("dt")
    centre, half = (np.array(obstacle.low_m) + obstacle.high_m) / 2, (np.array(obstacle.high_m) - obstacle.low_m) / 2
    k, values = SHARPNESS / keep, []
    for s in ALONG:
        p = cubic(p0, v0, p1, v1, dt, s)
        beyond = [ca.sqrt((p[i] - centre[i]) ** 2 + 1e-8) - half[i] for i in range(3)]
        most = ca.fmax(ca.fmax(*beyond[:2]), beyond[2])
        values.append(most + ca.log(sum(ca.exp(k * (one - most)) for one in beyond)) / k - keep)
    return ca.Function("clearance", [p0, v0, p1, v1, dt], [ca.vertcat(*values)])


def view(camera: Camera, target_w, p, R_wb) -> list:
    """Four expressions, not negative while a world point is in the picture: |x_c| <= k_x z_c, |y_c| <= k_y z_c in camera axes."""
    p_c = camera.R_bc.T @ (R_wb.T @ (target_w - p) - camera.p_bc)
    kx = VIEW_FRACTION * min(camera.cx_px, camera.width_px - camera.cx_px) / camera.fx_px
    ky = VIEW_FRACTION * min(camera.cy_px, camera.height_px - camera.cy_px) / camera.fy_px
    x, y, z = p_c[0], p_c[1], p_c[2]
    return [kx * z - x, kx * z + x, ky * z - y, ky * z + y]
