"""Errors that a user can cause, and the one place where they become a line and an exit code."""

import os
import sys
from collections.abc import Callable


class UserError(Exception):
    """Something the user can mend. The message names what, where, and what would be right."""


def exit_code(main: Callable[[], int | None]) -> int:
    """Runs a command line. Returns 0 or its code; 2 with one line on stderr after a `UserError`; 130 after Ctrl-C."""
    try:
        return main() or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
