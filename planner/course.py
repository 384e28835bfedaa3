"""The course as the optimiser sees it: where a leg may end, where the vehicle may be, what must stay in view."""

from dataclasses import dataclass

import casadi as ca
import numpy as np

from planner.options import PlanOptions
from tracks.gate import Gate
from tracks.track import Track
from vehicle.camera import Camera
from vehicle.errors import UserError
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

CROSSING_SPEED_MIN = 0.5  # m/s along the gate's axis: a gate is flown through, not touched
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
    course = track.course(options.laps)
    result = [Leg(gate) for gate in course]
    if track.end_m is not None:
        result.append(Leg(None, np.array(track.end_m)))
    previous = track.start.p_wb
    for i, leg in enumerate(result):
        where = f"{track.name}: gates[{i % len(track.gates)}]"
        if leg.gate is not None and not leg.gate.is_ball and leg.gate.half <= keep_clear(vehicle, options):
            need = 2 * keep_clear(vehicle, options)
            raise UserError(
                f"{where}: opening {leg.gate.opening_m:g} m is too small, {vehicle.name} needs {need:.2f} m"
            )
        if np.linalg.norm(leg.target - previous) < 0.1:
            raise UserError(f"{where}: lies where the leg before it starts, so the leg has no length")
        previous = leg.target
    return result


def keep_clear(vehicle: Vehicle, options: PlanOptions) -> float:
    """m, from the vehicle's centre to the edge of an opening. A ball is a window for the centre already."""
    return vehicle.contact_radius_m + options.margin_m


def box(track: Track, vehicle: Vehicle, options: PlanOptions) -> tuple[Array, Array]:
    """Lowest and highest places (3,) of the vehicle's centre, m."""
    clear = vehicle.contact_radius_m if options.bounds_clear else 0.0
    return np.array(track.bounds.low_m) + clear, np.array(track.bounds.high_m) - clear


def intervals(mesh: list[Array], durations: Array) -> Array:
    """(N,) s: a mesh is, per leg, the fractions of its duration that its intervals take."""
    return np.concatenate([fractions * T for fractions, T in zip(mesh, durations, strict=True)])


def passing(leg: Leg, p, v, still: list, keep: float) -> tuple[list, list[float], list[float]]:
    """Constraints (expressions, lower, upper) on the position and velocity (CasADi columns) at the leg's last node.

    At a stop, `still` must vanish as well.

    The path's distance to each edge of an opening, measured across the path, is at least `keep`:
    (h - |y|) cos(slope) >= keep, so that an oblique passage shrinks the window as it does in reality.
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
    sides = [
        (gate.half + sign * p_g[i]) * v_g[0] - keep * ca.sqrt(v_g[0] ** 2 + v_g[i] ** 2 + 1e-6)
        for i in (1, 2)
        for sign in (-1, 1)
    ]
    return [p_g[0], v_g[0], *sides], [0.0, CROSSING_SPEED_MIN, *[0.0] * 4], [0.0, *[ca.inf] * 5]


def view(camera: Camera, target_w, p, R_wb) -> list:
    """Four expressions, not negative while a world point is in the picture: |x_c| <= k_x z_c, |y_c| <= k_y z_c in camera axes."""
    p_c = camera.R_bc.T @ (R_wb.T @ (target_w - p))
    kx = VIEW_FRACTION * min(camera.cx_px, camera.width_px - camera.cx_px) / camera.fx_px
    ky = VIEW_FRACTION * min(camera.cy_px, camera.height_px - camera.cy_px) / camera.fy_px
    x, y, z = p_c[0], p_c[1], p_c[2]
    return [kx * z - x, kx * z + x, ky * z - y, ky * z + y]
