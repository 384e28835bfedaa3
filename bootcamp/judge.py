"""Judgement of a flight by its scenario's goal: its end, verdict, reasons, the cause of a failure in one sentence, and cost."""

import enum
import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass

from gate_racer.bootcamp.api import Command, CourseGate, Go, Land, Location, Null, Report, Status, Unreadable
from gate_racer.bootcamp.mistakes import UNSEEN, go_mistakes
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
        """Return the verdict after the end of the flight, given the number of each mistake in boxes and places."""
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


WARNINGS_MAX = 300  # warnings of one kind after which a flight ends early (chosen)
STILL_M, STILL_M_S = 1.0, 0.2  # greatest extent (m) and speed (m/s) of what is called hovering (chosen)
STRAIGHT = 0.9  # -, least displacement over length of what is called a straight flight (chosen)
HELD_M = 3.0  # m, greatest distance from its destination of a drone that wind holds off (chosen)
POINTS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")


def kind_of(warning: str) -> str:
    """Return a warning without its numbers, by which warnings of one kind differ."""
    return re.sub(r"-?\d[\d.e+-]*", "#", warning)


class Diagnosis:
    """Observer of one flight, by its reports and commands."""

    def __init__(self, scenario: Scenario):
        self._scenario = scenario
        self._commands, self._mistakes = Counter[str](), Counter[str]()
        self._kind, self._repeated = "", 0  # of the last warning
        self._examples, self._ignored = dict[str, str](), Counter[str]()  # of warnings, by kind
        self._length_m = 0.0
        self._start: Location | None = None
        self._last: Report | None = None
        self._low, self._high = [math.inf] * 2, [-math.inf] * 2  # m north and east, extent of the flight
        self._seen = Counter[str]()  # steps of which each holds: images lost, halted, at rest off the destination

    def see(self, report: Report, command: Command | Unreadable | None = None) -> None:
        """Process the report of one step, and the command of this step."""
        before, self._last = self._last or report, report
        self._start = self._start or report.position
        self._length_m += before.position.distance(report.position)
        self._low = list(map(min, self._low, report.position))
        self._high = list(map(max, self._high, report.position))
        self._seen["held off"] += report.status is Status.MOVING and report.speed < STILL_M_S
        if command is not None:
            self._commands[type(command).__name__] += 1
            self._count(report.warning, command)
            if isinstance(command, Go):
                found = go_mistakes(command, before.position, self._targets(before))
                self._mistakes.update(f"{{}} times Go: {mistake}" for mistake in found)

    def _count(self, warning: str, command: Command | Unreadable) -> None:
        """Count warnings of one kind, which differ by numbers only, since the last command that had an effect."""
        kind = kind_of(warning)
        if warning:
            self._examples.setdefault(kind, f"ignored {{}} times: {warning}")
            self._ignored[self._examples[kind]] += 1
        if warning and kind == self._kind:
            self._repeated += 1
        elif warning or not isinstance(command, Null):
            self._repeated = int(bool(warning))
        self._kind = kind or self._kind

    def _targets(self, report: Report) -> list[Location]:
        """Return the places to which a displacement may rightly lead."""
        scenario = self._scenario
        waypoint = [] if scenario.waypoint is None else [scenario.waypoint]
        return [*waypoint, *report.route] if waypoint or scenario.route else list(scenario.pads)

    @property
    def stuck(self) -> str:
        """Why the flight ends early; "" if it does not."""
        enough = self._repeated >= WARNINGS_MAX
        return f"ended early: {WARNINGS_MAX} commands in a row ignored for one reason" if enough else ""

    def cause(self, mistakes: Counter[str] | None) -> str:
        """Return the cause of the failure in one sentence, given the number of each mistake in boxes and places."""
        last = self._last
        if last is None:
            return ""
        if last.status is Status.CRASHED:
            return self._crash(last)
        if last.status is Status.LANDED and not self._commands["Go"]:
            return "never flew anywhere: no Go was commanded"
        mistake = self._mistake(mistakes or Counter(), last)
        if last.status is Status.LANDED:
            return mistake or self._landing(last)
        return f"{self._motion(last)}: {mistake}" if mistake else self._motion(last)

    def _mistake(self, seen: Counter[str], last: Report) -> str:
        """Return the most frequent mistake, those in boxes and places first, as the commands follow from them."""
        unseen = Counter({UNSEEN: seen[UNSEEN]})
        most = self._scenario.goal.ignored_max
        ignored = self._ignored if most is not None and last.ignored > most else Counter[str]()
        if self.stuck:
            ignored = Counter({self._examples[self._kind]: self._repeated})
        for found in (seen - unseen, self._mistakes, ignored, unseen):
            if +found:
                mistake, count = found.most_common(1)[0]
                return mistake.replace("{}", str(count))
        return ""

    def _crash(self, last: Report) -> str:
        """Describe where the drone hit something: beside which gate, or at which height."""
        here = last.position
        if "gate" not in last.warning or not last.gates:
            return f"at {_place(here)}, {last.height:.1f} m high"
        distances = [math.dist((*here, last.height), (gate.north, gate.east, gate.height)) for gate in last.gates]
        number = distances.index(min(distances))
        gate = last.gates[number]
        passed = f"after {last.passed} of {len(last.gates)} gates" if number != last.passed else "the next one"
        return f"gate {number + 1} ({passed}), {_beside(gate, here, last.height)}"

    def _landing(self, last: Report) -> str:
        """Describe a landing at a wrong place or time."""
        scenario, here = self._scenario, last.position
        if scenario.goal.land == "nearest_pad" and scenario.waypoint is not None:
            at = min(scenario.pads, key=here.distance)
            if at.distance(here) < scenario.goal.within_m:
                return "landed on another pad than the one nearest to the waypoint"
        if last.gates and last.passed < len(last.gates):
            gate = last.gates[last.passed]
            centre = f"{_place(gate)}, {gate.height:.1f} m high"
            return f"gate {last.passed + 1} was not passed in its direction: its centre is at {centre}"
        if self._seen["held off"] > 10 and self._wind:
            return "wind holds the drone off its destination: aim upwind by report.position - report.destination"
        if last.route:
            return f"landed before {len(last.route)} places were visited: test report.route"
        if scenario.waypoint is not None and not last.reached:
            return "landed before the waypoint was reached: test report.reached, or the distance to it"
        return ""

    @property
    def _wind(self) -> bool:
        return self._scenario.conditions.wind_m_s > 0

    def _motion(self, last: Report) -> str:
        """Describe how the drone moved in a flight without a landing."""
        steps, north_east = (
            last.step,
            math.hypot(*(high - low for low, high in zip(self._low, self._high, strict=True))),
        )
        only = {name for name, count in self._commands.items() if count}
        if only <= {"Null"}:
            return f"never commanded: `decide` returned Null() {self._commands['Null']} times"
        if (
            last.status is Status.MOVING
            and last.speed < STILL_M_S
            and last.destination.distance(last.position) < HELD_M
        ):
            off = last.destination.distance(last.position)
            why = "wind holds it there" if self._wind else "it hangs there"
            return f"never halted: {off:.2f} m off its destination, {why}; Halt() halts it"
        moved = "hovered" if north_east < STILL_M else self._course(last)
        never = "" if self._commands[Land.__name__] else ", and Land() was never commanded"
        return f"{moved} for {steps} steps{never}"

    def _course(self, last: Report) -> str:
        start, here = self._start or last.position, last.position
        n, e = here.north - start.north, here.east - start.east
        if math.hypot(n, e) < STRAIGHT * self._length_m:
            return f"flew {self._length_m:.0f} m to and fro, to {_place(here)},"
        return f"flew {POINTS[round(math.atan2(e, n) / (math.pi / 4)) % 8]}"


def _place(place: Location | CourseGate) -> str:
    return f"{place.north:.1f} m north, {place.east:.1f} m east"


def _beside(gate: CourseGate, here: Location, height: float) -> str:
    """Describe a place relative to the centre of a gate, as seen in its direction of flight."""
    n, e = here.north - gate.north, here.east - gate.east
    right = -n * math.sin(gate.heading) + e * math.cos(gate.heading)
    up = height - gate.height
    sides = (
        f"{abs(right):.1f} m {'right' if right > 0 else 'left'}",
        f"{abs(up):.1f} m {'above' if up > 0 else 'below'}",
    )
    return f"{' and '.join(sides)} its centre"
