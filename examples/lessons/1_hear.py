"""Lesson 1: hear a report. Fly 10 m north and land there, with every command given when it is legal."""

from gate_racer.program import Go, Land, Null, Status

SCENARIO = "hear"


def decide(report, pads):
    if report.status is not ...:  # the status in which Go and Land are legal
        return Null()
    if report.reached:
        return ...  # what ends the flight
    return Go(10.0, 0.0)
