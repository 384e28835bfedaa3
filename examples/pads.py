"""Task 4: fly to the waypoint, look for landing pads there, and land on the one nearest to the waypoint."""

from gate_racer.program import Go, Land, Null, Status

SCENARIO = "pads"
NEAR_M = 0.5


def decide(report, pads):
    if report.status is not Status.HALTED:
        return Null()
    target = report.waypoint
    if report.reached:
        if not pads:
            return Null()
        target = min(pads, key=report.waypoint.distance)
        if target.distance(report.position) < NEAR_M:
            return Land()
    return Go(target.north - report.position.north, target.east - report.position.east)
