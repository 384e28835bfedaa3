"""Task 2, the decision example: five straight legs that draw an 8 through where it began, then land there."""

from gate_racer.program import Go, Land, Null, Status

SCENARIO = "figure8"
MOVES = iter([(20, 10), (0, -20), (-40, 20), (0, -20), (20, 10)])


def decide(report, pads):
    if report.status is not Status.HALTED:
        return Null()
    move = next(MOVES, None)
    return Land() if move is None else Go(*move)
