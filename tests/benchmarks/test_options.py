"""Every option of `run-mpc` is flown: few flights hold all its values, and each finishes or is refused in one line."""

from itertools import combinations, product

import pytest

from gate_racer.benchmarks.races import Axes, covering, ended, named, refusal, words_of
from gate_racer.planner.plan import write_plan
from gate_racer.planner.planning import make_plan, plan_path
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.processes import few_images, run_here

AXES = Axes.of(["vq1"])
# Models of the kinds that `dcl` and `swift` have, and what `tests/pilot/test_msp_flight.py` flies.
ALIKE = {"vehicle=cpc", "vehicle=kolibri", "vehicle=archer"}
TEXTS = [text for axis in [*AXES.governed[1:], *AXES.free] for text in axis if text and text not in ALIKE]
# A told state hides what a camera sees, projected corners need no detector, and not every vehicle suits every wire.
ALONE = {"perception.pose", "world.camera", "perception.detector", "vehicle", "laps"}
TOGETHER = Axes(*([axis for axis in axes if named(axis[-1])[0] not in ALONE] for axes in (AXES.governed, AXES.free)))
PROJECTED = "world.camera=projected"
SEEN = "world.camera=rendered", "perception.detector=classical", "vehicle=dcl", "laps=1"
ROWS = [SEEN, *((PROJECTED, *row[1:]) for row in covering(TOGETHER, 1))]
ROWS += [(text,) if "detector" in text else (PROJECTED, text) for text in TEXTS if not any(text in row for row in ROWS)]


def write_slow_plan(vehicle, course, folder):
    """Write a plan that needs no trial: those are flown in `tests/planner/test_slots.py`."""
    track, options = load_track(course), PlanOptions(guesses=1, reserve=0.7, speed_m_s=15.0)
    plan, certificate = make_plan(track, vehicle, options)
    write_plan(plan_path(folder, track, vehicle, options), plan, vehicle, certificate.as_dict())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(filter(None, row)))
def test_each_value_of_each_option_finishes_a_course_of_one_gate(row, hop, hop_plans, tmp_path, undrawn):
    texts = str(hop), *row
    for name, value in map(named, row):
        if name == "vehicle" and (vehicle := load_vehicle(value)).grey_box:
            write_slow_plan(vehicle, hop, hop_plans)
    keys = [f"plan.folder={hop_plans}"]
    if PROJECTED not in row:  # drawing images is what takes the time
        keys.append(f"link.profile={few_images('spec', tmp_path)}")
    words = words_of((*texts, *keys))
    done = run_here("gate_racer.race.run_mpc", *words, "--log", tmp_path)
    assert done.returncode == (2 if refusal(texts) else 0), done.stdout + done.stderr


@pytest.mark.parametrize("strength", [1, 2])
def test_a_covering_array_has_all_that_can_be_together(strength):
    axes = Axes(
        [["vq1", "splits_uzh"], ["", "perception.pose=true"], ["laps=1", "laps=2"]],
        [["", "plan.replan=true"], ["", "link.check=false"]],
    )
    rows, columns = covering(axes, strength), [*axes.governed, *axes.free]
    allowed = [row for row in product(*columns) if not refusal(row)]
    assert set(rows) <= set(allowed) and len(rows) <= len(allowed) and rows == covering(axes, strength)

    def held(some):
        return {chosen for row in some for chosen in combinations(enumerate(row), strength)}

    assert held(rows) == held(allowed)
    assert ("splits_uzh", "", "laps=1", "", "") not in allowed and all(row[2] == "laps=1" for row in rows)


RESULT = {"gates_passed": 1, "gates_total": 6, "race_time_s": None, "planned_time_s": 6.0, "min_margin_m": 0.4}


@pytest.mark.parametrize(
    ("code", "stderr", "result", "kind"),
    [
        (0, "", RESULT, "finished"),
        (1, "a remark", RESULT, "lost"),
        (2, "a remark\nerror: perception.pose: not here", None, "refused"),
        (2, "error: one\nerror: two", None, "broken"),
        (1, "Traceback (most recent call last):\nKeyError: 3", RESULT, "broken"),
        (-11, "", None, "broken"),
    ],
)
def test_an_end_without_a_result_or_one_line_is_a_defect(code, stderr, result, kind):
    assert ended(code, stderr, result and {**result, "cause": ""})["end"] == kind
