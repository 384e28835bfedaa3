"""Errors that a user can cause, and their conversion to one line and an exit code."""

import contextlib
import difflib
import os
import reprlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast

LONGEST = 600  # characters, longest message; the project's longest has 400


class UserError(Exception):
    """Error that the user can correct. The message says what is wrong, where, and what would be right.

    Examples:
        >>> from gate_racer import UserError
        >>> try:
        ...     load_track("vq3")
        ... except UserError as error:
        ...     print(str(error).partition(";")[0])
        no track 'vq3'
    """


def meant(name: str, known: Iterable[str], what: str, otherwise: str) -> str:
    """Return the known name that a name means, in whatever case; `otherwise` would be right too. Raises UserError."""
    known = list(known)
    found = [one for one in known if one.casefold() == name.casefold()]
    if not found:
        text = f"no {what} {reprlib.repr(name)};{nearest(name, known)} known: {', '.join(known)}, or {otherwise}"
        raise UserError(text)
    return name if name in found else found[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name nearest to an unknown one, as a question behind a semicolon; empty if none is near."""
    near = closest(name, known)
    return f" did you mean {near}?" if near else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name nearest to an unknown one; empty if none is near."""
    by_spelling = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), by_spelling, 1)
    return by_spelling[near[0]] if near else ""


def exit_code(main: Callable[[], int | None]) -> int:
    """Run a command line. Returns 0 or its code; 2 with one line for a `UserError` or an unusable file; 130 after Ctrl-C."""
    _open_standard_streams()
    out, err = cast(TextIO, _Escaped(sys.stdout)), cast(TextIO, _Escaped(sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            return main() or 0
        except UserError as error:
            say(f"error: {one_line(str(error))}", sys.stderr)
            return 2
        except BrokenPipeError:  # the reader of our output has closed it
            _drop(sys.stdout)
            return 0
        except OSError as error:  # a file or folder of the command line that the system refuses
            if error.filename is None:
                raise
            say(f"error: {one_line(f'{error.filename}: {error.strerror}')}", sys.stderr)
            return 2
        except KeyboardInterrupt:
            say("interrupted", sys.stderr)
            return 130


def say(text: str, stream: TextIO | None = None) -> None:
    """Print to stdout or another stream; if it is closed or the disk is full, discard this and all further output."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except (OSError, ValueError):
        _drop(stream)


CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"}


def escaped(text: str, encoding: str | None = None) -> str:
    """Escape control characters, which may come from files, and what an encoding (by default UTF-8) cannot express."""
    encoding = encoding or "utf-8"
    return text.translate(CONTROL).encode(encoding, "backslashreplace").decode(encoding)


class _Escaped:
    """Text stream that writes all text `escaped`."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(escaped(text, self._stream.encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _drop(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that the interpreter's final flush does not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_standard_streams() -> None:
    """Open closed standard streams on the null device, since the next file opened would take their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, closefd=False))


def one_line(text: str, longest: int = LONGEST) -> str:
    """Format a message as one line of bounded length, without control characters."""
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= longest else f"{text[:longest]} ..."
