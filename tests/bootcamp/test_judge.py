"""Judge: when a goal counts as reached, and the reasons given otherwise."""

from dataclasses import replace

import pytest

from gate_racer.bootcamp.api import Location, Report, Status
from gate_racer.bootcamp.judge import Judge, ProgramEnd, shortest_tour
from gate_racer.bootcamp.scenario import load_world, make_scenario

WAY = make_scenario("route", 7).route


def report(scenario, *places, status=Status.LANDED, **changes):
    """Reports of a drone that was at these places, in this status at the end."""
    there = Location(*places[-1])
    last = Report(
        len(places), len(places) / 10, status, there, 0.0, 0.0, (1.0, 0.0, 0.0, 0.0), there, 0.0, scenario.waypoint,
        True, 7, load_world().camera, gates=scenario.gates, taken=9, **changes,
    )  # fmt: skip
    before = [replace(last, position=Location(*place), status=Status.MOVING) for place in places[:-1]]
    return [*before, last]


def judged(name, *places, end=ProgramEnd.LANDED, cause="", **changes):
    scenario = make_scenario(name, 7)
    judge = Judge(scenario)
    for one in report(scenario, *places, **changes):
        judge.see(one)
    return judge.verdict(end, cause)


EIGHT = [(0, 0), (20, 10), (20, -10), (0, 0), (-20, 10), (-20, -10), (0, 0)]
ROUND = [(0, 0), (20, 10), (-20, 10), (-20, -10), (20, -10), (0, 0)]
CASES = {  # scenario, places, and what else is reported, by what is told
    "done: landed 0.50 m from the waypoint": ("hear", [(0, 0), (10, 0.5)], {}),
    "not done: landed 2.00 m from the waypoint, at most 1 m are allowed": ("hear", [(0, 0), (10, 2)], {}),
    "landed 41 m from the waypoint": ("hear", [(0, 0), (51, 0)], {}),
    "2 commands ignored, at most 0 are allowed": ("hear", [(10, 0)], {"ignored": 2}),
    "not landed": ("hear", [(10, 0)], {"status": Status.HALTED, "end": ProgramEnd.TIMEOUT}),
    "not landed (hit bounds)": ("hear", [(10, 0)], {"status": Status.CRASHED, "cause": "hit bounds"}),
    "done: landed 0.00 m from the pad": ("figure8", EIGHT, {}),
    "did not fly a figure of eight": ("figure8", ROUND, {}),
    "3 of 5 places visited": ("route", [(0, 0)], {"route": WAY[:2]}),
    "the shortest path through all places is": ("route", [(0, 0), (50, 50)] * 9, {}),
    "3 of 4 gates passed": ("gates", [(0, 0)], {"passed": 3}),
    "done: landed": ("gates", [(0, 0)], {"passed": 4}),
}


@pytest.mark.parametrize("told", CASES)
def test_a_goal_that_is_reached_is_done_and_what_was_missed_is_told(told):
    name, places, changes = CASES[told]
    verdict = judged(name, *places, **changes)
    assert told in str(verdict) and verdict.done == told.startswith("done")


def test_the_score_counts_and_a_flight_without_a_report_is_judged_as_well():
    score = judged("hear", (0, 0), (3, 4), (10, 4), ignored=1).score
    assert (score.time_s, score.distance_m, score.commands, score.warnings) == (0.3, 12.0, 9, 1)
    verdict = Judge(make_scenario("hear", 1)).verdict(ProgramEnd.WORKER_DIED, "worker decision died")
    assert not verdict.done and verdict.reasons == ("not landed (worker decision died)",)


def test_the_shortest_tour_is_never_longer_than_any_and_ends_at_the_last_place():
    square = (Location(10, 10), Location(0, 10), Location(10, 0))
    assert shortest_tour(Location(0, 0), square) == 30.0
