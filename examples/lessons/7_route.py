"""Lesson 7: a planned route. Visit all places, in an order whose way is at most a tenth longer than the shortest."""

import itertools

from gate_racer.program import Go, Land, Null, Status

SCENARIO = "route"


def length(start, order):
    """m, from the start through all places."""
    way = [start, *order]
    legs = ...  # the distances from one place to the next, by itertools.pairwise
    return sum(legs)


def decide(report, pads):
    if report.status is not Status.HALTED:
        return Null()
    if not report.route:
        return Land()
    orders = itertools.permutations(report.route)
    best = ...  # the order with the shortest way from here
    target = best[0]
    return Go(target.north - report.position.north, target.east - report.position.east)
