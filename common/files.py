"""Reading of untrusted files and atomic writing.

A reader returns a file's content or raises one `FileError` that names the file: sizes, depths and the lengths of numbers are
limited before anything is constructed. Files are written completely or not at all, and never over a command's own input.
"""

import contextlib
import csv
import errno
import gzip
import io
import json
import os
import re
import stat
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.errors import UserError

# Bytes, largest CSV or JSON file: a true path of ten minutes has 20 MB, and empty lists take 24 times their text.
TEXT_BYTES = 32 << 20
ARRAY_BYTES = 64 << 20  # bytes, largest .npz file, unpacked; 1000 samples of a residual take 0.2 MB
GZIP = b"\x1f\x8b"  # first bytes of a file packed by gzip
DPI = 90  # of figures: 900 to 1500 px wide
JSON_DEPTH = 64  # most nested lists and objects; the deepest file of the project has 6
FIELDS = 4 << 20  # most fields of a CSV file, with 100 bytes of memory each
CAUSES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)  # of malformed content


class FileError(UserError):
    """A file that is missing, malformed, or cannot be written."""


def read_bytes(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; one packed by gzip is unpacked, to at most as many. Raises FileError."""
    data = read_start(path, most + 1)
    if len(data) > most:
        raise FileError(f"{path}: is larger than {most >> 10} kB, the limit for such a file")
    return data


def read_start(path: Path, count: int) -> bytes:
    """Read the first bytes of a regular file, unpacked if it is packed by gzip. Raises FileError."""
    never_waiting = getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer would block forever
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | never_waiting)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileError(f"{path}: is not a regular file")
            if file.read(len(GZIP)) == GZIP:
                file.seek(0)
                return gzip.GzipFile(fileobj=file).read(count)
            file.seek(0)
            return file.read(count)
    except (OSError, ValueError, EOFError, zlib.error) as error:  # ValueError: a name that no file system accepts
        raise FileError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def read_text(path: Path, most: int = TEXT_BYTES) -> str:
    """Read a UTF-8 file, with or without a byte-order mark. Raises FileError: as `read_bytes`, or another encoding."""
    try:
        return read_bytes(path, most).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path}: cannot be read (not a text file)") from None


def read_json(path: Path, most: int = TEXT_BYTES) -> Any:
    """Read a JSON file. Raises FileError: as `read_text` and `parse_json`."""
    return parse_json(read_text(path, most), str(path))


def parse_json(text: str | bytes, where: str) -> Any:
    """Parse JSON of limited nesting; Python limits the length of numbers. Raises FileError."""
    try:
        value = json.loads(text)
        marks = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
        if sum(map(text.count, marks)) > JSON_DEPTH and not _shallow(value):  # type: ignore[arg-type]
            raise ValueError(f"nested deeper than {JSON_DEPTH} levels")
    except json.JSONDecodeError as error:
        raise FileError(f"{where}:{error.lineno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise FileError(f"{where}: not valid JSON: nested deeper than {JSON_DEPTH} levels") from None
    except ValueError as error:
        raise FileError(f"{where}: not valid JSON: {error}") from None
    return value


def _shallow(value: Any) -> bool:
    """Check whether lists and objects are nested at most JSON_DEPTH levels."""
    level: list[Any] = [[value]]
    for _ in range(JSON_DEPTH + 1):
        inner = (one for outer in level for one in (outer.values() if isinstance(outer, dict) else outer))
        level = [one for one in inner if isinstance(one, list | dict)]
    return not level


def read_csv(path: Path, separator: str = ",") -> list[list[str]]:
    """Read the rows of a CSV file without blank lines and comments (#), fields stripped of blanks. Raises FileError."""
    text = io.StringIO(read_text(path), newline=None)
    lines = (line for line in text if line.strip() and not line.startswith("#"))
    rows, fields = [], 0
    try:
        for row in csv.reader(lines, delimiter=separator):
            fields += len(row)
            if fields > FIELDS:
                raise FileError(f"{path}: has more than {FIELDS} fields, the limit for such a file")
            rows.append([field.strip() for field in row])
    except csv.Error as error:
        raise FileError(f"{path}: malformed ({error})") from None
    return rows


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file of at most ARRAY_BYTES, unpacked. Raises FileError: missing, malformed or larger."""
    data = read_bytes(path, ARRAY_BYTES)
    with reading(path, "not a valid .npz file"):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if sum(member.file_size for member in archive.infolist()) > ARRAY_BYTES:
                    raise ValueError(f"more than {ARRAY_BYTES >> 20} MB unpacked")
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (EOFError, OSError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(error) from None


@contextlib.contextmanager
def reading(path: Path | str, what: str = "malformed") -> Iterator[None]:
    """Context that converts errors from a file's content to a FileError: `PATH: malformed (...)`."""
    try:
        yield
    except UserError:
        raise
    except KeyError as error:
        raise FileError(f"{path}: {what} ({error} is missing)") from error
    except (*CAUSES, MemoryError, AssertionError, SyntaxError) as error:
        raise FileError(f"{path}: {what} ({error or type(error).__name__})") from error


def file_name(name: Any, where: str) -> str:
    """Check a name from a file's content, for use as a file name within a folder. Raises FileError."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w+-][\w.+-]{0,199}", name):
        raise FileError(f"{where}: {name!r} is used as a file name: allowed are letters, digits, '_', '.', '+' and '-'")
    return name


def within(path: Any, where: str) -> str:
    """Check that a path from a file's content lies within the working directory. Raises FileError."""
    with contextlib.suppress(OSError, RuntimeError, TypeError, ValueError):
        if Path(path).resolve().is_relative_to(Path.cwd().resolve()):
            return str(path)
    raise FileError(f"{where}: {path!r} lies outside of the current folder; give it on the command line if intended")


def require_named(path: Path) -> None:
    """Check that an input path names a file or folder, beside which outputs can be named. Raises FileError."""
    if path.name in ("", ".."):
        raise FileError(f"{path}: expected the name of a log")


def require_output(path: Path, *others: Path | str | None) -> None:
    """Check that an output can be written, and is no other file of the command by any name. Raises FileError."""
    if path.is_dir():
        raise FileError(f"{path}: is a folder, not a file name")
    holder = next(folder for folder in path.absolute().parents if folder.exists())
    if not holder.is_dir():
        raise FileError(f"{path}: cannot be written ({holder} is a file)")
    if path.exists() and read_only(path):
        raise FileError(f"{path}: cannot be written (is read-only)")
    if not is_stream(path) and not os.access(holder, os.W_OK | os.X_OK):
        raise FileError(f"{path}: cannot be written (no permission in {holder})")
    for other in others:
        if other is not None and _same_file(path, Path(other)):
            raise FileError(f"{path}: would overwrite {other}, which this command uses as well; choose another name")


def _same_file(path: Path, other: Path) -> bool:
    """Check whether two paths name one file, which need not exist."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # a name that no file system accepts
        return path.resolve() == other.resolve() or path.samefile(other)
    return False


def is_stream(path: Path) -> bool:
    """Check whether a path names a device or pipe, also through a link such as /dev/stdout, whose target may have no path."""
    return path.exists() and not path.is_file() and not path.is_dir()


def read_only(path: Path) -> bool:
    """Check whether a file denies writing to everybody, which root respects here as well, or to this user."""
    denied = not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    return denied or not os.access(path, os.W_OK)


def write_file(path: Path, data: str | bytes) -> None:
    """Write a file atomically, also with concurrent writers. Raises FileError: it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with drafted(path) as draft:
            draft.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise FileError(f"{path}: cannot be written ({error.strerror})") from None


def write_figure(path: Path, figure: Any) -> None:
    """Write a figure of matplotlib as PNG, as `write_file` does."""
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names of files may have letters that its font lacks
        figure.savefig(data, format="png", dpi=DPI)
    write_file(path, data.getvalue())


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an .npz file, as `write_file` does."""
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **arrays)
    write_file(path, data.getvalue())


@contextlib.contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Context with a temporary file beside `path`, of the same suffix, that replaces it at the end. Raises OSError.

    A link stays one, and the file that it names is replaced. A device or pipe is written to.
    """
    if path.exists() and read_only(path):
        raise PermissionError(errno.EACCES, "is read-only", str(path))
    if is_stream(path):
        with tempfile.TemporaryDirectory() as folder:
            yield (draft := Path(folder) / path.name)
            path.write_bytes(draft.read_bytes())
        return
    path = path.resolve() if path.is_symlink() else path
    handle, name = tempfile.mkstemp(prefix=f".{path.stem[:100]}-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    draft = Path(name)
    try:
        mask = os.umask(0)
        os.umask(mask)
        draft.chmod(0o666 & ~mask)
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
