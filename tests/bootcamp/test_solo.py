"""A flight in one process draws what its program reads, and nothing that is not drawn changes the flight."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.bootcamp.floor import GroundCamera
from gate_racer.bootcamp.program import load_program
from gate_racer.bootcamp.scenario import load_world, make_scenario
from gate_racer.bootcamp.stages import Player, fly_alone

HEAD = "from gate_racer.bootcamp.api import *\nimport functools\nimport sys\nSCENARIO = 'hear'\n"
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


@pytest.fixture
def mine(tmp_path):
    """Write a program."""

    def write(text):
        path = tmp_path / "mine.py"
        path.write_text(HEAD + text, encoding="utf-8")
        return path

    return write


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
