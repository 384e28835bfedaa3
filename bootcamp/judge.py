"""Judgement of a flight by its scenario's goal: its end, verdict, reasons, the cause of a failure, and cost."""

import enum
import itertools
import math
from collections import Counter
from dataclasses import dataclass

from gate_racer.bootcamp.api import Command, Location, Report, Status, Unreadable
from gate_racer.bootcamp.diagnosis import Diagnosis
from gate_racer.bootcamp.scenario import Scenario


class ProgramEnd(enum.StrEnum):
    """Reason for the end of a flight."""

    LANDED = "landed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    STUCK = "stuck"  # the same warning over and over
    WORKER_ERROR = "worker_error"
    WORKER_DIED = "worker_died"
    ABORTED = "aborted"


DIAGNOSED = (ProgramEnd.TIMEOUT, ProgramEnd.STUCK, ProgramEnd.CRASHED)  # ends whose cause the flight itself tells


@dataclass(frozen=True)
class Score:
    """Cost of a flight."""

    time_s: float = 0.0
    distance_m: float = 0.0  # over ground
    commands: int = 0  # given
    warnings: int = 0  # commands ignored


@dataclass(frozen=True)
class Judgement:
    """Verdict of a flight, and its reasons: all failures, or the achievement."""

    done: bool
    reasons: tuple[str, ...]
    score: Score
    cause: str = ""  # of a failure, in the learner's terms

    def __str__(self) -> str:
        told = f"{'done' if self.done else 'not done'}: {', '.join(self.reasons)}"
        return told if self.cause in told else f"{told}: {self.cause}"


class Judge:
    """Judge of one flight, by its reports and commands."""

    def __init__(self, scenario: Scenario):
        self._scenario, self._diagnosis = scenario, Diagnosis(scenario)
        self._last: Report | None = None
        self._distance_m = 0.0
        self._loops_m2 = {1: 0.0, -1: 0.0}  # area swept about the start, clockwise and counter-clockwise

    def see(self, report: Report, command: Command | Unreadable | None = None) -> None:
        """Process the report of one step, and the command that was carried out in it or ignored."""
        if self._last is not None:
            a, b = self._last.position, report.position
            self._distance_m += a.distance(b)
            swept = (a.north * b.east - a.east * b.north) / 2
            self._loops_m2[1 if swept > 0 else -1] += abs(swept)
        self._diagnosis.see(report, command)
        self._last = report

    @property
    def end(self) -> tuple[ProgramEnd, str] | None:
        """Reason for which the flight is over, and its cause; None before."""
        last = self._last
        if last is None:
            return None
        if last.status is Status.LANDED:
            return ProgramEnd.LANDED, ""
        if last.status is Status.CRASHED:
            return ProgramEnd.CRASHED, last.warning
        if self._diagnosis.stuck:
            return ProgramEnd.STUCK, self._diagnosis.stuck
        if last.step >= self._scenario.world.steps_max:
            return ProgramEnd.TIMEOUT, f"not landed after {last.step} steps"
        return None

    def verdict(self, end: ProgramEnd, cause: str, mistakes: Counter[str] | None = None) -> Judgement:
        """Return the verdict after the end of the flight.

        Args:
            mistakes: number of each mistake that was found in boxes and places.
        """
        last = self._last
        score = Score()
        if last is not None:
            score = Score(last.t, self._distance_m, last.taken, last.ignored)
        if last is None or last.status is not Status.LANDED:
            missing = [] if last is None else self._missing(last)
            told = self._diagnosis.cause(mistakes) if end in DIAGNOSED else cause
            return Judgement(False, (f"not landed ({cause or end})", *missing), score, told)
        missing = self._missing(last)
        where, on_target = self._landing(last)
        if not on_target:
            missing.insert(0, where)
        return Judgement(
            not missing, tuple(missing or [where]), score, self._diagnosis.cause(mistakes) if missing else ""
        )

    def _landing(self, last: Report) -> tuple[str, bool]:
        """Return a description of the landing place, and whether it meets the goal."""
        place = target_of(self._scenario, last.position)
        if place is None:
            return "landed", True
        away, name = place.distance(last.position), self._scenario.goal.land.replace("_", " ")
        landed = f"landed {away:.2f} m from the {name}" if away < 10 else f"landed {away:.0f} m from the {name}"
        within = self._scenario.goal.within_m
        return (landed, True) if away <= within else (f"{landed}, at most {within:g} m are allowed", False)

    def _missing(self, last: Report) -> list[str]:
        """Return the conditions of the goal that were not met."""
        goal, found = self._scenario.goal, list[str]()
        if goal.pass_gates and last.passed < len(last.gates):
            found.append(f"{last.passed} of {len(last.gates)} gates passed")
        places = len(self._scenario.route)
        if goal.visit_all and last.route:
            found.append(f"{places - len(last.route)} of {places} places visited")
        elif goal.tour_max:
            shortest = shortest_tour(Location(0.0, 0.0), self._scenario.route)
            if self._distance_m > goal.tour_max * shortest:
                found.append(f"flew {self._distance_m:.0f} m, the shortest path through all places is {shortest:.0f} m")
        if goal.loop_m2 and min(self._loops_m2.values()) < goal.loop_m2:
            found.append(f"did not fly a figure of eight: it needs a loop of {goal.loop_m2:g} m2 in each direction")
        if goal.ignored_max is not None and last.ignored > goal.ignored_max:
            found.append(f"{last.ignored} commands ignored, at most {goal.ignored_max} are allowed")
        return found


def target_of(scenario: Scenario, position: Location) -> Location | None:
    """Return the place to land at; None if any will do."""
    match scenario.goal.land:
        case "waypoint":
            return scenario.waypoint
        case "pad":
            return min(scenario.pads, key=position.distance)
        case "nearest_pad" if scenario.waypoint is not None:
            return min(scenario.pads, key=scenario.waypoint.distance)
    return None


def shortest_tour(start: Location, places: tuple[Location, ...]) -> float:
    """Return the length (m) of the shortest path from the start through all places."""
    tours = ((start, *order) for order in itertools.permutations(places))
    return min((sum(a.distance(b) for a, b in itertools.pairwise(tour)) for tour in tours), default=math.inf)
