"""Task 3: fly to the waypoint and land on it."""

from gate_racer.program import Go, Land, Null, Status

SCENARIO = "waypoint"


def decide(report, pads):
    if report.status is not Status.HALTED:
        return Null()
    if report.reached:
        return Land()
    return Go(report.waypoint.north - report.position.north, report.waypoint.east - report.position.east)
