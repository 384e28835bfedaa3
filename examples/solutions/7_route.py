"""Solution of lesson 7: a planned route. Visit all places, in an order whose way is at most a tenth longer than the shortest."""

import itertools

from gate_racer.program import Go, Land, Null, Status

SCENARIO = "route"


def length(start, order):
    """m, from the start through all places."""
    way = [start, *order]
    legs = [a.distance(b) for a, b in itertools.pairwise(way)]
    return sum(legs)


def decide(report, pads):
    if report.status is not Status.HALTED:
        return Null()
    if not report.route:
        return Land()
    orders = itertools.permutations(report.route)
    best = min(orders, key=lambda order: length(report.position, order))
    target = best[0]
    return Go(target.north - report.position.north, target.east - report.position.east)
