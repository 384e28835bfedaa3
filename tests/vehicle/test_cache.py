"""Compiled code counts only whole, unchanged and of the user's own; two builders at once leave one whole entry."""

import ctypes
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from gate_racer.common.cache import ABANDONED_S, DRAFTS, LOCK, MANIFEST, cache_folder, entry
from gate_racer.common.errors import UserError
from gate_racer.sim.betaflight.sitl import clock_library

TEXT = "whole"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gate-racer"


def build(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "library.so").write_text(TEXT)


INJURIES = {
    "a truncated file": (lambda place: (place / "a/library.so").write_text(TEXT[:2]), "is damaged"),
    "a file that is gone": (lambda place: (place / "a/library.so").unlink(), "is damaged"),
    "a manifest that is no JSON": (lambda place: (place / MANIFEST).write_text("{"), "is damaged"),
    "an empty manifest": (lambda place: (place / MANIFEST).write_text("{}"), "is damaged"),
    "a manifest of others' files": (lambda place: (place / MANIFEST).write_text('{"../../x": "0"}'), "is damaged"),
    "a file that others can write": (lambda place: (place / "a/library.so").chmod(0o666), "can be written by others"),
    "a folder that others can write": (lambda place: (place / "a").chmod(0o777), "can be written by others"),
}


@pytest.mark.parametrize("injure, words", INJURIES.values(), ids=INJURIES)
def test_an_entry_that_does_not_count_is_built_anew_with_a_line(injure, words, capsys):
    place = entry("one", build)
    injure(place)
    built = []
    assert entry("one", lambda draft: (built.append(1), build(draft))) == place
    assert built and (place / "a/library.so").read_text() == TEXT
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
    entry("one", lambda draft: pytest.fail("a whole entry is built again"))


def test_a_cache_of_another_user_is_refused(folder, monkeypatch):
    cache_folder()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(UserError, match="belongs to another user"):
        entry("one", build)


def test_a_cache_that_can_only_be_read_serves_what_it_has(folder):
    place = entry("one", build)
    (folder / DRAFTS).rmdir()
    (folder / DRAFTS).touch()  # so that root cannot build there either
    assert entry("one", build) == place
    with pytest.raises(UserError, match=r"cannot be used \(.*; set XDG_CACHE_HOME"):
        entry("two", build)


def test_a_build_that_fails_leaves_nothing(folder):
    with pytest.raises(ZeroDivisionError):
        entry("one", lambda draft: 1 // 0)
    assert kept(folder) == []


def kept(folder: Path) -> list[str]:
    return [path.name for path in (*folder.iterdir(), *(folder / DRAFTS).iterdir()) if path.name not in (LOCK, DRAFTS)]


def _hurry(barrier, pipe) -> None:
    barrier.wait()
    pipe.send((entry("many", build) / "a/library.so").read_text())


def test_builders_at_once_do_no_harm(folder):
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        barrier, (ours, theirs) = context.Barrier(4), context.Pipe()
        crew = [context.Process(target=_hurry, args=(barrier, theirs)) for _ in range(4)]
        for process in crew:
            process.start()
        for process in crew:
            process.join()
        assert [process.exitcode for process in crew] == [0] * 4 and kept(folder) == ["many"]
        assert [ours.recv() for _ in crew] == [TEXT] * 4
        (folder / "many" / "a/library.so").write_text("x")


def test_the_draft_of_a_killed_builder_is_swept_and_that_of_a_living_one_kept(folder):
    drafts = cache_folder() / DRAFTS
    for name, age_s in (("killed", 2 * ABANDONED_S), ("living", 10.0)):
        (drafts / name).mkdir(parents=True)
        os.utime(drafts / name, (time.time() - age_s,) * 2)
    entry("two", build)
    assert sorted(kept(folder)) == ["living", "two"]


def test_the_clock_of_the_firmware_is_checked_as_other_libraries(folder, monkeypatch, capsys):
    library = clock_library()
    library.write_bytes(library.read_bytes()[:100])
    assert ctypes.CDLL(str(clock_library())) and "is damaged; rebuilt" in capsys.readouterr().err
    library.unlink()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"link.sitl: sitl_clock.c cannot be compiled by `cc`"):
        clock_library()
