"""Parts that users bring: those of docs/parts.md fly, and what is wrong with one is a line or a counted fall-back."""

import json
import re
import shutil

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.common.parts import Part, is_part, load_part, part_content
from gate_racer.estimation.estimator import State
from gate_racer.estimation.registry import make_estimator
from gate_racer.link.messages import Imu
from gate_racer.mpc.control import Source
from gate_racer.mpc.registry import make_controller, needs_plan
from gate_racer.perception.registry import open_detector
from gate_racer.pilot.flight import EndReason
from gate_racer.pilot.racer import Racer, RacerOptions
from gate_racer.planner.plan import read_plan
from gate_racer.race.campaign.choice import Choice
from gate_racer.sim.physics.plant import make_plant
from gate_racer.sim.physics.registry import natural, plant_setting
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import from_euler
from tests.conftest import ROOT
from tests.pilot.test_racer import flown
from tests.processes import few_images, raced, run_here

PAGE = (ROOT / "docs/parts.md").read_text(encoding="utf-8")
OWN = PAGE.partition("## Bring your own part")[2].partition("## Fly in a loop")[0]
RUN = "gate_racer.race.run_mpc"

WRONG = """
import time
import numpy as np

class Grasping:
    def __init__(self, *given): self.change(*given)
    def change(self, *given):
        for one in given:
            for array in [one, *getattr(one, "__dict__", {}).values()]:
                if isinstance(array, np.ndarray): array[...] = 7.0
    def step(self, *given):
        self.change(*given)
        raise Exception("\\x1b[31m two\\nlines " + 999 * "z")

class Unmade:
    def __init__(self, *given): raise RuntimeError("no battery")
    def step(self, *given): pass

class Guess:
    pass
"""
FAILING = {  # what every method of a class does
    "Raising": "raise ValueError('no idea')",
    "Nothing": "return None",
    "Undefined": "return np.full(4, np.nan)",
    "Short": "return [1.0]",
    "Exiting": "raise SystemExit(3)",
    "Stalling": "time.sleep(0.5)",
}
FAILS = """
class {}:
    def __init__(self, *given): pass
    def step(self, *given): {}
    steer = detect = imu = fix = state = step
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """The examples of the page, in one file."""
    path = tmp_path_factory.mktemp("parts") / "mine.py"
    path.write_text("\n\n".join(re.findall(r"```python\n(.*?)```", OWN, re.S)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    path = tmp_path_factory.mktemp("wrong") / "wrong.py"
    imports, _, others = WRONG.partition("\n\n")
    path.write_text("".join([imports, *(FAILS.format(*one) for one in FAILING.items()), others]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def sprint_course(sprint):
    return load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")


def test_a_part_changes_nothing_but_its_own(wrong):
    """Neither what it is made with, nor what its methods get; and its reasons are one short line."""
    gate = load_track("vq1").gates[0]
    centre, x = gate.p_wg.copy(), np.zeros(3)
    part = Part(f"{wrong}:Grasping", "controller", ("step",), (gate,))
    _, why = part.call("step", gate, x)
    assert (gate.p_wg == centre).all() and not x.any()
    assert why.isprintable() and "two lines zzz" in why and len(why) < 400


def test_names_of_parts_have_one_form():
    named = ["mine.py:Mine", "a/b c/mine.py:Mine", "C:\\x\\mine.py:Mine", "package.module:Class", "mine.py"]
    assert all(map(is_part, named))
    assert not any(map(is_part, ["mpcc", "tuned.yaml", "x.npz", "vq1:3", "tcp:localhost:5761", "a.b:3c", ":C"]))


UNLOADABLE = {
    "nowhere.py:Mine": "nowhere.py:Mine: nowhere.py: no such file",
    "wrong.py": "wrong.py: the class is missing, as in wrong.py:Class; it has: Raising, Nothing,",
    "wrong.py:Mine": "wrong.py has no class 'Mine'; it has: Raising, Nothing,",
    "wrong.py:Guess": "Guess has no method `step` nor `steer`, by which it would be a controller, see docs/parts.md",
    "wrong.py:Unmade": "cannot be made: RuntimeError: no battery (",
    "broken.py:Mine": "broken.py:Mine: cannot be imported: SyntaxError:",
    "importing.py:Mine": "cannot be imported: ModuleNotFoundError: No module named 'nothing_such' (",
    "no_such_package.module:Mine": "cannot be imported: ModuleNotFoundError: No module named 'no_such_package'",
}


@pytest.mark.parametrize("name", UNLOADABLE)
def test_a_part_that_cannot_be_loaded_is_one_line(name, wrong, sprint, monkeypatch):
    (wrong.parent / "broken.py").write_text("class Mine(:\n", encoding="utf-8")
    (wrong.parent / "importing.py").write_text("import numpy\nimport nothing_such\n", encoding="utf-8")
    where = wrong.parent
    done = run_here(RUN, sprint / "sprint.csv", "--lockstep", "--controller", name, "--log", where, folder=where)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert UNLOADABLE[name] in done.stderr
    assert "importing" not in name or "importing.py:2)" in done.stderr


@pytest.mark.parametrize("cls", FAILING)
def test_a_controller_that_fails_is_flown_by_the_fall_back_and_counted(cls, wrong, sprint_course, dcl):
    track, plan = sprint_course
    controller = make_controller(f"{wrong}:{cls}", plan, dcl, track, patience_s=0.1)
    x = np.array([*track.start.p_wb, *track.start.q_wb, *np.zeros(7)])
    control = controller.step(0.0, x, 1 / 60)
    assert control.source is Source.GEOMETRIC and np.isfinite(control.u).all()
    assert control.reason.startswith(f"{wrong}:{cls}: ")
    free = Racer(track, dcl, RacerOptions(controller=f"{wrong}:{cls}"), plan)
    assert free.step(0.0, State(0.0, track.start.p_wb, track.start.q_wb)).control.source is Source.GEOMETRIC
    assert free.counters.fallbacks == 1


@pytest.mark.parametrize("cls", FAILING)
def test_other_parts_that_fail_have_fall_backs_too(cls, wrong, vq1, dcl):
    name, x = f"{wrong}:{cls}", np.zeros(14)
    detector = open_detector(name, dcl.camera, 0.1)
    assert detector.detect(np.zeros((360, 640, 3), np.uint8)) == [] and detector.refused == 1
    own, built_in = make_estimator(name, vq1.start, dcl, patience_s=0.1), make_estimator("eskf", vq1.start, dcl)
    for k in range(3):
        for one in (own, built_in):
            one.imu(Imu(k / 120, (0.0, 0.0, -9.81), (0.0, 0.0, 0.0)))
    assert np.array_equal(own.state().p_wb, built_in.state().p_wb)
    assert own.health.fallbacks and own.health.fallback_reason
    if cls != "Stalling":
        plant, nominal = make_plant(dcl, vq1.start, plant_setting(name)), make_plant(dcl, vq1.start, natural(dcl))
        for one in (plant, nominal):
            one.place(x[:3], vq1.start.q_wb, np.array([3.0, 0, 0]))
            one.advance(0.05)
        assert np.array_equal(plant.truth.x, nominal.truth.x) and "failed" in plant.trouble


def test_a_call_that_stalls_is_left_alone_until_it_returns(wrong):
    part = Part(f"{wrong}:Stalling", "controller", ("step",), (), 0.05)
    assert "has not returned within 0.05 s" in part.call("step")[1]
    assert "has not returned from an earlier call" in part.call("step")[1]
    assert sum(part.faults.values()) == 2 and "failed 1 times" in part.summary


def test_content_is_part_of_a_cases_identity(tmp_path, vq1, dcl):
    path = tmp_path / "mine.py"

    def case():
        return Choice(settings=("1",), controllers=(f"{path}:Mine",)).cases(vq1, dcl)[0]

    path.write_text("class Mine:\n    def step(self, t, x, ahead): return ahead.u[0]\n")
    first = case()
    assert first == case() and first.plan == "" and needs_plan(f"{path}:Mine")
    path.write_text(path.read_text() + "# changed\n")
    assert case().id == first.id and case().content != first.content
    assert part_content("gate_racer.common.parts:Part").startswith(b'"""Parts')
    with pytest.raises(UserError, match="has no method"):
        load_part(f"{path}:Mine", "plant", ("fly",))


def test_a_guidance_written_from_the_page_needs_no_plan(mine, sprint_course, dcl):
    track, _ = sprint_course
    racer = Racer(track, dcl, RacerOptions(controller=f"{mine}:Chaser"))
    flown(racer, track, dcl)
    assert racer.plan is None and racer.end.reason is EndReason.FINISHED and not racer.counters.fallbacks


def test_parts_written_from_the_page_fly_together_in_lockstep(mine, hop_plans, tmp_path, undrawn):
    """Controller and filter of the page, by camera and IMU."""
    own = "--controller", f"{mine}:Geometric", "--set", f"perception.estimator={mine}:Reckoning"
    flight = raced(tmp_path, hop_plans / "hop.csv", *own)
    assert flight["mpc_fallbacks"] == 0 and flight["troubles"] == {}


def test_a_flight_whose_parts_all_fail_has_its_result(wrong, hop_plans, tmp_path, undrawn):
    """Flown by the geometric controller, the built-in filter and the `rates` model."""
    out = tmp_path / "result.json"
    parts = [f"perception.estimator={wrong}:Undefined", f"world.plant={wrong}:Nothing"]
    done = run_here(
        RUN, hop_plans / "hop.csv", "--lockstep", "--camera", "projected", "--controller", f"{wrong}:Raising",
        "--set", *parts, "--log", tmp_path, "--json", out,
    )  # fmt: skip
    flight = json.loads(out.read_text())
    assert done.returncode in (0, 1) and "Traceback" not in done.stdout + done.stderr
    (reason,) = flight["mpc_fallback_reasons"]
    assert reason.startswith(f"{wrong}:Raising: ValueError: no idea (") and flight["mpc_fallbacks"] > 100
    assert set(flight["troubles"]) == {"estimator", "plant"} and "internal error" not in flight["cause"]


def test_a_live_flight_whose_parts_all_fail_has_its_result(wrong, hop_plans, tmp_path, undrawn, capfd):
    """The detector fails in a process of its own, and the controller in the flight loop."""
    out, detector, profile = tmp_path / "result.json", f"{wrong}:Undefined", few_images("spec", tmp_path)
    text = profile.read_text(encoding="utf-8")  # a flight that misses its gate goes on to the limit
    profile.write_text(re.sub(r"(?m)^run_limit_s: [\d.]+", "run_limit_s: 1.5", text), encoding="utf-8")
    done = run_here(
        RUN, hop_plans / "hop.csv", "--set", "perception.pose=true", "--controller", f"{wrong}:Stalling", "--detector", detector,
        "--profile", profile, "--log", tmp_path, "--json", out,
    )  # fmt: skip
    flight = json.loads(out.read_text())
    assert done.returncode in (0, 1) and "Traceback" not in done.stdout + done.stderr + capfd.readouterr().err
    assert any("step has not returned within 0.1 s" in reason for reason in flight["mpc_fallback_reasons"])
    assert "no answer to" in flight["troubles"]["detector"] and "internal error" not in flight["cause"]


def test_a_detector_written_from_the_page_sees_the_gates(mine, vq1, dcl):
    detector, gate = open_detector(f"{mine}:Orange", dcl.camera), vq1.gates[0]
    x, y, _ = gate.R_wg[:, 0]
    level = from_euler(0.0, -np.radians(dcl.camera.tilt_deg), np.arctan2(y, x))
    with RenderedCamera(vq1, dcl.camera, load_style("race"), 0) as renderer:
        found = detector.detect(renderer.image(gate.p_wg - 5.0 * gate.R_wg[:, 0], level))
    middles = [one.corners_px.mean(axis=0) for one in found]
    assert not detector.refused and min(np.linalg.norm(middle - [320, 180]) for middle in middles) < 20


def test_a_campaign_compares_parts_in_one_table(mine, hop_plans, tmp_path):
    """In worker processes, with settings of one's own."""
    out = tmp_path / "tables.json"
    shutil.copytree(hop_plans, tmp_path / "c/plans")
    done = run_here(
        "gate_racer.race.campaign.cli", "--tracks", hop_plans / "hop.yaml", "--controllers", f"{mine}:Geometric",
        "--settings", "1", f"{mine}:Sluggish", "--seeds", 1, "--out", tmp_path / "c", "--json", out,
        "--set", "workers=1", "worst=0", "uncertified=true",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(out.read_text()) and f"{mine}:Geometric, state given" in done.stdout
    assert f"| {mine}:Sluggish |" in done.stdout
