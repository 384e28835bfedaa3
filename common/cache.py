"""Cache of code compiled on this machine: folders that are complete, unchanged and writable by the user alone.

Code from here is loaded into the process. So an entry is valid only if every file matches its SHA-256 in the manifest and no
other user could have written it; an invalid one is rebuilt, with a line that says why. Entries are built in a temporary folder
and moved into place atomically under a lock, so that concurrent builders do no harm.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from gate_racer.common.files import FileError, read_bytes, read_json

MANIFEST = "manifest.json"
LOCK = ".lock"
MANIFEST_BYTES, FILE_BYTES = 1 << 20, 256 << 20  # bytes, largest manifest and file; a compiled solver has 2 MB
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path:
    """Return the folder of all entries, writable by the user alone.

    Raises:
        FileError: it cannot be created, or other users can write to it.
    """
    folder = user_cache_path("gate-racer")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.name != "nt" and folder.stat().st_uid == os.getuid() and folder.stat().st_mode & OTHERS_WRITE:
            folder.chmod(0o700)
    except OSError as error:
        raise FileError(f"{folder}: cannot be used ({error.strerror}); set XDG_CACHE_HOME to another folder") from None
    if why := _others(folder):
        raise FileError(f"{folder}: {why}, so its code cannot be trusted; set XDG_CACHE_HOME to another folder")
    return folder


def entry(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of an entry, built if there is no valid one.

    Args:
        name: name of the entry, with a hash of everything that it depends on.
        build: fills an empty folder, which is moved to `cache_folder() / name` afterwards; its exceptions are passed on.

    Raises:
        FileError: the cache cannot be used.
    """
    root = cache_folder()
    place = root / name
    _sweep(root)
    for _ in range(3):  # another process may replace it at the same moment
        why = _fault(place)
        if why is None:
            return place
        if place.exists() or place.is_symlink():
            print(f"{place}: {why}; rebuilt", file=sys.stderr)
        _install(place, build)
    raise FileError(f"{place}: {_fault(place) or 'cannot be stored'}")


def _install(place: Path, build: Callable[[Path], None]) -> None:
    """Build in a temporary folder and move it into place; an invalid entry there is removed first."""
    with FileLock(place.parent / LOCK):
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
        held = FileLock(draft / LOCK)
        held.acquire()
    try:
        build(draft)
        files = sorted(path for path in draft.rglob("*") if path.is_file() and path != draft / LOCK)
        for path in (*files, *(folder for folder in draft.rglob("*") if folder.is_dir()), draft):
            path.chmod(path.stat().st_mode & ~OTHERS_WRITE)
        sums = {path.relative_to(draft).as_posix(): _sha256(path) for path in files}
        (draft / MANIFEST).write_text(json.dumps(sums), encoding="utf-8")
        (draft / MANIFEST).chmod(0o600)
        # Without the lock, another process could install a valid entry between check and move, and lose it.
        with FileLock(place.parent / LOCK), contextlib.suppress(OSError):
            held.release()
            (draft / LOCK).unlink(missing_ok=True)
            if _fault(place) is not None:
                old = Path(tempfile.mkdtemp(prefix=".old-", dir=place.parent))
                with contextlib.suppress(OSError):
                    place.rename(old / place.name)
                shutil.rmtree(old, ignore_errors=True)
                draft.rename(place)
    finally:
        held.release()
        shutil.rmtree(draft, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove the drafts of builders that were killed: nobody holds them any more."""
    for draft in root.glob(".*/"):
        with contextlib.suppress(Timeout, OSError), FileLock(root / LOCK), FileLock(draft / LOCK, timeout=0):
            shutil.rmtree(draft, ignore_errors=True)


def _fault(place: Path) -> str | None:
    """Return why an entry is invalid, or None."""
    if not place.is_dir() or place.is_symlink():
        return "is not a folder"
    try:
        sums = read_json(place / MANIFEST, MANIFEST_BYTES)
        if not isinstance(sums, dict) or not sums:
            return "has no manifest"
        for name, expected in sums.items():
            path = place / name
            if not path.resolve().is_relative_to(place.resolve()):
                return "lists a file outside of its folder"
            if why := _others(path) or _others(path.parent):
                return why
            if _sha256(path) != expected:
                return f"{name} is damaged"
        return _others(place) or _others(place / MANIFEST) or None
    except (FileError, OSError, ValueError):
        return "is incomplete"


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
