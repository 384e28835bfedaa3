"""Solution of lesson 2: go to a place. `Go` counts from the drone; the waypoint counts from the start."""

from gate_racer.program import Go, Land, Null, Status

SCENARIO = "waypoint"


def decide(report, pads):
    if report.status is not Status.HALTED:
        return Null()
    if report.reached:
        return Land()
    if abs(report.position.north) + abs(report.position.east) < 1.0:
        return Go(8.0, 6.0)  # away from the start, from where both counts would agree
    north = report.waypoint.north - report.position.north
    east = report.waypoint.east - report.position.east
    return Go(north, east)
