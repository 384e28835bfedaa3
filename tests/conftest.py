"""Shared fixtures: the real track and vehicle, and one plan made once."""

import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from planner.options import PlanOptions
from planner.plan import Plan, read_plan, write_plan
from planner.planning import make_plan
from tracks.track import Track, load_track
from vehicle.vehicle import Vehicle, load_vehicle

ROOT = Path(__file__).parent.parent
LONGEST = (
    "test_unknown_simulator.py",
    "test_flight.py",
    "test_campaign.py",
    "test_killed_campaign.py",
)  # two minutes each: last, one core would wait


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def dcl() -> Vehicle:
    return load_vehicle("dcl")


@pytest.fixture(scope="session")
def vq1() -> Track:
    return load_track(ROOT / "tracks/vq1.yaml")


@pytest.fixture(scope="session")
def plan_folder(tmp_path_factory, vq1, dcl) -> Path:
    """A folder with the certified plan of VQ1 and its JSON; a copy of the one that all test processes share."""
    folder, base = tmp_path_factory.mktemp("plans"), tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-plans"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            plan, certificate = make_plan(vq1, dcl, PlanOptions())
            assert certificate.ok, certificate.status
            write_plan(shared / "vq1.csv", plan, dcl, certificate.as_dict())
    for file in shared.iterdir():
        shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="session")
def plan(plan_folder) -> Plan:
    return read_plan(plan_folder / "vq1.csv")
