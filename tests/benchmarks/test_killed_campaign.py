"""A campaign that is killed goes on where it was, and reports the whole."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import pytest

from gate_racer.benchmarks import tables
from gate_racer.benchmarks.tables import Result
from gate_racer.race.campaign.case import FILE, Store
from tests.conftest import ROOT, within_this_process
from tests.processes import command, run_here, survivors

CAMPAIGN = "gate_racer.race.campaign.cli"


@dataclass(frozen=True)
class Struck:
    """A campaign that was killed after some of its flights."""

    folder: Path
    asked: list
    done: set[str]
    session: int


@pytest.fixture(scope="module")
def struck(hop_plans, tmp_path_factory) -> Struck:
    folder = tmp_path_factory.mktemp("campaign")
    shutil.copytree(hop_plans, folder / "plans")
    flown = ["--tracks", hop_plans / "hop.yaml", "--settings", "1", "projected", "--seeds", "2"]
    asked = [*flown, "--set", "workers=1", "worst=1", "--out", folder]
    words, pipe = command(CAMPAIGN, *asked), subprocess.PIPE
    first = subprocess.Popen(words, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    while not flown_ids(folder):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    for pipe in (first.stdout, first.stderr):
        pipe.close()  # unread: a worker that survived would hold it open
    return Struck(folder, asked, flown_ids(folder), first.pid)


@pytest.fixture(scope="module")
def killed(struck) -> Path:
    """The folder of a campaign that was killed, and then begun again and finished."""
    folder, done = struck.folder, struck.done
    with sqlite3.connect(folder / FILE) as db:  # marked, to see whether they are flown again
        db.execute("update cases set outcome_json = json_set(outcome_json, '$.cause', 'kept')")
    assert 0 < len(done) < 3
    with pytest.MonkeyPatch.context() as patch:
        within_this_process(patch)
        again = run_here(CAMPAIGN, *struck.asked)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{3 - len(done)}/{3 - len(done)}" in again.stderr and "finished [95 %]" in again.stdout
    rows = {row.case.id: row for row in Store.existing(folder).rows()}
    assert len(rows) == 3 and {name for name, row in rows.items() if row.outcome.cause == "kept"} == done
    return folder


def flown_ids(folder: Path) -> set[str]:
    try:
        with sqlite3.connect(f"file:{folder / FILE}?mode=ro", uri=True) as db:
            return {name for (name,) in db.execute("select id from cases")}
    except sqlite3.OperationalError:
        return set()


def test_a_killed_campaign_goes_on_where_it_was(killed):
    about = json.loads((killed / "tables.json").read_text())["about"]
    assert about["commit"] and about["machine"]
    assert sum(cell["flights"] for cell in json.loads((killed / "tables.json").read_text())["cells"]) == 3


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look for survivors in")
def test_no_process_outlives_a_killed_campaign(struck):
    assert not survivors(struck.session)


def test_the_worst_flight_was_flown_again_and_the_campaign_is_stored_as_a_result(killed, tmp_path, capsys):
    logs = list((killed / "worst").glob("*.mcap"))
    assert len(logs) == 1 and logs[0].with_suffix(".png").exists()
    assert f'href="worst/{logs[0].name}"' in (killed / "report.html").read_text()
    assert tables.run(Namespace(campaign=killed, result=tmp_path / "hop.json")) == 0
    stored = Result.load(tmp_path / "hop.json")
    at = [stored.columns.index(name) for name in ("course", "setting", "of")]
    assert [[row[k] for k in at] for row in stored.rows] == [["hop", "1", 1], ["hop", "projected", 2]]
    assert stored.commit and "median time s" in capsys.readouterr().out
