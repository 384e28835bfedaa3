"""Lesson 6: lost images.

Half of them never arrive, and the end of the search shows no pad: remember what was seen.
"""

import statistics

from gate_racer.program import Go, Land, Location, Null, Status

SCENARIO = "lost"
seen = []  # `decide` alone uses it: workers share no globals
legs = []


def decide(report, pads):
    ...  # add the pads of this step to what was seen
    if not legs:
        legs.extend(report.route)
    if report.status is not Status.HALTED:
        return Null()
    target = next((place for place in legs if place in report.route), None)
    if target is None and not seen:
        target = max(legs, key=report.position.distance)  # back along the line
    if target is None:
        north = ...  # of all that was seen: in a median a wrong sighting weighs nothing
        target = Location(north, statistics.median(pad.east for pad in seen))
        if target.distance(report.position) < 0.4:
            return Land()
    return Go(target.north - report.position.north, target.east - report.position.east)
