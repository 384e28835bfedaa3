"""The pages' tables are what the stored results say, and a result is complete: one number or text in a cell."""

import pytest

from gate_racer.benchmarks.tables import PAGES, RESULTS, TABLE, Result, conclude, rendered
from gate_racer.common.errors import UserError

NAMES = sorted(path.stem for path in RESULTS.glob("*.json"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_the_results_say(page):
    text = page.read_text(encoding="utf-8")
    assert text == rendered(text), "python -m gate_racer.benchmarks.tables"


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_complete_and_in_a_page(name):
    result = Result.load(RESULTS / f"{name}.json")
    assert result.title and result.command and len(set(result.columns)) == len(result.columns)
    assert result.commit or "commit" in result.columns
    for column in zip(*result.rows, strict=True):
        kinds = {isinstance(cell, str) for cell in column if cell is not None}
        assert len(kinds) == 1, column
        assert not any(" / " in cell for cell in column if isinstance(cell, str)), column
    assert any(name == found[1] for page in PAGES for found in TABLE.findall(page.read_text(encoding="utf-8")))


def test_numbers_keep_the_digits_of_the_file_and_what_was_not_measured_is_empty(tmp_path, capsys):
    rows = [{"course": "VQ1", "time s": 6.58749, "of": 9}, {"course": "VQ2", "time s": float("nan"), "of": 10}]
    conclude(tmp_path / "one.json", Result.of("Two", rows))
    assert "6.587" in capsys.readouterr().out
    (tmp_path / "one.json").write_text((tmp_path / "one.json").read_text().replace("6.587", "6.580"))
    kept = Result.load(tmp_path / "one.json")
    assert kept.markdown(["time s", "of"]).splitlines()[2:] == [
        "| time s | of |", "|---|---|", "| 6.580 | 9 |", "|  | 10 |"
    ]  # fmt: skip


@pytest.mark.parametrize("asked", ["nothing", "races: no such column"])
def test_a_table_without_a_result_or_with_an_unknown_column_is_one_line(asked):
    with pytest.raises(UserError, match=r"nothing\.json|no column 'no such column'"):
        rendered(f"<!-- table {asked} -->\n<!-- end -->")
