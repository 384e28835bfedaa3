"""Errors that a user can cause, and the one place where they become a line and an exit code."""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TextIO

LONGEST = 600  # characters of a message; the longest of the project's own has 400


class UserError(Exception):
    """Something the user can mend. The message names what, where, and what would be right.

    Examples:
        >>> from gate_racer import UserError
        >>> try:
        ...     load_track("vq3")
        ... except UserError as error:
        ...     print(str(error).partition(";")[0])
        no track 'vq3'
    """

    longest = LONGEST


def exit_code(main: Callable[[], int | None]) -> int:
    """Runs a command line. Returns 0 or its code; 2 with one line on stderr after a `UserError`; 130 after Ctrl-C."""
    _open_standard_streams()
    try:
        return main() or 0
    except UserError as error:
        say(f"error: {one_line(str(error), error.longest)}", sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough
        _drop(sys.stdout)
        return 0
    except KeyboardInterrupt:
        say("interrupted", sys.stderr)
        return 130


def say(text: str, stream: TextIO | None = None) -> None:
    """Prints to stdout or another stream, and goes on where nobody reads it any more, or the disk behind it is full."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except (OSError, ValueError):
        _drop(stream)


def _drop(stream: TextIO) -> None:
    """Sends what is printed from now on nowhere, so that the interpreter's last flush fails no more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_standard_streams() -> None:
    """A process may be started with stdout or stderr closed; the next file opened would stand in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the lowest free number is its own, unless an import has taken that
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, closefd=False))


def one_line(text: str, longest: int = LONGEST) -> str:
    """A message as one line of bounded length that no control character of a file's content can bend."""
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= longest else f"{text[:longest]} ..."
