"""Shared fixtures: the real track and vehicle, and plans made once."""

import os

from gate_racer.common.launch import ONE_THREAD

os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # as commands do, before NumPy is loaded

import gc
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

from gate_racer.common.errors import UserError
from gate_racer.planner.plan import Plan, read_plan, write_plan
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

settings.register_profile("untimed", deadline=None)  # how long an example takes is the machine's business
settings.load_profile("untimed")
ROOT = Path(__file__).parent.parent
HALF_SEEN = PlanOptions(see=0.5, margin_m=0.15)  # the plan looks longer, is slower and survives more
ONE_GUESS = PlanOptions(guesses=1)  # for what another local optimum would show as well
LONGEST = (  # first, since a core would wait for what is last
    "test_flight.py",
    "test_unknown_simulator.py",
    "test_class.py",
    "test_survival.py",
    "test_uncertainty.py",
    "test_parts.py",
    "test_crew.py",
    "test_courses.py",
    "test_install.py",
    "test_mapping.py",
    "test_races.py",
    "test_hard_courses.py",
    "test_msp_guard.py",
    "test_identify_real.py",
    "test_options.py",
    "test_msp_flight.py",
    "test_commands.py",
    "test_peer.py",
    "test_compiled.py",
    "test_view.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, in their order."""
    rank = {name: k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def pytest_collection_finish() -> None:
    """Leave all modules and tests out of garbage collection: looking through them took a fifth of each flight."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def undrawn(monkeypatch):
    """Flights, plans, maps and fits in this process without the plots beside them, each of which takes half a second."""
    for name in (
        "pilot.records.plot.draw_flight",
        "planner.plot.draw_plan",
        "field.mapping.run.draw_map",
        "field.identify.run.draw_fit",
    ):
        monkeypatch.setattr(f"gate_racer.{name}", lambda *_: None)


def within_this_process(patch: pytest.MonkeyPatch) -> None:
    """Let campaigns fly without processes of their own, whose start takes longer than a flight."""
    own = "gate_racer.race.campaign.campaign.in_processes"
    patch.setattr(own, lambda work, jobs, workers: (work(*job) for job in jobs))


@contextmanager
def refused(words: str, kind: type[UserError] = UserError) -> Iterator[None]:
    """What is done within is refused with an error of one line that matches `words`."""
    with pytest.raises(kind, match=words) as error:
        yield
    assert "\n" not in str(error.value)


def changed(folder: Path, source: Path, old: str, new: str) -> Path:
    """A copy of a file, in which the first `old` is `new`."""
    text = source.read_text(encoding="utf-8")
    assert old in text
    (folder / source.name).write_text(text.replace(old, new, 1), encoding="utf-8")
    return folder / source.name


@pytest.fixture(scope="session")
def dcl() -> Vehicle:
    return load_vehicle("dcl")


@pytest.fixture(scope="session")
def vq1() -> Track:
    return load_track(ROOT / "tracks/vq1.yaml")


def shared(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that is made once for all test processes."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            make(folder)
    return folder


def with_plan(
    folder: Path,
    factory: pytest.TempPathFactory,
    track: Track,
    vehicle: Vehicle,
    options: PlanOptions = ONE_GUESS,
    name: str = "",
) -> Path:
    """The folder, with the track's certified plan and its JSON in it: a copy of what all test processes share."""

    def make(made: Path) -> None:
        plan, certificate = make_plan(track, vehicle, options)
        assert certificate.ok, certificate.status
        write_plan(made / f"{track.name}.csv", plan, vehicle, certificate.as_dict())

    return shutil.copytree(shared(factory, f"plan-of-{name or track.name}", make), folder, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A folder with one small file of every kind that is read."""
    from tests.fuzz.corpus import make_corpus  # what writes files of others takes long to load

    return shared(tmp_path_factory, "corpus", make_corpus)


@pytest.fixture(scope="session")
def plan_folder(tmp_path_factory, vq1, dcl) -> Path:
    """A folder with the plan of VQ1."""
    return with_plan(tmp_path_factory.mktemp("plans"), tmp_path_factory, vq1, dcl)


@pytest.fixture(scope="session")
def half_seen(tmp_path_factory, vq1, dcl) -> Plan:
    """The plan of VQ1 with half of each leg in view, which is slower and survives more."""
    folder = tmp_path_factory.mktemp("half_seen")
    return read_plan(with_plan(folder, tmp_path_factory, vq1, dcl, HALF_SEEN, "half_seen") / "vq1.csv")


@pytest.fixture(scope="session")
def sprint(tmp_path_factory, dcl) -> Path:
    """A folder with `sprint.yaml`, the first two gates of VQ1, and its plan: for what a whole course tells no better."""
    folder, text = tmp_path_factory.mktemp("sprint"), (ROOT / "tracks/vq1.yaml").read_text(encoding="utf-8")
    two = text.replace("name: vq1", "name: sprint").splitlines()[:-4]
    (folder / "sprint.yaml").write_text("\n".join(two), encoding="utf-8")
    return with_plan(folder, tmp_path_factory, load_track(folder / "sprint.yaml"), dcl)


@pytest.fixture(scope="session")
def hop(tmp_path_factory) -> Path:
    """The file of a course of one gate, the first of VQ1."""
    path, text = tmp_path_factory.mktemp("hop") / "hop.yaml", (ROOT / "tracks/vq1.yaml").read_text(encoding="utf-8")
    path.write_text("\n".join(text.replace("name: vq1", "name: hop").splitlines()[:-5]), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def hop_plans(tmp_path_factory, hop, dcl) -> Path:
    """A folder with that file and its plan."""
    folder = tmp_path_factory.mktemp("hops")
    shutil.copy(hop, folder)
    return with_plan(folder, tmp_path_factory, load_track(hop), dcl)


@pytest.fixture(scope="session")
def pillars_folder(tmp_path_factory, dcl) -> Path:
    """A folder with a fast plan of the hall of pillars."""
    fast = PlanOptions(guesses=1, fast=True)
    return with_plan(tmp_path_factory.mktemp("pillars"), tmp_path_factory, load_track("pillars"), dcl, fast)


@pytest.fixture(scope="session")
def plan(plan_folder) -> Plan:
    return read_plan(plan_folder / "vq1.csv")
