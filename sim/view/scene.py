"""`Scene`: geometry of the rendered world, triangles and lines in world NED, built from a track, a look and a seed.

The appearance follows the qualifier's simulator: glowing orange gates, a dark hall, a cyan ribbon along the course.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate_racer.sim.view import halls, texture
from gate_racer.sim.view.gates import drawn_gates, gate_solid, hole_m
from gate_racer.sim.view.light import CORRIDOR, POOL, corridor, course
from gate_racer.sim.view.look import Look
from gate_racer.sim.view.shapes import LINE, SOLID, Floats, box, stack
from gate_racer.tracks.track import Obstacle, Track
from gate_racer.vehicle.rotation import Array

HANGAR_HEIGHT_M = 20.0  # m, height of the bounds below which a course is taken to be in a hangar


@dataclass(frozen=True)
class Scene:
    """Vertices in draw order, float32; their layouts are in `shapes` and `light`."""

    solids: Floats  # (n, 10)
    lines: Floats  # (n, 6); added light
    corridor: Floats  # (n, 5); added light
    pools: Floats  # (n, 12); added light
    layers: NDArray[np.uint8]  # (k, side, side, 3) RGB, row 0 at the top


def build(track: Track, look: Look, seed: int, gates_only: bool = False) -> Scene:
    """Build the scene of a track, without balls and invisible gates. `gates_only`: the gates alone, on black."""
    gates = drawn_gates(track)
    opening, outer_m = (hole_m(gates[0], look) / gates[0].outer_m, gates[0].outer_m) if gates else (0.5, 1.0)
    layers = texture.layers(seed, opening, (look.outline_m / outer_m, look.outline_m / max(look.depth_m, 1e-6)))
    solids = [gate_solid(gate, look) for gate in gates]
    if gates_only:
        return Scene(stack(solids, SOLID), stack([], LINE), stack([], CORRIDOR), stack([], POOL), layers)
    hall = _hall(track, look, seed)
    solids += [*hall.solids, pad(track.start.p_wb), *map(obstacle, track.obstacles)]
    ribbon = [corridor(course(track, gates), look.corridor_half_m)] if gates else []
    return Scene(
        stack(solids, SOLID), stack(hall.lines, LINE), stack(ribbon, CORRIDOR), stack(hall.pools, POOL), layers
    )


def furniture(track: Track, look: Look, seed: int) -> list[Array]:
    """Return the hall's furniture, without gates and obstacles: solid vertices (n, 10) for each part."""
    return _hall(track, look, seed).solids


def _hall(track: Track, look: Look, seed: int) -> halls.Hall:
    furnish = halls.hangar if world(track, look) == "hangar" else halls.neon
    return furnish(track, drawn_gates(track), np.random.default_rng(seed))


def world(track: Track, look: Look) -> str:
    """Return the name of the hall; a look with world `course` has the hangar where the course is low."""
    if look.world != "course":
        return look.world
    return "hangar" if track.bounds.high_m[2] - track.bounds.low_m[2] < HANGAR_HEIGHT_M else "neon"


def obstacle(solid: Obstacle) -> Array:
    """Return one of the track's solid boxes: sheet metal, lighter than the furniture."""
    return box(solid.low_m, solid.high_m, texture.PANEL, 0.42, 3.0)


def pad(p_wb: Array, half: float = 0.2) -> Array:
    """Return the start pad: a dark block, its top 0.1 m below the vehicle's centre, too small to fill the camera's view."""
    size = np.array([half, half, 0.15])
    centre = p_wb + np.array([0, 0, 0.1 + size[2]])
    return box(centre - size, centre + size, texture.PLAIN, 0.1)
