"""A quarter of an hour of racing: one race-sim for all, run-mpc again and again. Memory, descriptors and times of a tick stay."""

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from tests.processes import free_port, started
from tests.soak.race import LIMIT_S, RACE_SIM, RUN_MPC, SILENT

RACING_S = float(os.environ.get("SOAK_S", "900"))
# Most of the last third's median over the first's; a tick's varies with what else the machine does.
MEMORY, TICK = 1.10, 1.5


class Sample(NamedTuple):
    """A process once a race: at its end, or the most seen in it."""

    memory_kb: int
    descriptors: int


def sample(pid: int) -> Sample:
    status = Path(f"/proc/{pid}/status").read_text()
    rss = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return Sample(int(rss.split()[1]), len(list(Path(f"/proc/{pid}/fd").iterdir())))


def fly(plan: Path, folder: Path, mavlink: int, video: int) -> tuple[Sample, dict]:
    """One race; the most that the pilot held, and its result."""
    keys = "--set", f"link.listen=127.0.0.1:{mavlink}", f"link.video=127.0.0.1:{video}"
    files = "--log", folder / "logs", "--json", folder / "result.json"
    seen, end = [], time.monotonic() + LIMIT_S
    with started(RUN_MPC, plan, "--live", "--profile", "dcl", *keys, *files, **SILENT) as pilot:
        while pilot.poll() is None:
            assert time.monotonic() < end, "it hangs"
            with contextlib.suppress(OSError, StopIteration):  # it has just ended
                seen.append(sample(pilot.pid))
            time.sleep(0.2)
    shutil.rmtree(folder / "logs", ignore_errors=True)
    most = Sample(max(s.memory_kb for s in seen), max(s.descriptors for s in seen))
    return most, json.loads((folder / "result.json").read_text())


def thirds(values: list[float]) -> tuple[float, float]:
    share = len(values) // 3
    return median(values[:share]), median(values[-share:])


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads Linux' /proc")
def test_memory_descriptors_and_ticks_stay_as_they_are(plan_folder, tmp_path):
    (mavlink, video), races = (free_port(), free_port()), []
    keys = "link.bind=127.0.0.1:0", f"link.client=127.0.0.1:{mavlink}", f"link.video=127.0.0.1:{video}"
    with started(RACE_SIM, "--profile", "dcl", "--set", *keys, **SILENT) as simulator:
        begin = time.monotonic()
        while time.monotonic() - begin < RACING_S or len(races) < 6:
            pilot, result = fly(plan_folder / "vq1.csv", tmp_path, mavlink, video)
            races.append((pilot, sample(simulator.pid), result))
            assert result["verdict_by"] == "race status", result
    flown = sum(result["status"] == "finished" for _, _, result in races)
    print(f"{len(races)} races, {flown} finished")
    for name, index in (("run-mpc", 0), ("race-sim", 1)):
        first, last = thirds([race[index].memory_kb for race in races[1:]])
        print(f"{name}: {first / 1e3:.0f} MB, at last {last / 1e3:.0f} MB")
        assert last <= MEMORY * first, f"{name} grows from {first:.0f} to {last:.0f} kB"
        first, last = thirds([race[index].descriptors for race in races[1:]])
        assert last <= first, f"{name} holds {last:.0f} descriptors, at first {first:.0f}"
    first, last = thirds([result["mpc_solve_ms"]["p50"] for _, _, result in races if result["mpc_solve_ms"]])
    print(f"solve: {first:.2f} ms, at last {last:.2f} ms")
    assert last <= TICK * first, f"a tick takes {last:.2f} ms, at first {first:.2f}"
