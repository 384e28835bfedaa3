"""Numbers that are none, or absurd, through the command: one line that names what, where, and what would be right."""

import shutil

import pytest

from tests.processes import run_here

TRACK = """\
name: odd
source: test
start: {position_m: [0.0, 0.0, 0.0], yaw_deg: 0.0}
bounds: {low_m: [-60.0, -60.0, -40.0], high_m: [100.0, 60.0, 0.5]}
frame: {opening_m: 1.5, outer_m: 2.7, depth_m: 0.26}
gates: [{centre_m: [12.0, 0.0, -2.0], yaw_deg: 0.0, pitch_deg: 0.0}]
end_m: [20.0, 0.0, -2.0]
"""
OPTIONS = [
    ("--margin .nan", "--margin .nan: margin_m: expected a finite number"),
    ("--see 1", "--see 1: see 1: must lie between 0 and 0.8"),
    ("--set limit_s=0", "limit_s 0: must be positive"),
    ("--set stop_m=[9,1e300,-2]", "the end (9.0, 1e+300, -2.0) lies outside the bounds"),
    ("--out plan.csv", "--out plan.csv: must be a folder"),
]
ROWS = [  # cell of a trajectory, what stands there instead, what the line says
    ((40, "p_x"), "nan", "row 40: p_x is 'nan', must be a number from -1e+09 to 1e+09"),
    ((2, "v_z"), "fast", "row 2: v_z is 'fast', must be a number"),
    ((5, "t"), "0.0", "row 5: t is 0, must be later than the 0"),
]


def refused(words, *arguments):
    done = run_here("gate_racer.race.plan_track", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ") and words in done.stderr, done.stderr


@pytest.mark.parametrize(("flags", "words"), OPTIONS, ids=[flags for flags, _ in OPTIONS])
def test_an_option(flags, words, tmp_path):
    (tmp_path / "odd.yaml").write_text(TRACK)
    out = () if "--out" in flags else ("--out", tmp_path)
    refused(words, tmp_path / "odd.yaml", *out, *flags.split())


@pytest.mark.parametrize("key", ["import_csv", "warm"])
@pytest.mark.parametrize(("cell", "value", "words"), ROWS, ids=[f"{cell[1]} {value}" for cell, value, _ in ROWS])
def test_a_row_of_a_trajectory(key, cell, value, words, plan_folder, tmp_path):
    rows = [line.split(",") for line in (plan_folder / "vq1.csv").read_text().splitlines()]
    rows[cell[0]][rows[0].index(cell[1])] = value
    (tmp_path / "peer.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    given = "vq1", "--set", f"{key}={tmp_path / 'peer.csv'}", "--out", tmp_path
    refused(words, *given)
    if key == "warm":  # a plan of this project, too
        shutil.copy(plan_folder / "vq1.json", tmp_path / "peer.json")
        refused(words, *given)


STARTS = [  # what the state has beside or instead of a place in the room, what the line says
    ("thrust_m_s2: .nan", "plan.yaml: start.thrust_m_s2"),
    ("position_m: [0, 60.5, -2]", "the start (0.0, 60.5, -2.0) lies outside the bounds"),
    ("velocity_m_s: [0, 60, 0]", "the speed, in m/s, of the start is 60; dcl allows 35 at most"),
    ("thrust_m_s2: 1000", "the thrust, in m/s^2, of the start is 1000; dcl allows 59.5"),
    ("position_m: [12, 1, -2]", "the start lies 0.00 m from the frame of gates[0]"),
    ("next_gate: 1", "next_gate 1: must be a gate from 0 to 0"),
]


@pytest.mark.parametrize(("field", "words"), STARTS, ids=[field for field, _ in STARTS])
def test_a_state_to_begin_from(field, words, tmp_path):
    (tmp_path / "odd.yaml").write_text(TRACK)
    position = "" if field.startswith("position") else "position_m: [0, 0, -2], "
    (tmp_path / "plan.yaml").write_text(f"start: {{{position}{field}}}\n")
    refused(words, tmp_path / "odd.yaml", "--config", tmp_path / "plan.yaml", "--out", tmp_path)
