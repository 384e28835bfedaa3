"""The board: levels flown by configurations, standings that show edits, and tests between rows that are paired by flights."""

import argparse
import shutil
from dataclasses import replace
from decimal import Decimal

import pytest

from gate_racer.benchmarks.tables import RESULTS, Result
from gate_racer.commands import COMMANDS
from gate_racer.common.errors import UserError
from gate_racer.race.campaign import board as module
from gate_racer.race.campaign.board import Board, Level, Levels
from gate_racer.race.campaign.cli import parser
from gate_racer.race.campaign.compare import ALL, Entry, LevelFlight, as_csv, as_html, as_markdown, levels_of, paired
from gate_racer.sim.physics import registry
from tests.conftest import within_this_process
from tests.processes import run_here


def entry(name, times, level="known", commit="abc"):
    """One row with a flight per time, None for a crash, in each of two levels."""
    flights = [
        LevelFlight(where, "vq1/dcl/1", seed, "finished" if s else "crashed", "" if s else "hit gate 1", s, 0.3)
        for where in ("nominal", level)
        for seed, s in enumerate(times)
    ]
    return Entry(name, commit, "digest", tuple(flights))


FAST, SLOW = entry("fast", [6.0 + 0.01 * k for k in range(10)]), entry("slow", [6.2 + 0.011 * k for k in range(10)])
UNSURE = entry("unsure", [None] * 8 + [6.0, 6.0])


def test_a_row_has_the_figures_of_each_level_and_of_all():
    assert UNSURE.figures("known") == [2, 10, 6.0, 0.3] and UNSURE.figures(ALL) == [4, 20, 6.0, 0.3]
    assert UNSURE.figures("adverse") == [""] * 4
    head, first, *_ = as_csv([FAST, SLOW]).splitlines()
    assert head.startswith("configuration,all levels: finished,all levels: of,all levels: mean s")
    assert first.startswith("fast,20,20,6.045,0.3,10,10,6.045") and first.endswith(",abc")
    assert "| unsure | 4 of 20, 6.000 s | 2 of 10, 6.000 s | 2 of 10, 6.000 s |" in as_markdown([UNSURE])


def test_rows_are_tested_in_pairs_of_flights_by_level_and_over_all():
    found = {(d.cell, d.figure): d for d in paired(FAST, SLOW)}
    assert found[ALL, "race time s"].pairs == 20 and found["known", "race time s"].pairs == 10
    assert found["known", "race time s"].verdict == "B is worse" and found[ALL, "share finished"].p == 1.0
    lost = {(d.cell, d.figure): d for d in paired(FAST, UNSURE)}[ALL, "share finished"]
    assert lost.verdict == "B is worse" and lost.p >= 2 * 0.5**16  # McNemar's exact, of 16 discordant pairs
    assert {d.cell for d in paired(FAST, entry("other", [6.0], "adverse"))} == {ALL, "nominal"}
    html = as_html([FAST, replace(SLOW, name="<b>")])
    assert "Paired tests" in html and "&lt;b&gt;" in html and "<b>" not in html
    assert "Paired tests" not in as_html([FAST])


def test_an_edited_board_is_refused_and_another_is_joined_only_on_equal_content(tmp_path):
    board = Board({"track vq1": "a", "world known": "b"}, (FAST, UNSURE)).signed()
    path = tmp_path / "board.json"
    module.write_json(path, board)
    assert Board.load(path) == board
    joined = Board({"track vq1": "a"}, (SLOW,)).with_rows_of(path)
    assert [row.name for row in joined.rows] == ["fast", "unsure", "slow"]
    with pytest.raises(UserError, match="was flown with another track vq1"):
        Board({"track vq1": "c"}, ()).with_rows_of(path)
    for old, new in (('"crashed"', '"finished"'), ("6.01", "5.91"), ('"b"', '"c"')):
        edited = tmp_path / "edited.json"
        edited.write_text(path.read_text().replace(old, new, 1))
        with pytest.raises(UserError, match=r"edited\.json: was changed after it was written"):
            Board.load(edited)
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(UserError, match=r"none\.json"):
        Board.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "words, said",
    [
        (["--set", "levels=easy"], "levels easy: unknown; known: nominal, known, unknown, adverse"),
        (["--controllers", "magic"], "no controller 'magic'"),
        (["--set", "beside=nowhere.json"], "nowhere.json"),
        (["--seeds", "0"], "seeds 0: must be at least 1"),
        (["--set", "levels=rotorpy"], "rotorpy is not installed: pip install 'gate-racer[sims]'"),
    ],
)
def test_a_wrong_board_is_one_clear_line(words, said, tmp_path, monkeypatch):
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    done = run_here(COMMANDS["race-bench"], "board", *words, "--out", tmp_path)
    *left_out, last = done.stderr.splitlines()
    assert done.returncode == 2 and last.startswith("error: ") and said in last
    assert all(line.startswith("level ") for line in left_out)


def test_levels_of_what_is_not_installed_are_left_out_with_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    known = module.load(module.Path(module.__file__).with_suffix(".yaml"), Levels)
    assert [level.name for level in known.chosen(())] == ["nominal", "known", "unknown", "adverse", "rendered"]
    assert "level rotorpy is left out: rotorpy is not installed" in capsys.readouterr().err


def test_a_board_is_flown_written_and_stands_beside_another(hop_plans, tmp_path, monkeypatch):
    within_this_process(monkeypatch)
    told = Levels("dcl", (str(hop_plans / "hop.yaml"),), (Level("nominal", "1", "as_believed"),))
    monkeypatch.setattr(module, "load", lambda *_: told)

    def fly(*words) -> Board:
        given: argparse.Namespace = parser().parse_args(["board", *map(str, words), "--set", "workers=1", "seeds=1"])
        assert module.run(given) == 0
        return Board.load(given.json)

    for folder in ("a", "b"):
        shutil.copytree(hop_plans, tmp_path / folder / "plans")
    first = fly("--controllers", "tracking", "--out", tmp_path / "a", "--json", tmp_path / "a.json")
    (row,) = first.rows
    assert row.name == "tracking, state given" and row.figures("nominal")[:2] == [1, 1]
    assert first.contents["vehicle dcl"]
    shown = "--json", tmp_path / "b.json", "--set", f"beside={tmp_path / 'a.json'}"
    both = fly("--controllers", "mpcc", "--out", tmp_path / "b", *shown)
    assert [row.name for row in both.rows] == ["tracking, state given", "mpcc, state given"] and both.rows[0] == row
    page = (tmp_path / "b/report.html").read_text()
    assert page.index("Standings") < page.index("Paired tests") and "too few pairs: 1" in page
    assert (tmp_path / "b/board.csv").read_text().count("\n") == 3


def test_the_committed_rows_are_as_flown_and_in_the_page_of_results():
    board, stored = Board.load(RESULTS.parent / "board.json"), Result.load(RESULTS / "board.json")
    flown = [[row.name, level, *row.figures(level)] for row in board.rows for level in levels_of(board.rows)]
    kept = [[float(cell) if isinstance(cell, Decimal) else cell for cell in row] for row in stored.rows]
    assert [[None if cell == "" else cell for cell in row] for row in flown] == kept
