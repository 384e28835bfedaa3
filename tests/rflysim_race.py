"""A short course with frames asked for and sent in RflySim's protocol, from one process to the other."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.processes import command, free_port, run

RIGHT_SENSOR = '"SensorPosXYZ": [0, 0, 0], "SensorAngEular": [0, 20'


@dataclass(frozen=True)
class Raced:
    """Output of both ends of a race."""

    pilot: subprocess.CompletedProcess[str]
    simulator: str
    outcome: dict[str, Any]  # the pilot's
    report: dict[str, Any]  # the simulator's


def raced(sprint: Path, folder: Path, *profile: str, sensor: str) -> Raced:
    """A race that ends as it should; once more where another program took a port in between."""
    for _ in range(2):
        pilot, simulator = _race(sprint, folder, profile, sensor)
        if pilot.returncode == 0:
            break
    assert pilot.returncode == 0, pilot.stdout + pilot.stderr + simulator
    outcome, report = (json.loads((folder / name).read_text()) for name in ("result.json", "report.json"))
    return Raced(pilot, simulator, outcome, report)


def _race(
    sprint: Path, folder: Path, profile: tuple[str, ...], sensor: str
) -> tuple[subprocess.CompletedProcess[str], str]:
    own, simulator, desk, frames = (free_port() for _ in range(4))
    text = (ROOT / "examples/rflysim.json").read_text(encoding="utf-8").replace("9999, 0, 0", f"{frames}, 1400, 0")
    (folder / "Config.json").write_text(text.replace(RIGHT_SENSOR, sensor))
    with subprocess.Popen(
        command("gate_racer.race.race_sim", "--track", sprint / "sprint.yaml", *profile, "--lockstep", "--seed", 5,
                "--set", "once=true", f"link.vision_protocol=rflysim://127.0.0.1:{desk}", f"link.bind=127.0.0.1:{simulator}",
                f"link.client=127.0.0.1:{own}", "--report", folder / "report.json"),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as server:  # fmt: skip
        try:
            pilot = run(
                "gate_racer.race.run_mpc", sprint / "sprint.csv", "--live", "--lockstep", *profile,
                "--set", f"link.listen=127.0.0.1:{own}", f"link.peer=127.0.0.1:{simulator}",
                "--log", folder, "--json", folder / "result.json",
                "--set", f"link.vision=rflysim://127.0.0.1:{desk}?config={folder / 'Config.json'}",
            )  # fmt: skip
            if pilot.returncode != 0:
                server.terminate()
            told, _ = server.communicate(timeout=30)
        finally:
            server.kill()
    return pilot, told
