"""Whatever a program's statements do, main and the flight outlive them, and a line says what they did."""

import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gate_racer.bootcamp.api import Box, Location
from gate_racer.bootcamp.cell import scenario_of
from gate_racer.bootcamp.program import NUMBER_MAX, Program, load_program
from gate_racer.bootcamp.run import fly
from gate_racer.bootcamp.scenario import load_world, make_scenario
from gate_racer.bootcamp.stages import Job
from gate_racer.common.errors import UserError

HEAD = "from gate_racer.bootcamp.api import *\nimport atexit, os, signal, sys, threading, time\nSCENARIO = 'hear'\n"
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
    """Write a program."""

    def write(statements, name="mine.py"):
        path = tmp_path / name
        path.write_text(f"{HEAD}{statements}\n{LANDS}", encoding="utf-8")
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
