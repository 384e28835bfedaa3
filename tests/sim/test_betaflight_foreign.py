"""The simulated flight controller as a foreign reader and writer meets it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import command, free_port

CLIENT = Path(__file__).with_name("yamspy_client.py")


def test_yamspy_reads_it_is_armed_and_climbs(tmp_path):
    pytest.importorskip("yamspy")
    there = "--track", "pq", "--once", "--video", f"127.0.0.1:{free_port()}"
    simulator = command("gate_racer.race.race_sim", "--profile", "betaflight", "--vehicle", "archer", *there)
    with subprocess.Popen(simulator, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = re.search(r"MSP on (\S+) at", process.stdout.readline())[1]
            client = [sys.executable, CLIENT, line, tmp_path / "msp.log"]
            done = subprocess.run(client, capture_output=True, text=True, timeout=60)
        finally:
            process.send_signal(signal.SIGTERM)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["flightControllerIdentifier"] == "BTFL" and told["flightControllerVersion"].startswith("4.4")
    assert told["armed"] and 400 < told["accel"][2] < 700, "512 counts are 1 g"
    assert max(told["altitudes"]) - told["altitudes"][0] > 5.0, "m; the barometer falls by 2.5 as propellers spin"
