"""acados's code is generated and compiled wherever environment and cache lie, though it hands paths to shells unquoted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gate_racer.mpc.solvers.acados import WHEEL

CODE = """
import sys
from pathlib import Path
from gate_racer.mpc.registry import make_controller
from gate_racer.planner.plan import read_plan
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle

folder = Path(sys.argv[1])
make_controller(
    "tracking", read_plan(folder / "sprint.csv"), load_vehicle("dcl"), load_track(folder / "sprint.yaml"), "acados"
)
print(sys.prefix)
"""


@pytest.mark.skipif(not WHEEL.is_dir(), reason="needs the wheel of acados")
def test_an_apostrophe_and_a_blank_in_every_path(tmp_path, sprint):
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    (folder / "venv").symlink_to(sys.prefix, target_is_directory=True)
    done = subprocess.run(
        [folder / "venv/bin" / Path(sys.executable).name, "-c", CODE, sprint],
        env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{folder / 'venv'}\n", done.stderr
    assert list((folder / "cache/gate-racer").glob("acados-*/c/*.so"))
