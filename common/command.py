"""Common parts of all command lines: `--quiet`, `--json FILE`, and the use of stdout and stderr.

Results go to stdout; progress, remarks and errors go to stderr. With `--quiet` only errors are left on stderr; with `--json -`
only the JSON is left on stdout, and its other content goes to stderr.
"""

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np

from gate_racer.common.config import read_fields
from gate_racer.common.errors import UserError, closest, exit_code, say
from gate_racer.common.files import require_output, write_file
from gate_racer.common.launch import QUIET, load
from gate_racer.common.settings import add_settings, instead, spelled

STDOUT = Path("-")
TRACK_OPTIONS, TRACK_ARGUMENTS = ("--track", "--tracks"), ("track", "what")  # a course, by option or by place
OUT, ERR = 1, 2  # file descriptors, to which libraries and child processes write


def add_common(parser: argparse.ArgumentParser, result: str, *also: str, within: bool = False) -> None:
    """Add the options that every command has.

    Args:
        result: description of what `--json` writes.
        also: other names of `--json`.
        within: whether this is a sub-command; the options may then also precede its name.
    """
    add, unless_given = parser.add_argument, argparse.SUPPRESS
    if not within:
        parser.set_defaults(quiet=False, json=None)
    silent = "print no progress and no remarks, only results and errors"
    add(QUIET, action="store_true", default=unless_given, help=silent)
    description = f"write {result.replace('%', '%%')} to FILE; with - to stdout, and all other output to stderr"
    add("--json", *also, dest="json", type=Path, default=unless_given, metavar="FILE", help=description)


def settings_parser(
    prog: str,
    about: str,
    settings: Any,
    options: Mapping[str, Mapping[str, str]],
    result: str,
    *also: str,
    file: bool = True,
) -> argparse.ArgumentParser:
    """Return the command line of a command with settings; arguments as of `add_settings` and `add_common`."""
    parser = argparse.ArgumentParser(prog=prog, description=about)
    add_settings(parser, settings, options, file)
    add_common(parser, result, *also)
    return parser


def main(module: str) -> NoReturn:
    """Run the command of a module, and exit with its code.

    It has a `parser`, and in WORK the name of the module whose `run` does the work, loaded once the command line is understood.
    """
    line = load(module)
    sys.exit(perform(line.parser(), lambda arguments: load(line.WORK).run(arguments)))


def perform(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> int:
    """Parse the command line and run it. Returns the exit code."""

    def refuse(message: str) -> NoReturn:
        unknown, equals, _ = message.partition("unrecognized arguments: ")[2].partition(" ")[0].partition("=")
        near = closest(spelled(unknown), [*options, *sets]) if equals or unknown.startswith("-") else ""
        hint = near and f"; did you mean {sets.get(near, near)}?"
        if "argument COMMAND: invalid choice" in message and "--tracks" in options:
            hint = "; or, if it is a course: --tracks"
        raise UserError(f"{message}{hint} ({parser.prog} --help)")

    within = [a.choices.values() for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    lines = (parser, *itertools.chain(*within))
    options = {option for one in lines for option in one._option_string_actions}
    sets = {option: how for one in lines for option, how in instead(one).items()}

    def performed() -> int:
        for one in lines:
            one.error = refuse  # argparse's own prints the whole usage first
        words = _understood(parser, sys.argv[1:], sets)
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            if option not in options and (how := sets.get(spelled(option))):
                raise UserError(f"{option}: is no option; use {how}")
        arguments = parser.parse_args(words)
        with contextlib.ExitStack() as streams:
            if arguments.quiet:
                streams.enter_context(contextlib.redirect_stderr(_Hushed(sys.stderr)))
            if arguments.json == STDOUT:
                arguments.json = streams.enter_context(_alone_on_stdout())
            elif arguments.json is not None:
                require_output(arguments.json, *_texts(vars(arguments) | {"json": None}))
            return run(arguments)

    return exit_code(performed)


def _understood(parser: argparse.ArgumentParser, words: Sequence[str], keys: Collection[str]) -> list[str]:
    """Return the command line with `--track` as the command spells it, unless it means one of the `keys`.

    A first word that names no sub-command is a course, where `--tracks` takes courses and is not given.
    """
    options = {*parser._option_string_actions, *keys}
    places = {action.dest: action.choices or () for action in parser._actions if not action.option_strings}
    named = any(place in places for place in TRACK_ARGUMENTS)
    bare = words and words[0][:1] != "-" and not closest(words[0], places.get("command", ()))
    if bare and "--tracks" in options and not any(word.startswith("--tracks") for word in words):
        words = ["--tracks", *words]
    understood: list[str] = []
    for word in words:
        if word in TRACK_OPTIONS and word not in options:
            understood += [] if named else [name for name in TRACK_OPTIONS if name in options] or [word]
        else:
            understood.append(word)
    return understood


def require_outputs(outputs: Iterable[Path | None], *inputs: Path | str | None) -> None:
    """Check that each output can be written, and is neither an input nor another output. Raises FileError."""
    others = list(inputs)
    for path in filter(None, outputs):
        require_output(path, *others)
        others.append(path)


def _texts(values: Mapping[str, Any]) -> Iterator[str | Path | None]:
    """Yield the texts and paths of a command line, any of which may name a file, and of its settings file."""
    config = values.get("config")
    rest = [*values.values(), read_fields(config) if config is not None else None]
    while rest:
        value = rest.pop()
        if isinstance(value, str | Path):
            for text in (str(value), str(value).partition("=")[2]):  # of --set KEY=VALUE
                yield text or None
                yield text.rpartition(":")[0] or None  # of FILE.py:CLASS
        elif isinstance(value, Mapping):
            rest += value.values()
        elif isinstance(value, Sequence):
            rest += value


def remark(text: str) -> None:
    """Print a line on stderr that `--quiet` suppresses."""
    say(text, sys.stderr)


def complain(text: str) -> None:
    """Print lines on stderr, even with `--quiet`."""
    say(text, getattr(sys.stderr, "loud", sys.stderr))


def write_json(path: Path | None, result: Any) -> None:
    """Write a result as JSON, non-finite numbers as null; nothing if path is None. Raises FileError."""
    if path is not None:
        write_file(path, json.dumps(plain(result), indent=2, allow_nan=False) + "\n")


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def plain(value: Any) -> Any:
    """Return dataclasses, arrays, paths and mappings as JSON has them; numbers that are not finite become None."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Sequence | set) and not isinstance(value, str):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


class _Hushed(io.TextIOBase):
    """stderr that discards all but `complain`; it has no descriptor, so that it cannot be bypassed."""

    def __init__(self, loud: TextIO):
        self.loud = loud

    def write(self, text: str) -> int:
        return len(text)


@contextlib.contextmanager
def _alone_on_stdout() -> Iterator[Path]:
    """Context with a file whose content is printed to stdout at the end; other output to stdout goes to stderr meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        try:
            with contextlib.redirect_stdout(sys.stderr), descriptor_aside(OUT, ERR):
                yield path
        finally:
            if path.exists():
                say(path.read_text(encoding="utf-8").rstrip("\n"))


@contextlib.contextmanager
def descriptor_aside(descriptor: int, other: int) -> Iterator[None]:
    """Context in which a file descriptor is redirected to another one, also for libraries and child processes."""
    kept = os.dup(descriptor)
    try:
        os.dup2(other, descriptor)
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
