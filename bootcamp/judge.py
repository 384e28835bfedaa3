"""Judgement of a flight by its scenario's goal: its end, verdict, reasons, the cause of a failure in one sentence, and cost."""

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass

from gate_racer.bootcamp.api import Command, CourseGate, Go, Location, Null, Report, Status, Unreadable
from gate_racer.bootcamp.mistakes import UNSEEN, go_mistakes
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.common.strenum import StrEnum


class ProgramEnd(StrEnum):
    LANDED = "landed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    STUCK = "stuck"  # the same warning over and over
    WORKER_ERROR = "worker_error"
    WORKER_DIED = "worker_died"
    ABORTED = "aborted"


DIAGNOSED = (ProgramEnd.TIMEOUT, ProgramEnd.STUCK, ProgramEnd.CRASHED)  # ends whose cause the flight itself tells
WARNINGS_MAX = 300  # warnings of one kind after which a flight ends early (chosen)
STILL_M, STILL_M_S = 1.0, 0.2  # greatest extent (m) and speed (m/s) of what is called hovering (chosen)
STRAIGHT = 0.9  # -, least displacement over length of what is called a straight flight (chosen)
HELD_M = 3.0  # m, greatest distance from its destination of a drone that wind holds off (chosen)
POINTS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")


@dataclass(frozen=True)
class Score:
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
        self._scenario = scenario
        self._start: Location | None = None
        self._last: Report | None = None
        self._distance_m = 0.0
        self._loops_m2 = {1: 0.0, -1: 0.0}  # area swept about the start, clockwise and counter-clockwise
        self._low, self._high = [math.inf] * 2, [-math.inf] * 2  # m north and east, extent of the flight
        self._held_off = 0  # steps at rest off the destination
        self._commands, self._mistakes = Counter[str](), Counter[str]()
        self._kind, self._repeated = "", 0  # of the last warning
        self._examples = dict[str, str]()  # the first warning of each kind
        self.warnings = Counter[str]()  # numbers of each kind, by its first one

    def see(self, report: Report, command: Command | Unreadable | None = None) -> None:
        """Process the report of one step, and the command that was carried out in it or ignored."""
        before, self._last = self._last or report, report
        a, b = before.position, report.position
        self._start = self._start or b
        self._distance_m += a.distance(b)
        swept = (a.north * b.east - a.east * b.north) / 2
        self._loops_m2[1 if swept > 0 else -1] += abs(swept)
        self._low = list(map(min, self._low, b))
        self._high = list(map(max, self._high, b))
        self._held_off += report.status is Status.MOVING and report.speed < STILL_M_S
        self._count(report.warning, command)
        if command is not None:
            self._commands[type(command).__name__] += 1
            if isinstance(command, Go):
                scenario = self._scenario
                waypoint = [] if scenario.waypoint is None else [scenario.waypoint]
                targets = [*waypoint, *before.route] if waypoint or scenario.route else list(scenario.pads)
                found = go_mistakes(command, a, targets)
                self._mistakes.update(f"{{}} times Go: {mistake}" for mistake in found)

    def _count(self, warning: str, command: Command | Unreadable | None) -> None:
        """Count warnings of one kind, which differ by numbers only, in all and since the last command that had an effect."""
        kind = re.sub(r"0x[0-9a-f]+|-?\d[\d.e+-]*", "#", warning)
        if warning:
            self._examples.setdefault(kind, warning)
            self.warnings[self._examples[kind]] += 1
        if warning and kind == self._kind:
            self._repeated += 1
        elif warning or not isinstance(command, Null | None):
            self._repeated = int(bool(warning))
        self._kind = kind or self._kind

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
        if self._repeated >= WARNINGS_MAX:
            return ProgramEnd.STUCK, f"ended early: {WARNINGS_MAX} commands in a row ignored for one reason"
        if last.step >= self._scenario.world.steps_max:
            return ProgramEnd.TIMEOUT, f"not landed after {last.step} steps"
        return None

    def verdict(self, end: ProgramEnd, cause: str, mistakes: Counter[str] | None = None) -> Judgement:
        """Return the verdict after the end of the flight, given the number of each mistake in boxes and places."""
        last = self._last
        if last is None:
            return Judgement(False, (f"not landed ({cause or end})",), Score(), cause)
        score, missing = Score(last.t, self._distance_m, last.taken, last.ignored), self._missing(last)
        if last.status is not Status.LANDED:
            why = self._cause(last, mistakes) if end in DIAGNOSED else cause
            return Judgement(False, (f"not landed ({cause or end})", *missing), score, why)
        where, on_target = self._landing(last)
        if on_target and not missing:
            return Judgement(True, (where,), score)
        reasons = missing if on_target else [where, *missing]
        return Judgement(False, tuple(reasons), score, self._cause(last, mistakes))

    def _landing(self, last: Report) -> tuple[str, bool]:
        place = target_of(self._scenario, last.position)
        if place is None:
            return "landed", True
        away, name = place.distance(last.position), self._scenario.goal.land.replace("_", " ")
        landed = f"landed {away:.{2 if away < 10 else 0}f} m from the {name}"
        within = self._scenario.goal.within_m
        return (landed, True) if away <= within else (f"{landed}, at most {within:g} m are allowed", False)

    def _missing(self, last: Report) -> list[str]:
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

    def _cause(self, last: Report, mistakes: Counter[str] | None) -> str:
        if last.status is Status.CRASHED:
            return _crash(last)
        seen = mistakes or Counter[str]()
        landed = last.status is Status.LANDED
        if landed and not self._commands["Go"] and not +seen:
            return "never flew anywhere: no Go was commanded"
        mistake = self._mistake(seen, last)
        if landed:
            return mistake or self._misplaced(last)
        mistake = mistake or self._unpassed(last)
        return f"{self._motion(last)}: {mistake}" if mistake else self._motion(last)

    def _mistake(self, seen: Counter[str], last: Report) -> str:
        """Return the most frequent mistake, those in boxes and places first, as the commands follow from them."""
        unseen = Counter({UNSEEN: seen[UNSEEN]})
        most = self._scenario.goal.ignored_max
        warnings = self.warnings if most is not None and last.ignored > most else Counter[str]()
        if self._repeated >= WARNINGS_MAX:
            warnings = Counter({self._examples[self._kind]: self._repeated})
        ignored = Counter({f"ignored {{}} times: {warning}": count for warning, count in warnings.items()})
        for found in (seen - unseen, self._mistakes, ignored, unseen):
            if +found:
                mistake, count = found.most_common(1)[0]
                return mistake.replace("{}", str(count))
        return ""

    def _misplaced(self, last: Report) -> str:
        scenario, here = self._scenario, last.position
        if scenario.goal.land == "nearest_pad" and min(map(here.distance, scenario.pads)) < scenario.goal.within_m:
            return "landed on another pad than the one nearest to the waypoint"
        if unpassed := self._unpassed(last):
            return unpassed
        if self._held_off > 10 and scenario.conditions.wind_m_s:
            return "wind holds the drone off its destination: aim upwind by report.position - report.destination"
        if last.route:
            return f"landed before {len(last.route)} places were visited: test report.route"
        if scenario.waypoint is not None and not last.reached:
            return "landed before the waypoint was reached: test report.reached, or the distance to it"
        return ""

    def _unpassed(self, last: Report) -> str:
        if last.passed >= len(last.gates) or not self._commands["Go"]:
            return ""
        gate = last.gates[last.passed]
        centre = f"{_place(gate)}, {gate.height:.1f} m high"
        return f"gate {last.passed + 1} was not passed in its direction: its centre is at {centre}"

    def _motion(self, last: Report) -> str:
        if +self._commands <= Counter(Null=self._commands["Null"]):
            return f"never commanded: `decide` returned Null() {self._commands['Null']} times"
        off, least_m = last.destination.distance(last.position), self._scenario.world.acceptance_m
        if last.status is Status.MOVING and last.speed < STILL_M_S and least_m < off < HELD_M:
            why = "wind holds it there" if self._scenario.conditions.wind_m_s else "it hangs there"
            return f"never halted: {off:.2f} m off its destination, {why}; Halt() halts it"
        start, here = self._start or last.position, last.position
        n, e = here.north - start.north, here.east - start.east
        moved = f"flew {POINTS[round(math.atan2(e, n) / (math.pi / 4)) % 8]}"
        if math.dist(self._low, self._high) < STILL_M:
            moved = "hovered"
        elif math.hypot(n, e) < STRAIGHT * self._distance_m:
            moved = f"flew {self._distance_m:.0f} m to and fro, to {_place(here)},"
        never = "" if self._commands["Land"] else ", and Land() was never commanded"
        return f"{moved} for {last.step} steps{never}"


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


def off_gate(report: Report, gate: CourseGate) -> tuple[float, float, float]:
    """Return how far the drone is before the gate's plane, and right of and above its centre, m."""
    n, e = report.position.north - gate.north, report.position.east - gate.east
    cos, sin = math.cos(gate.heading), math.sin(gate.heading)
    return -n * cos - e * sin, -n * sin + e * cos, report.height - gate.height


def _crash(last: Report) -> str:
    """Describe where the drone hit something: beside which gate, or at which height."""
    if "gate" not in last.warning or not last.gates:
        return f"at {_place(last.position)}, {last.height:.1f} m high"
    distances = [math.hypot(*off_gate(last, gate)) for gate in last.gates]
    number = distances.index(min(distances))
    passed = f"after {last.passed} of {len(last.gates)} gates" if number != last.passed else "the next one"
    _, right, up = off_gate(last, last.gates[number])
    aside, above = "right" if right > 0 else "left", "above" if up > 0 else "below"
    return f"gate {number + 1} ({passed}), {abs(right):.1f} m {aside} and {abs(up):.1f} m {above} its centre"


def _place(place: Location | CourseGate) -> str:
    return f"{place.north:.1f} m north, {place.east:.1f} m east"
