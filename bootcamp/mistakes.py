"""Usual mistakes of learners, recognised by what a program raises, returns, detects and commands, and in its text.

A mistake in detections, places and displacements is a wrong map from the right value: each candidate map is applied to the
scenario's truth, and the one that gives the program's value is named. A value near a right one is never called wrong.
"""

import ast
import difflib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gate_racer.bootcamp.api import Box, Command, Go, Halt, Land, Location, Null, Report, Status
from gate_racer.vehicle.rotation import Array, matrix

NAMES = "Box, Command, CourseGate, Go, Halt, Land, Location, Null, Report, Status"
ERRORS: tuple[tuple[str, str], ...] = (  # pattern of an exception's line, and what to do
    (r"NameError: name '(Go|Halt|Land|Null|Status|Box|Location)'", "write `from gate_racer.program import {0}`"),
    (r"UnboundLocalError: .*variable '(\w+)'", "`{0}` is assigned within the function: declare `global {0}` there"),
    (r"TypeError: (decide|detect|locate)\(\) (takes|missing)",
     "a program's functions are decide(report, pads), detect(image) and locate(box, report)"),
    (r"TypeError: (Go|Land|Halt|Null)\.__init__\(\)", "the commands are Go(north, east), Halt(), Land() and Null()"),
    (r"TypeError: (Box|Location)\.__new__\(\)|TypeError: .*Box.*argument",
     "they are Box(left, top, right, bottom), in px, and Location(north, east), in m"),
    (r"(AttributeError|TypeError): 'NoneType' object",
     "a value is None: not every scenario has a waypoint, and a function may have returned nothing"),
    (r"TypeError: unsupported operand type\(s\) for (\S+): '(Location|tuple|CourseGate)'",
     "places have no arithmetic: use .north and .east one by one"),
    (r"TypeError: 'Report' object is not", "its values are attributes, such as report.position"),
    (r"TypeError: '(function|method|builtin_function_or_method|type)' object is not subscriptable",
     "a function is called with round brackets"),
    (r"TypeError: '(Location|Status|Camera|float|int|bool|list|tuple)' object is not callable",
     "it is a value, not a function: no brackets behind it"),
    (r"FrozenInstanceError|AttributeError: can't set attribute",
     "reports, places and commands cannot be changed: keep your own values in a `global`"),
    (r"AttributeError: 'Location' object has no attribute", "a Location has .north and .east, in m, and .distance(other)"),
    (r"AttributeError: 'CourseGate' object", "a gate has .north, .east, .height and .heading"),
    (r"AttributeError: 'Box' object", "a Box has .left, .top, .right and .bottom"),
    (r"AttributeError: '(list|tuple)' object has no attribute '(north|east|distance|left|top|height|heading)'",
     "it is a list: take one element first, such as pads[0]"),
    (r"AttributeError: (type object 'Status' has no attribute|[A-Z]\w*$)",
     "the statuses are HALTED, MOVING, LANDED and CRASHED"),
    (r"IndexError: (list|tuple) index out of range|ValueError: (min|max)\(\) .*(empty|iterable)|StatisticsError: ",
     "a list may be empty: test `if pads:` (or route, gates) before its elements are used"),
    (r"RecursionError", "a function calls itself without end"),
    (r"(SystemExit|KeyboardInterrupt)", "Land() ends a flight, not an exit"),
    (r"ModuleNotFoundError: No module named '(\w+)", "put {0}.py beside the program, or install it"),
    (r"ImportError: cannot import name '\w+' from 'gate_racer.program'", f"its names are {NAMES}"),
    (r"(IndentationError|TabError)", "indent by four spaces, never by tabs"),
    (r"MemoryError", "the memory of a program is limited: does a list grow at every step?"),
)  # fmt: skip


def advice_on_error(line: str) -> str:
    """Return what to do about an exception by its text; "" if it is no usual mistake."""
    unknown = re.match(r"AttributeError: 'Report' object has no attribute '(\w+)'", line)
    if unknown:
        names = [field.name for field in fields(Report)]
        words = [unknown[1], *filter(None, [SYNONYMS.get(unknown[1].lower())])]
        near = dict.fromkeys(name for word in words for name in difflib.get_close_matches(word, names, 1))
        meant = " or ".join(f"report.{name}" for name in near)
        return f"did you mean {meant}?" if meant else f"a report has {', '.join(names)}"
    for pattern, advice in ERRORS:
        if found := re.match(pattern, line):
            return advice.format(*found.groups())
    return ""


SYNONYMS = {
    "altitude": "height", "alt": "height", "z": "height", "state": "status", "velocity": "speed", "time": "t", "pos": "position",
    "location": "position", "target": "waypoint", "goal": "waypoint", "dest": "destination", "x": "position", "y": "position",
    "north": "position", "east": "position", "image": "has_image", "attitude": "q_wb", "orientation": "q_wb", "landed": "status",
    "waypoints": "route", "places": "route", "next_gate": "passed", "pads": "position",
}  # fmt: skip  # words for fields of a report


PLAIN = "`{}` must be a plain function with `return`, without `yield` and `async`"


def advice_on_answer(returned: Any) -> str:
    """Return what is probably wrong with a value that is not a command; "" for an unknown mistake."""
    if returned is None:
        return "does every path through `decide` end in a `return`?"
    if isinstance(returned, type) and returned in (Go, Halt, Land, Null, Command):
        return f"call it: {returned.__name__}()"
    if isinstance(returned, Status):
        return "a status is what a report has"
    if isinstance(returned, Location):
        return "a place is not a command: Go takes the difference to report.position"
    if isinstance(returned, str):
        return "a command is an object, without quotation marks"
    kind = type(returned).__name__
    if kind in ("generator", "coroutine", "async_generator"):
        return PLAIN.format("decide")
    if kind in ("list", "tuple", "set") and any(isinstance(one, Go | Halt | Land | Null) for one in returned):
        return "one command per step: remember the others in a `global`"
    if kind in ("list", "tuple", "ndarray") and len(returned) in (2, 3):
        return "write Go(north, east)"
    return "return the command itself, not a test of it" if isinstance(returned, bool) else ""


Maps = Sequence[tuple[str, Sequence[float]]]
NEAR_M, APART_M = 0.6, 3.0  # m, within which places agree, and from where a wrong one is told from a right one (chosen)
SCALES = (2.0, 3.28, 10.0, 32.0, 100.0, 1000.0)  # of usual confusions of units: m, feet, dm, px, cm, mm


def _explained(
    value: Sequence[float], cases: Sequence[tuple[Sequence[float], Maps]], near: float, apart: float
) -> set[str]:
    """Return the names of the maps that give a value; none if it is not to be told from a right one.

    `cases`: a right value, and the wrong maps of it by name, for each target.
    """
    if any(math.dist(value, right) < apart for right, _ in cases):
        return set()
    return {name for _, maps in cases for name, mapped in maps if math.dist(value, mapped) < near}


def go_mistakes(go: Go, position: Location, targets: Sequence[Location]) -> set[str]:
    """Return the mistakes that explain a displacement: wrong maps of the right displacement to a target."""

    def of(target: Location) -> tuple[Sequence[float], Maps]:
        n, e = target.north - position.north, target.east - position.east
        a, b = target
        return (n, e), [
            ("it leads from the start, not from the drone: subtract report.position from the place", (a, b)),
            ("north and east are swapped", (e, n)),
            ("the sign is wrong: it is the place minus report.position", (-n, -e)),
            ("report.position is added to the place: subtract it", (a + position.north, b + position.east)),
            ("the sign of east is wrong", (n, -e)),
            ("the sign of north is wrong", (-n, e)),
            ("north and east are swapped, and from the start", (b, a)),
            ("east is left out", (n, 0.0)),
            ("north is left out", (0.0, e)),
            *((f"the unit is not m: it is {scale:g} times too long", (scale * n, scale * e)) for scale in SCALES),
        ]

    if math.hypot(go.north, go.east) < APART_M:
        return set()
    return _explained((go.north, go.east), list(map(of, targets)), NEAR_M, APART_M)


def box_mistakes(box: Box, report: Report, pads: Sequence[Location], pad_m: float) -> set[str]:
    """Return the mistakes that explain a box: a wrong order or origin of the right numbers of a pad in view."""
    camera = report.camera
    width, height = camera.width_px, camera.height_px
    near = 0.2 * pad_m * camera.fx_px / max(report.height, 1.0)
    cases: list[tuple[Sequence[float], Maps]] = []
    for l, t, r, b in filter(None, (_seen(report, pad, pad_m) for pad in pads)):  # noqa: E741
        maps = [
            ("x, y, w, h: a Box is left, top, right, bottom", (l, t, r - l, b - t)),
            ("centre and size: a Box is left, top, right, bottom", ((l + r) / 2, (t + b) / 2, r - l, b - t)),
            ("rows before columns: a Box is left, top, right, bottom", (t, l, b, r)),
            ("upside down: rows grow downward", (l, height - b, r, height - t)),
            ("shares of the image: a Box is in px", (l / width, t / height, r / width, b / height)),
            ("of an image half as large", (l / 2, t / 2, r / 2, b / 2)),
        ]
        cases.append(((l, t, r, b), maps))
    return _explained(box, cases, near, near)


UNSEEN = "no box in {} images that show a pad"


def sees_pad(report: Report, pads: Sequence[Location], pad_m: float) -> bool:
    return any(_seen(report, pad, pad_m) for pad in pads)


def _seen(report: Report, pad: Location, pad_m: float) -> tuple[float, float, float, float] | None:
    """Return the bounding box (px) of a pad in the image of a report; None if it is not wholly in view."""
    half, camera = pad_m / 2, report.camera
    corners = np.array([(pad.north + a, pad.east + b, 0.0) for a in (-half, half) for b in (-half, half)])
    rays = (corners - (*report.position, -report.height)) @ matrix(report.q_wb) @ camera.R_bc
    if (rays[:, 2] <= 0).any():
        return None
    px: Array = (rays / rays[:, 2:]) @ camera.K.T
    (left, top), (right, bottom) = px[:, :2].min(0).tolist(), px[:, :2].max(0).tolist()
    inside = left >= 0 and top >= 0 and right < camera.width_px and bottom < camera.height_px
    return (left, top, right, bottom) if inside else None


def place_mistakes(place: Location, report: Report, pads: Sequence[Location]) -> set[str]:
    """Return the mistakes that explain a pad's place: wrong maps of its place or of its image."""
    here, camera = report.position, report.camera

    def of(pad: Location) -> tuple[Sequence[float], Maps]:
        n, e = pad.north - here.north, pad.east - here.east
        ray = np.array([n, e, report.height]) @ matrix(report.q_wb) @ camera.R_bc
        right, down = (ray[:2] / ray[2] * report.height).tolist() if ray[2] > 0 else (e, -n)
        px = (camera.K @ ray / ray[2])[:2].tolist() if ray[2] > 0 else (0.0, 0.0)
        return pad, [
            ("relative to the drone: add report.position", (n, e)),
            ("north and east are swapped", (pad.east, pad.north)),
            ("north has the wrong sign: rows grow southward", (here.north - n, pad.east)),
            ("east has the wrong sign", (pad.north, here.east - e)),
            ("both signs are wrong", (here.north - n, here.east - e)),
            ("columns are taken for north, and rows for east", (here.north + e, here.east + n)),
            ("columns are taken for north, and rows for east", (here.north + right, here.east + down)),
            ("as of a camera that looks straight down: use R_bc and q_wb", (here.north - down, here.east + right)),
            ("north has the wrong sign: rows grow southward", (here.north + down, here.east + right)),
            ("pixels, not metres: divide by the scale of the image", px),
            ("pixels, not metres: divide by the scale of the image", px[::-1]),
        ]

    return _explained(place, list(map(of, pads)), NEAR_M, 2 * NEAR_M)


CHANGES = {  # methods that change an object
    "append", "extend", "add", "update", "insert", "pop", "popleft", "appendleft", "clear", "remove", "setdefault",
}  # fmt: skip
FUNCTIONS = ("detect", "locate", "decide")  # of a program; each runs in its own process
Function = ast.FunctionDef | ast.AsyncFunctionDef
COMMANDS, STATUSES = ("Go", "Halt", "Land", "Null"), tuple(Status.__members__)


class Hint(NamedTuple):
    """Line of a program, and what to check there."""

    line: int
    text: str


def blanks(path: Path) -> list[Hint]:
    """Return the lines where a value is still `...`, with their comments. A body that is only `...` does not count."""
    tree, lines = _parsed(path)
    harmless = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and isinstance(node.body[-1], ast.Expr):
            harmless.add(id(node.body[-1].value))
        if isinstance(node, ast.Subscript):  # a[..., 0], tuple[int, ...]
            harmless |= {id(child) for child in ast.walk(node.slice)}
    found = [
        Hint(node.lineno, lines[node.lineno - 1].partition("#")[2].strip() or "put a value in its place")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value is ... and id(node) not in harmless
    ]
    return sorted(found)


def hints(path: Path) -> list[Hint]:
    """Return the probable mistakes in a program; none for a file that does not parse, which fails when it is run."""
    tree, _ = _parsed(path)
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    endless = "a loop outside of functions runs before the flight; `decide` is called at every step without it"
    found = [Hint(node.lineno, endless) for node in tree.body if isinstance(node, ast.While)]
    for name, function in functions.items():
        if name in FUNCTIONS and (isinstance(function, ast.AsyncFunctionDef) or _yields(function)):
            found.append(Hint(function.lineno, PLAIN.format(name)))
        elif name in FUNCTIONS and not _ends(function.body):
            found.append(Hint(function.lineno, f"`{name}` can end without a `return`, which returns None"))
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in COMMANDS:
                found.append(Hint(node.lineno, f"{name}(...) has no effect without `return`"))
            case ast.Compare(left=ast.Attribute(attr="status") as one, comparators=[other]):
                texts = [side.value for side in (one, other) if isinstance(side, ast.Constant)]
                found += [
                    Hint(node.lineno, f"a status is no text: write Status.{text}") for text in texts if text in STATUSES
                ]
    return sorted([*found, *_shared(tree, functions)])


def hint_lines(programs: Sequence[Path]) -> list[str]:
    return [f"hint: {path}:{hint.line}: {hint.text}" for path in programs for hint in hints(path)]


def imported(path: Path) -> list[Path]:
    """Return the modules beside a program that it imports, and those that they import, as absolute paths."""
    folder, found, rest = path.absolute().parent, list[Path](), [path.absolute()]
    while rest:
        for node in ast.walk(_parsed(rest.pop())[0]):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                inside = folder.joinpath(*name.split("."))
                for module in (inside.with_suffix(".py"), inside / "__init__.py"):
                    if module.is_file() and module not in [path.absolute(), *found]:
                        found.append(module)
                        rest.append(module)
    return found


def _parsed(path: Path) -> tuple[ast.Module, list[str]]:
    try:
        text = path.read_text(encoding="utf-8")
        return ast.parse(text), text.splitlines()
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.Module([], []), []


def _yields(node: ast.AST) -> bool:
    """Check whether a function has a `yield` of its own, not of a function in it."""
    return any(
        isinstance(child, ast.Yield | ast.YieldFrom)
        or (not isinstance(child, Function | ast.Lambda) and _yields(child))
        for child in ast.iter_child_nodes(node)
    )


def _ends(body: list[ast.stmt]) -> bool:
    """Check whether control never reaches the end of these statements."""
    match body[-1] if body else None:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(body=yes, orelse=no):
            return _ends(yes) and _ends(no)
        case ast.With(body=inner):
            return _ends(inner)
        case ast.Try(body=tried, handlers=handlers, orelse=no, finalbody=last):
            paths = [*(handler.body for handler in handlers), [*tried, *no]]
            return _ends(last) or all(map(_ends, paths))
        case ast.Match(cases=cases):
            *_, last_case = cases
            catches_all = isinstance(last_case.pattern, ast.MatchAs) and last_case.pattern.pattern is None
            return catches_all and not last_case.guard and all(_ends(case.body) for case in cases)
        case ast.While(test=ast.Constant(value=forever)):
            return bool(forever) and not any(isinstance(node, ast.Break) for node in ast.walk(body[-1]))
    return False


def _shared(tree: ast.Module, functions: dict[str, Function]) -> Iterator[Hint]:
    """Yield hints on globals that one worker changes and another one reads."""
    stored = {
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    nodes = {worker: list(_reached(worker, functions, set())) for worker in FUNCTIONS if worker in functions}
    used = {worker: {node.id for node in own if isinstance(node, ast.Name)} for worker, own in nodes.items()}
    for writer, own in nodes.items():
        for name, line in sorted({(name, node.lineno) for node in own for name in _changed(node)}):  # type: ignore[attr-defined]
            readers = [other for other in used if other != writer and name in used[other]]
            if name in stored and readers:
                text = f"`{name}` is changed in `{writer}` and used in `{readers[0]}`, which run in separate processes"
                yield Hint(line, f"{text}: a value stored by one is not available to the other")


def _reached(name: str, functions: dict[str, Function], seen: set[str]) -> Iterator[ast.AST]:
    """Yield the nodes of a function, and of the file's functions that it names."""
    seen.add(name)
    for node in ast.walk(functions[name]):
        yield node
        if isinstance(node, ast.Name) and node.id in functions.keys() - seen:
            yield from _reached(node.id, functions, seen)


def _changed(node: ast.AST) -> list[str]:
    match node:
        case ast.Global(names=names):
            return names
        case ast.Call(func=ast.Attribute(value=ast.Name(id=one), attr=method)) if method in CHANGES:
            return [one]
        case (
            ast.Subscript(value=ast.Name(id=one), ctx=ast.Store())
            | ast.Attribute(value=ast.Name(id=one), ctx=ast.Store())
        ):
            return [one]
    return []
