"""The simulator that a flight has started ends with the process of the flight, killed or not."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import running, survivors


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs processes by session")
def test_an_orphaned_simulator_ends_by_itself():
    with subprocess.Popen([sys.executable, "-m", "tests.race_orphan"], cwd=ROOT, stdout=subprocess.PIPE) as parent:
        try:
            simulator = int(parent.stdout.readline())
            until = time.monotonic() + 60
            while len(running(simulator)) < 2 and time.monotonic() < until:
                time.sleep(0.05)  # until it draws images in a process of its own
            assert len(running(simulator)) >= 2
        finally:
            parent.kill()
    assert not survivors(simulator)
