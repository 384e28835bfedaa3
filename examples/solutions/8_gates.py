"""Solution of lesson 8: fly gates.

Choose set-points: one in front of the next gate, then one behind it, so that the line between them leads through the middle
of its opening.
"""

import math

from gate_racer.program import Go, Land, Null, Status

SCENARIO = "gates"
BEFORE_M, BEHIND_M = 4.0, 3.0
NEAR_M = 0.5
lined_up = -1  # the gate that the drone stood in front of


def beside(gate, along_m):
    """(north, east, height) of the point so far along the gate's axis; negative is in front."""
    north = gate.north + along_m * math.cos(gate.heading)
    east = gate.east + along_m * math.sin(gate.heading)
    return north, east, gate.height


def decide(report, pads):
    global lined_up
    if report.passed == len(report.gates):
        return Land() if report.status is Status.HALTED else Null()
    gate = report.gates[report.passed]
    here = (*report.position, report.height)
    if math.dist(here, beside(gate, -BEFORE_M)) < NEAR_M:
        lined_up = report.passed
    along_m = BEHIND_M if lined_up == report.passed else -BEFORE_M
    target = beside(gate, along_m)
    return Go(*(there - at for there, at in zip(target, here, strict=True)))
