"""Whatever a program's statements do, main outlives them; a flight draws what it reads; a worker answers to the sentinel."""

import pickle
import signal
import sys
from collections import Counter
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest

from gate_racer.bootcamp.api import Box, Go, Location
from gate_racer.bootcamp.cell import SENTINEL, STARTED, Counts, scenario_of, unpacked, work
from gate_racer.bootcamp.floor import GroundCamera
from gate_racer.bootcamp.program import NUMBER_MAX, Program, load_program
from gate_racer.bootcamp.run import fly
from gate_racer.bootcamp.scenario import load_world, make_scenario
from gate_racer.bootcamp.stages import Job, Player, fly_alone
from gate_racer.common.errors import UserError

HEAD = "from gate_racer.bootcamp.api import *\nimport atexit, functools, os, signal, sys, threading, time\nSCENARIO = 'hear'\n"
LANDS = "def decide(r, p): return Land() if r.status is Status.HALTED else Null()\n"
SPINS = "def spin():\n    while True: time.sleep(0.01)\nthreading.Thread(target=spin).start()\n"
ENDS = [
    ("os._exit(0)", "mine.py: the program ended its process (exit code 0): os._exit()? while it was loaded"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "mine.py: the program's process was killed (SIGKILL)"),
    ("sys.exit(0)", "mine.py:4: SystemExit: 0; Land() ends a flight"),
    ("def f(): f()\nf()", "mine.py:4: RecursionError: maximum recursion depth exceeded"),
    ("x = bytearray(10**15)", "mine.py:4: MemoryError"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt; Land() ends a flight, not an exit (in `<module>` at mine.py:4)"),
    ("class E(Exception):\n  def __str__(self): sys.exit(0)\nraise E", "mine.py:6: E"),
    ("raise ValueError('\\ud800' + 'x' * 10**7)", "mine.py:4: ValueError: ?xxx"),
]


@pytest.fixture
def mine(tmp_path):
    """Write a program, which lands unless it decides otherwise."""

    def write(statements, name="mine.py"):
        path, decides = tmp_path / name, "decide" in statements
        path.write_text(f"{HEAD}{statements}\n{'' if decides else LANDS}", encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(("statements", "line"), ENDS)
def test_a_program_that_ends_itself_is_named(mine, statements, line):
    with pytest.raises(UserError) as error:
        scenario_of(mine(statements))
    assert line in str(error.value)


CHANGES = (
    f"{SPINS}atexit.register(time.sleep, 1000)\nimport gate_racer.bootcamp.api\ngate_racer.bootcamp.api.Land = None\n"
    "os.chdir('/'); sys.path.clear(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "décidé = 'größe ✓'\nsys.stdout.close(); sys.stderr.close()"
)


def test_a_programs_changes_of_its_process_do_not_reach_main_whatever_its_name(mine):
    before = Path.cwd(), list(sys.path), signal.getsignal(signal.SIGTERM)
    assert scenario_of(mine(CHANGES, "prög 🛸.py")) == "hear"
    assert (Path.cwd(), sys.path, signal.getsignal(signal.SIGTERM)) == before


def test_threads_left_running_and_floods_of_output_end_with_the_flight(mine, tmp_path, capfd):
    path = mine(
        f"{SPINS}def detect(image):\n    print('x' * 10**5)\n    return [Box(-1e308, -1e308, 1e308, 1e308)] * 2000"
    )
    scenario = make_scenario("detector", 1, replace(load_world(), drone="kinematic"))
    assert fly(Job(path, scenario, False, False, tmp_path / "logs/flight")) == 0
    told, errors = capfd.readouterr()
    assert "done: landed 0.00 m from the pad" in told and "Traceback" not in errors and "OpenCV" not in errors
    report = (tmp_path / "logs/flight.json").read_text()
    assert '"terminated": []' in report and "numbers that are not finite" in report


def test_a_place_that_nothing_could_be_drawn_at_is_no_answer(mine):
    program, malformed = load_program(mine("")), Counter()
    placed = Program(program.decide, program.detect, lambda box, report: (box.left, box.top), "hear")
    boxes = [Box(0, 2, 9, 9), Box(0, 1.1 * NUMBER_MAX, 9, 9), Box(float("nan"), 0, 9, 9)]
    assert placed.places(boxes, None, malformed) == [Location(0.0, 2.0)] and malformed.total() == 2


# A flight in one process draws what its program reads, and nothing that is not drawn changes the flight.


ANSWER = "Null() if r.status is not Status.HALTED else Land() if r.reached else Go(10, 0)"
BLIND = [
    f"def decide(r, p): return {ANSWER}",
    f"decide = lambda r, p: {ANSWER}",
    f"def answer(r): return {ANSWER}\ndef decide(r, p=()): return answer(r)",
]
LOOKING = [
    f"def decide(r, p):\n    p = p or ()\n    return {ANSWER}",
    f"def decide(r, p):\n    for _ in p: pass\n    return {ANSWER}",
    f"def decide(r, p):\n    seen = [pad for pad in p]\n    return {ANSWER}",
    f"def decide(r, p):\n    def inner(): return p\n    return {ANSWER}",
    f"def decide(r, p):\n    locals()\n    return {ANSWER}",
    f"def decide(r, p):\n    sys._getframe().f_locals\n    return {ANSWER}",
    f"def decide(*both):\n    r = both[0]\n    return {ANSWER}",
    f"def decide(r, *p): return {ANSWER}",
    f"class Own:\n    def __call__(self, r, p): return {ANSWER}\ndecide = Own()",
    f"def twice(f): return functools.wraps(f)(lambda *both: f(*both))\n@twice\ndef decide(r, p): return {ANSWER}",
    f"{BLIND[0]}\ndef detect(image): return []",
    f"{BLIND[0]}\ndef locate(box, report): return None",
]


@pytest.mark.parametrize(("text", "looks"), [*((text, False) for text in BLIND), *((text, True) for text in LOOKING)])
def test_a_program_looks_if_its_answers_may_depend_on_an_image(mine, text, looks):
    assert load_program(mine(text)).looks is looks


def test_images_are_rendered_only_for_programs_that_read_them(mine, monkeypatch):
    scenario, drawn = make_scenario("hear", 7, replace(load_world(), drone="kinematic")), []
    frame = GroundCamera.frame
    monkeypatch.setattr(GroundCamera, "frame", lambda *given: drawn.append(given) or frame(*given))

    def flown(text):
        told, player = [], Player(mine(text), scenario)
        flight = fly_alone(player, scenario, lambda step, drone: told.append((step, drone.digest())))
        return flight, *zip(*told, strict=True)

    blind, unseen, same = flown(BLIND[0])
    assert blind.verdict.done and not drawn and not any(step.boxes or step.pads for step in unseen)
    looking, seen, digests = flown(LOOKING[0])
    assert len(drawn) == len(seen) - 1 and any(step.pads for step in seen)  # but the last, which nobody answers
    assert (looking, digests) == (blind, same)
    for late, early in zip(unseen, seen, strict=True):
        assert np.array_equal(late.image, early.image)


# A worker answers each item that it is sent, up to the sentinel or as long as main lives; only known types are made.


def doubled(desk, program, offset):
    for go in desk:
        desk.counters["items"] += 1
        desk.answer(Go(2 * go.north, go.east + offset))


@pytest.mark.parametrize("last", [SENTINEL, b"no pickle", pickle.dumps(print), None])
def test_items_are_answered_up_to_the_sentinel_or_what_is_no_message(last):
    main, theirs = Pipe()
    main.send_bytes(pickle.dumps(Go(1.0, 2.0)))
    main.send_bytes(pickle.dumps(Go(3.0, 4.0)) if last is None else last)
    if last is None:
        main.close()
    work(theirs, Path("mine.py"), doubled, 0.5)
    if last is not None:
        answers = [main.recv_bytes() for _ in range(3)]
        assert answers[0] == STARTED and unpacked(answers[1]) == Go(2.0, 2.5)
        assert unpacked(answers[2]) == Counts({"items": 1}, {})
