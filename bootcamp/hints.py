"""Probable mistakes in a learner's program, found in its text without running it."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

CHANGES = {
    "append",
    "extend",
    "add",
    "update",
    "insert",
    "pop",
    "popleft",
    "appendleft",
    "clear",
    "remove",
    "setdefault",
}
FUNCTIONS = ("detect", "locate", "decide")  # of a program; each runs in its own process


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
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    found = [*_no_return(functions), *_loops(tree), *_shared(tree, functions)]
    return sorted(found)


def hint_lines(programs: Sequence[Path]) -> list[str]:
    """Return the hints on several programs, as lines of text."""
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


def _no_return(functions: dict[str, ast.FunctionDef]) -> Iterator[Hint]:
    for name in FUNCTIONS:
        if name in functions and not _ends(functions[name].body):
            text = f"`{name}` can end without a `return`, which returns None"
            yield Hint(functions[name].lineno, text)


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
            return any(_any(case) for case in cases) and all(_ends(case.body) for case in cases)
        case ast.While(test=ast.Constant(value=forever)):
            return bool(forever) and not any(isinstance(node, ast.Break) for node in ast.walk(body[-1]))
    return False


def _any(case: ast.match_case) -> bool:
    """Check whether a case matches any subject."""
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None


def _loops(tree: ast.Module) -> Iterator[Hint]:
    for node in tree.body:
        if isinstance(node, ast.While):
            yield Hint(
                node.lineno,
                "a loop outside of functions runs before the flight; `decide` is called at every step without it",
            )


def _shared(tree: ast.Module, functions: dict[str, ast.FunctionDef]) -> Iterator[Hint]:
    """Yield hints on globals that one worker changes and another one reads."""
    stored = {name.id for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) for name in _targets(node)}
    used = {worker: _names(worker, functions, set()) & stored for worker in FUNCTIONS if worker in functions}
    for writer in used:
        for name, line in sorted(_changed(writer, functions, set())):
            readers = [other for other in used if other != writer and name in used[other]]
            if name in stored and readers:
                text = f"`{name}` is changed in `{writer}` and used in `{readers[0]}`, which run in separate processes"
                yield Hint(line, f"{text}: a value stored by one is not available to the other")


def _targets(node: ast.Assign | ast.AnnAssign) -> Iterator[ast.Name]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from (name for name in ast.walk(target) if isinstance(name, ast.Name))


def _names(name: str, functions: dict[str, ast.FunctionDef], seen: set[str]) -> set[str]:
    """Return the names used in a function, and in the file's functions that it calls."""
    seen.add(name)
    names = {node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
    return names.union(*(_names(other, functions, seen) for other in names & functions.keys() - seen))


def _changed(name: str, functions: dict[str, ast.FunctionDef], seen: set[str]) -> set[tuple[str, int]]:
    """Return the names whose objects a function changes, with line numbers."""
    seen.add(name)
    found = set[tuple[str, int]]()
    for node in ast.walk(functions[name]):
        match node:
            case ast.Global(names=names):
                found |= {(one, node.lineno) for one in names}
            case ast.Call(func=ast.Attribute(value=ast.Name(id=one), attr=method)) if method in CHANGES:
                found.add((one, node.lineno))
            case (
                ast.Subscript(value=ast.Name(id=one), ctx=ast.Store())
                | ast.Attribute(value=ast.Name(id=one), ctx=ast.Store())
            ):
                found.add((one, node.lineno))
            case ast.Call(func=ast.Name(id=one)) if one in functions and one not in seen:
                found |= _changed(one, functions, seen)
    return found
