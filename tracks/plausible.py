"""Remarks on courses that are valid and yet look like a mistake: units, order and directions of gates."""

import math

import numpy as np

from gate_racer.tracks.track import Track

AGAINST = -0.5  # -, cosine between a gate's axis and the legs to and from it, below which it faces against the course
LEAST_LEG_M = 1.0  # m, least horizontal length of a leg that has a direction, and at least its climb


def remarks(track: Track) -> list[str]:
    """Return a line for each value that is more likely a mistake than meant."""
    gates = track.gates
    twice = [k for k in range(1, len(gates)) if gates[k] == gates[k - 1] and not gates[k].is_ball]
    lines = [f"{track.file}: gates[{k}] is gates[{k - 1}] again: passed twice in a row" for k in twice]
    legs = np.diff([track.start.position_m, *(gate.centre_m for gate in gates)], axis=0)
    length = np.linalg.norm(legs[:, :2], axis=1)
    level = (length > LEAST_LEG_M) & (length > np.abs(legs[:, 2]))
    against = []
    for k, gate in enumerate(gates[:-1]):
        yaw = math.radians(gate.yaw_deg)
        cosines = legs[k : k + 2, :2] @ [math.cos(yaw), math.sin(yaw)] / np.maximum(length[k : k + 2], LEAST_LEG_M)
        if not gate.is_ball and level[k : k + 2].all() and cosines.max() < AGAINST:
            against.append(f"gates[{k}]")
    if against:
        mend = "is yaw_deg in degrees, and are the gates in the order of flight?"
        lines.append(f"{track.file}: {', '.join(against)} against the course's direction: {mend}")
    return lines
