"""Errors that a user can cause, and the one place where they become a line and an exit code."""

import os
import sys
from collections.abc import Callable

LONGEST = 600  # characters of a message; the longest of the project's own has 400


class UserError(Exception):
    """Something the user can mend. The message names what, where, and what would be right."""


def exit_code(main: Callable[[], int | None]) -> int:
    """Runs a command line. Returns 0 or its code; 2 with one line on stderr after a `UserError`; 130 after Ctrl-C."""
    try:
        return main() or 0
    except UserError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def one_line(text: str) -> str:
    """A message as one line of bounded length that no control character of a file's content can bend."""
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
