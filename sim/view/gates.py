"""Rendered gates: a painted square ring with an orange outline. `sim.view.look` defines the nominal squares."""

import numpy as np

from gate_racer.sim.view import texture
from gate_racer.sim.view.look import Look
from gate_racer.sim.view.shapes import SQUARE, surface
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array


def drawn_gates(track: Track) -> list[Gate]:
    """Return the gates that are rendered: visible square gates, each once; no balls and no openings of another shape."""
    gates = [track.gates[i] for i in sorted(set(track.landmarks))]
    return [gate for gate in gates if gate.visible and gate.outer_m > gate.opening_m > 0]


def hole_m(gate: Gate, look: Look) -> float:
    """Return the side of the visible hole in the front and rear face, m."""
    return gate.opening_m - look.outline_m


def gate_solid(gate: Gate, look: Look) -> Array:
    """Return a square ring of depth `look.depth_m` centred on the gate's plane; solid vertices (n, 10)."""
    rings = {}
    for name, x in (("front", -look.depth_m / 2), ("back", look.depth_m / 2)):
        for what, length in (("outer", gate.outer_m), ("inner", hole_m(gate, look))):
            rings[name, what] = np.column_stack([np.full(4, x), SQUARE / 2 * length])
    strips = [
        (rings["front", "outer"], rings["front", "inner"], texture.GATE),
        (rings["back", "inner"], rings["back", "outer"], texture.GATE),
        (rings["back", "outer"], rings["front", "outer"], texture.REVEAL),
        (rings["front", "inner"], rings["back", "inner"], texture.REVEAL),
    ]
    parts = []
    for a, b, layer in strips:
        p_g = np.stack([a, np.roll(a, -1, 0), np.roll(b, -1, 0), b], 1)
        if layer == texture.REVEAL:
            uv = np.broadcast_to(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), (4, 4, 2))
        else:
            uv = p_g[..., 1:] / gate.outer_m + 0.5
            if (p_g[..., 0] > 0).all():  # mirrored at the back, so that the lettering reads correctly from there
                uv[..., 0] = 1 - uv[..., 0]
        parts.append(surface(gate.p_wg + p_g @ gate.R_wg.T, uv, layer, np.ones(3), 1.0))
    return np.concatenate(parts)
