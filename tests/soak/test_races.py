"""Races through a hostile network and with faults in the pilot's process. What holds for each, finished or not:

the verdict is the referee's, no command that is not finite leaves, the motors are stopped at the end, nothing hangs and nothing
ends in a traceback. `make soak` flies all of them and a quarter of an hour more; `make test` the one that holds most at once.
"""

import shutil
import signal
from dataclasses import dataclass, field

import pytest

from tests.processes import few_images
from tests.soak.injuries import (
    GIMBAL,
    IMU,
    VEHICLE,
    Aboard,
    Flood,
    Silence,
    Stale,
    Stamps,
    Together,
    Vehicle,
    bursts,
    corruption,
    duplication,
    jitter,
    loss,
    reordering,
)
from tests.soak.proxy import Injury
from tests.soak.race import Fault, Raced, freeze_perception, race

SOAK = pytest.mark.soak


def send(number):
    return lambda pilot, folder: pilot.send_signal(number)


def lose_log(pilot, folder):
    shutil.rmtree(folder / "logs")


@dataclass(frozen=True)
class Case:
    """A race, and what its result must tell of beside the verdict."""

    name: str
    injury: Injury = field(default_factory=Injury)
    tells: tuple[str, ...] = ()  # of which trouble
    code: int | None = None  # of the exit; None: as the verdict says
    options: dict = field(default_factory=dict)


CASES = [
    Case("calm"),
    Case("a tenth is lost", loss(0.1)),
    Case("a third comes twice", duplication(0.33)),
    Case("a tenth is overtaken", reordering(0.1, 0.03)),
    Case("delays of 0 to 20 ms", jitter(0.02)),
    Case("a radio that sleeps for 50 ms, three times a second", bursts(0.33, 0.05)),
    Case("bits flip and ends are missing", corruption(0.05)),
    Case("an IMU stamp a second ahead", Stamps(2.0, 1, lambda usec: usec + 1_000_000)),
    Case("IMU stamps an hour ahead, from then on", Stamps(2.0, 0, lambda usec: usec + 3_600_000_000)),
    Case("an IMU stamp of 2^64 - 1", Stamps(2.0, 3, lambda usec: 2**64 - 1)),
    Case("IMU stamps that go back half a second", Stamps(2.0, 0, lambda usec: usec - 500_000)),
    Case("another vehicle on the network", Vehicle([VEHICLE, IMU], 42, 1, 20)),
    Case("another vehicle speaks first, for 9 s", Vehicle([VEHICLE, IMU], 42, 1, 20, until_s=9.0)),
    Case("the IMU of another system on the same link", Aboard([VEHICLE, IMU], 42, 1, 50)),
    Case("a gimbal aboard", Aboard([GIMBAL], 1, 154, 10)),
    Case("heartbeats come again half a second late", Stale(0.5)),
    Case("0.3 s of silence", Silence(2.0, 0.3)),
    Case("0.5 s of silence", Silence(2.0, 0.5)),
    Case("a second without images", Silence(1.5, 1.0, telemetry=False)),
    Case("a flood on the video port", Flood()),
    Case("the disk is full", tells=("log",), options={"file_limit": 300_000}),
    Case("stderr is closed", options={"closed_stderr": True}),
    Case("the log's folder is removed", tells=("log",), options={"fault": Fault(1.0, lose_log)}),
    Case("SIGTERM", code=143, options={"fault": Fault(1.5, send(signal.SIGTERM))}),
    Case("SIGHUP", code=129, options={"fault": Fault(1.5, send(signal.SIGHUP))}),
    Case("perception stands still", tells=("perception",), options={"fault": Fault(1.0, freeze_perception)}),
    Case(
        "SIGTERM with a full disk and nobody who reads stderr",
        tells=("log",),
        code=143,
        options={"file_limit": 100_000, "closed_stderr": True, "fault": Fault(1.0, send(signal.SIGTERM))},
    ),
]
MOST = Case(
    "loss, copies, flips, another vehicle, a gimbal, old heartbeats and a full disk at once",
    Together(loss(0.02), duplication(0.1), corruption(0.01), Vehicle([VEHICLE, IMU], 42, 1, 20), Stale(0.5),
             Aboard([GIMBAL], 1, 154, 10)),
    tells=("log",),
    options={"file_limit": 100_000},
)  # fmt: skip


def judge(case: Case, raced: Raced) -> None:
    about = f"{raced.told}\n{raced.errors[-3000:]}\n{raced.result}"
    assert raced.code is not None, f"it hangs\n{about}"
    assert "Traceback" not in raced.told + raced.errors, about
    assert raced.result is not None, about
    assert raced.witness.set_points and not raced.witness.not_finite
    assert raced.witness.disarms >= 3, "since the last set-point"
    assert raced.report is not None, about
    finished = raced.report["status"] == "finished"
    assert raced.result["verdict_by"] == "race status", about
    assert raced.result["gates_passed"] == len(raced.report["gate_times_s"]), about
    assert (raced.result["status"] == "finished") == finished, about
    signalled = case.code is not None and raced.result["cause"] in ("terminated", "hung up")
    assert raced.code == (case.code if signalled and not finished else 0 if finished else 1), about
    assert set(case.tells) <= set(raced.result["troubles"]), about


@SOAK
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_race(case, plan_folder, tmp_path):
    judge(case, race(plan_folder / "vq1.csv", case.injury, tmp_path, **case.options))


def test_a_short_race_in_most_troubles_at_once(hop_plans, tmp_path):
    profile = str(few_images("dcl", tmp_path))
    judge(MOST, race(hop_plans / "hop.csv", MOST.injury, tmp_path, profile=profile, **MOST.options))
