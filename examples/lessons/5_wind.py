"""Lesson 5: wind.

It holds the drone off its destination, so that it never halts there: measure by how much, and aim upwind.
"""

from gate_racer.program import Go, Halt, Land, Location, Null, Status

SCENARIO = "wind"
SLOW_M_S, CLOSE_M, NEAR_M = 0.05, 2.0, 0.15
lean = Location(0.0, 0.0)  # by which the wind moves the drone, m
landing = False


def decide(report, pads):
    global lean, landing
    here, there = report.position, report.destination
    if landing:
        return Null()
    if report.status is Status.MOVING and report.speed < SLOW_M_S and here.distance(there) < CLOSE_M:
        north = ...  # m north of its destination that it hangs
        east = ...  # the same, to the east
        lean = Location(north, east)
        return Halt()
    if report.status is not Status.HALTED:
        return Null()
    landing = report.waypoint.distance(here) < NEAR_M
    if landing:
        return Land()
    upwind = ...  # where to aim, so that the wind moves it to the waypoint
    return Go(upwind.north - here.north, upwind.east - here.east)
