"""The compliance suite: every row of VADR-TS-002 holds, and docs/vadr.md speaks of every section that it tests."""

import re

import pytest

from tests.conftest import ROOT
from tests.vadr import ROWS

DOC = (ROOT / "docs/vadr.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.section} {row.says}")
def test_the_document_holds(row):
    assert row.holds()


def test_the_page_speaks_of_every_section_and_says_how_many_rows_it_has():
    counts = {section: int(n) for section, n in re.findall(r"^## ([\d.]+) .*\((\d+) rows?\)$", DOC, re.M)}
    tested = [row.section for row in ROWS]
    assert len({(row.section, row.says) for row in ROWS}) == len(ROWS)
    assert counts == {section: tested.count(section) for section in sorted(set(tested))}


def test_the_tests_that_the_page_names_exist():
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", DOC):
        assert (ROOT / file).exists()
        assert not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name
