"""The story of the README in real processes: nobody is told vehicle, course or conventions, and the race is clean and fast."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.processes import few_images

SEED, GATES, IMAGES_HZ = "48", "2", 4.0


def free_ports(count):
    with_ports = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for one in with_ports:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in with_ports]
    finally:
        for one in with_ports:
            one.close()


def test_from_an_unknown_simulator_to_a_clean_race_near_the_plan_of_somebody_who_knows_it(tmp_path):
    command = [sys.executable, ROOT / "examples/unknown_simulator.py", "--seed", SEED, "--gates", GATES]
    folders = os.environ["PATH"].split(os.pathsep)
    inactive = {**os.environ, "PATH": os.pathsep.join(one for one in folders if not Path(one, "run-mpc").exists())}
    done = subprocess.run(
        [*command, "--profile", few_images("dcl", tmp_path, IMAGES_HZ), "--out", tmp_path, "--ports", *free_ports(3)],
        cwd=ROOT,
        env=inactive,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / f"unknown-{SEED}" / "compared.json").read_text())
    assert found["signs"] and found["rate_gain"] < 0.03
    assert found["thrust"] < 0.02 and found["drag"] < 0.05
    assert found["gates_m"] < 0.10 and found["gates_deg"] < 2.5
    assert found["flown_s"] < 1.08 * found["known_s"] and found["margin_m"] > 0.3
