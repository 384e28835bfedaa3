"""Usual mistakes are named with their line; programs that are right are left in peace."""

import pytest

from gate_racer.bootcamp.cell import scenario_of
from gate_racer.bootcamp.mistakes import blanks, hints
from gate_racer.common.errors import UserError
from tests.conftest import ROOT

HEAD = "from gate_racer.bootcamp.api import Go, Null\n"
CASES = {  # text, line, and what is told
    "no return": ("def decide(r, p):\n    pass\n", 2, "`decide` can end without a `return`"),
    "a return in one branch": ("def decide(r, p):\n    if r:\n        return Null()\n", 2, "without a `return`"),
    "a command without return": (
        "def decide(r, p):\n    if r:\n        Null()\n    return Null()\n", 4, "Null(...) has no effect without `return`"),
    "a status as text": ("def decide(r, p):\n    return Go(r.status == 'HALTED', 0)\n", 3, "write Status.HALTED"),
    "a yield": ("def detect(i):\n    yield 1\ndef decide(r, p): return Null()\n", 2, "`detect` must be a plain function"),
    "async": ("async def decide(r, p):\n    return Null()\n", 2, "without `yield` and `async`"),
    "a loop at module level": ("while True:\n    pass\ndef decide(r, p): return Null()\n", 2, "a loop outside of functions"),
    "a global between workers": (
        "seen = []\ndef detect(i):\n    seen.append(i)\n    return []\ndef decide(r, p): return Go(len(seen), 0)\n",
        4, "`seen` is changed in `detect` and used in `decide`, which run in separate processes"),
    "a global changed by a helper": (
        "n = 0\ndef up():\n    global n\n    n += 1\ndef decide(r, p):\n    up()\n    return Null()\n"
        "def locate(b, r): return (n, 0)\n", 4, "`n` is changed in `decide` and used in `locate`"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "told"), CASES.values(), ids=CASES)
def test_mistakes(tmp_path, text, line, told):
    path = tmp_path / "mine.py"
    path.write_text(HEAD + text)
    (hint,) = hints(path)
    assert hint.line == line and told in hint.text


@pytest.mark.parametrize("folder", ["examples", "examples/solutions"])
def test_programs_that_are_right_get_no_hint(folder):
    paths = [path for path in (ROOT / folder).glob("*.py") if "def decide" in path.read_text()]
    assert len(paths) >= 4 and [hints(path) for path in paths] == [[]] * len(paths)


def test_a_blank_is_a_value_and_not_a_body_or_a_slice(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def later(): ...\ndef decide(r, p):\n    a = p[..., 0]\n    ...  # remember\n    return ...\n")
    assert [(hint.line, hint.text) for hint in blanks(path)] == [(4, "remember"), (5, "put a value in its place")]


ENDLESS = [("while n == 0: pass\n", 2), ("while n < 9:\n    try: time.sleep(9)\n    except BaseException: n += 1\n", 3)]


@pytest.mark.parametrize(("loop", "line"), ENDLESS, ids=["in a loop", "that swallows exceptions"])
def test_a_file_that_never_ends_is_named_with_its_line(tmp_path, monkeypatch, loop, line):
    path = tmp_path / "mine.py"
    path.write_text(f"n = 0; import time\n{loop}")
    monkeypatch.setattr("gate_racer.bootcamp.cell.LOAD_S", 1.0)
    with pytest.raises(UserError, match=rf"mine.py:{line}: still running after 1 s: a loop outside of functions\?"):
        scenario_of(path)
