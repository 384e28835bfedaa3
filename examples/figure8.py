"""Task 2, the decision example: eight moves that draw an 8, then land where it began."""

from bootcamp.api import Go, Land, Null, Status

SCENARIO = "figure8"
MOVES = iter([(20, 10), (20, 0), (0, -20), (-20, 0), (-20, 10), (-20, -10), (-20, 10), (40, 0)])


def decide(report, pads):
    if report.status is not Status.HALTED:
        return Null()
    move = next(MOVES, None)
    return Land() if move is None else Go(*move)
