"""Cache of code compiled on this machine: folders that are complete, unchanged and writable by the user alone.

Code from here is loaded into the process. So an entry is valid only if every file matches its SHA-256 in the manifest and no
other user could have written it; an invalid one is rebuilt, with a line that says why. Each builder has a temporary folder,
whose content is moved into place under a lock.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from gate_racer.common.files import FileError, read_bytes, read_json

MANIFEST = "manifest.json"
LOCK, DRAFTS = ".lock", "drafts"
MANIFEST_BYTES, FILE_BYTES = 1 << 20, 256 << 20  # bytes, largest manifest and file; a compiled solver has 2 MB
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
ABANDONED_S = 86_400.0  # s, age of a builder's folder that nobody waits for any more (chosen)


def cache_folder() -> Path:
    """Return the folder of all entries, writable by the user alone. Raises FileError."""
    folder = user_cache_path("gate-racer")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.name != "nt" and folder.stat().st_uid == os.getuid() and folder.stat().st_mode & OTHERS_WRITE:
            folder.chmod(0o700)
    except OSError as error:
        raise _unusable(folder, error) from None
    if why := _others(folder):
        raise FileError(f"{folder}: {why}, so its code cannot be trusted; set XDG_CACHE_HOME to another folder")
    return folder


def entry(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of an entry, built if there is no valid one. Raises FileError.

    Args:
        name: name of the entry, with a hash of everything that it depends on.
        build: fills an empty folder, which is then moved into place; its exceptions are passed on.
    """
    place = cache_folder() / name
    for _ in range(3):  # another process may replace it at the same moment
        if not (why := _fault(place)):
            return place
        if place.exists():
            print(f"{place}: {why}; rebuilt", file=sys.stderr)
        _install(place, build)
    raise FileError(f"{place}: {_fault(place) or 'cannot be stored'}")


def _install(place: Path, build: Callable[[Path], None]) -> None:
    """Build in a temporary folder and move it into place, unless a valid entry is there by then. Raises FileError."""
    with _temporary(place) as folder:
        draft, old = Path(folder) / "new", Path(folder) / "old"
        draft.mkdir()
        build(draft)
        files = {path.relative_to(draft).as_posix(): path for path in draft.rglob("*") if path.is_file()}
        (draft / MANIFEST).write_text(json.dumps({name: _sha256(path) for name, path in files.items()}), "utf-8")
        for path in (draft, *draft.rglob("*")):
            path.chmod(path.stat().st_mode & ~OTHERS_WRITE)
        with FileLock(place.parent / LOCK), contextlib.suppress(OSError):
            if _fault(place):
                if place.exists():
                    place.rename(old)
                draft.rename(place)


def _temporary(place: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a builder's folder, and remove those of builders that were killed. Raises FileError."""
    drafts = place.parent / DRAFTS
    try:
        drafts.mkdir(exist_ok=True)
        for draft in drafts.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > ABANDONED_S:
                    shutil.rmtree(draft)
        return tempfile.TemporaryDirectory(prefix=f"{place.name}-", dir=drafts)
    except OSError as error:
        raise _unusable(place.parent, error) from None


def _unusable(folder: Path, error: OSError) -> FileError:
    return FileError(f"{folder}: cannot be used ({error.strerror}); set XDG_CACHE_HOME to another folder")


def _fault(place: Path) -> str:
    """Return why an entry is invalid, or ""."""
    try:
        sums, found = read_json(place / MANIFEST, MANIFEST_BYTES), [place, *place.rglob("*")]
        files = {path.relative_to(place).as_posix(): path for path in found}
        if not sums or any(_sha256(files[name]) != expected for name, expected in sums.items()):
            return "is damaged"
        return next(filter(None, map(_others, found)), "")
    except (FileError, OSError, AttributeError, KeyError):  # a file or the manifest is missing, or is none
        return "is damaged"


def _others(path: Path) -> str:
    """Return why another user could have written a file, or ""."""
    if os.name == "nt":
        return ""
    about = path.stat()
    if about.st_uid != os.getuid():
        return f"{path.name} belongs to another user"
    return f"{path.name} can be written by others" if about.st_mode & OTHERS_WRITE else ""


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, FILE_BYTES)).hexdigest()
