"""Every command: as a real process ended by Ctrl-C without a traceback, and careful with its inputs."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate_racer.commands import COMMANDS
from tests.conftest import ROOT
from tests.processes import few_images, run_here

BIN = Path(sys.executable).parent
LONGEST_S = 120.0  # a hang
AT_A_LINE = ("tcp:127.0.0.1:9",)
AT_WORK = ("race-sim", "race-bench", "run-mpc ")  # with processes or sockets of their own


@pytest.fixture(scope="module")
def files(tmp_path_factory, corpus, sprint):
    folder = tmp_path_factory.mktemp("files")
    for source in (corpus, sprint):
        shutil.copytree(source, folder, dirs_exist_ok=True)
    return folder


def commands(files: Path) -> dict[str, list[str]]:
    log, quiet = str(files / "flight.mcap"), ["--set", "link.listen=127.0.0.1:0", "link.video=127.0.0.1:0"]
    flying = [str(files / "sprint.yaml"), "--set", f"plan.folder={files}", "--log", str(files / "logs")]
    return {
        "plan-track": ["tracks/vq2.yaml", "--out", str(files / "plans")],
        "run-mpc": [*flying, "--lockstep"],
        "run-mpc ": [*flying, "--profile", str(few_images("spec", files))],
        "run-mpc  ": [*flying, "--live", *quiet],
        "explore": ["--live", *quiet, f"record.log={files / 'logs'}"],
        "excite": ["--live", *quiet, f"record.log={files / 'logs'}"],
        "race-sim": ["--set", "link.bind=127.0.0.1:0", "link.client=127.0.0.1:9"],
        "race-bench": ["--seeds", "1", "--set", "workers=1", "--out", str(files / "bench")],
        "bootcamp": ["examples/waypoint.py", "--seed", "7", "--set", "realtime=true", f"logs={files / 'logs'}"],
        "probe-link": quiet,
        "preflight": [*AT_A_LINE],
        "replay-flight": [log, "--out", str(files / "again")],
        "fly-report": [log, "--out", str(files / "page.html")],
        "map-track": [log, "--gates", "2", "--out", str(files / "found.yaml")],
        "identify-vehicle": [str(files / "log.csv"), "--out", str(files / "found.yaml")],
        "detect-gates": [log],
    }


def wait_until_loading(process: subprocess.Popen) -> None:
    """Wait until extension modules are loaded: before that, Python itself is starting."""
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and "site-packages" not in maps.read_text():
        time.sleep(0.01)


@contextlib.contextmanager
def started(lines: dict[str, list[str]]) -> Iterator[dict[str, subprocess.Popen]]:
    """Processes of these command lines, each in a group of its own, as by a terminal."""
    with contextlib.ExitStack() as stack:
        how = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        processes = {}
        for name, words in lines.items():
            process = subprocess.Popen([BIN / name.strip(), *words], start_new_session=True, **how)
            processes[name] = stack.enter_context(process)
            stack.callback(end_group, process)
        yield processes


def end_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def test_ctrl_c_ends_every_command_while_it_loads(files):
    with started(commands(files)) as processes:
        for process in processes.values():
            wait_until_loading(process)
            os.killpg(process.pid, signal.SIGINT)
        for name, process in processes.items():
            said, _ = process.communicate(timeout=LONGEST_S)
            assert (process.returncode, said) == (130, "interrupted\n"), name


def test_ctrl_c_ends_commands_at_work_in_order(files):
    """As soon as they tell that they work."""
    lines = {name: commands(files)[name] for name in AT_WORK}
    with started(lines) as processes:
        for process in processes.values():
            process.stdout.readline()
            os.killpg(process.pid, signal.SIGINT)
        for name, process in processes.items():
            said, _ = process.communicate(timeout=LONGEST_S)
            assert process.returncode == 130 or (name == "race-sim" and process.returncode == 0), f"{name}: {said}"
            assert not any(word in said for word in ("Traceback", "Error", "Exception")), f"{name}: {said}"


OVERWRITING = {
    "fly-report": lambda f: [f / "flight.mcap", "--out", f / "flight.mcap"],
    "identify-vehicle": lambda f: [f / "log.csv", "--set", f"base={f / 'vehicle.yaml'}", "--out", f / "vehicle.yaml"],
    "map-track": lambda f: [f / "link.yaml", "--gates", "2", "--out", f / "link.yaml"],
    "probe-link": lambda f: ["--set", f"link.profile={f / 'profile.yaml'}", "--out", f / "profile.yaml"],
    "preflight": lambda f: [*AT_A_LINE, "--profile", f / "profile.yaml", "--out", f / "profile.yaml"],
    "plan-track": lambda f: [f / "track.yaml", "--json", f / "track.yaml"],
    "run-mpc": lambda f: [f / "track.yaml", "--json", f / "track.yaml"],
    "run-mpc ": lambda f: [f / "track.yaml", "--log", f / "new.mcap", "--json", f / "new.png"],
    "run-mpc  ": lambda f: [f / "sprint.csv", "--controller", f"{f / 'gate.jpg'}:Mine", "--json", f / "gate.jpg"],
    "explore": lambda f: ["--set", f"perception.detector={f / 'gate.jpg'}", "--json", f / "gate.jpg"],
    "race-sim": lambda f: ["--track", f / "track.yaml", "--report", f / "track.yaml"],
    "replay-flight": lambda f: [f / "flight.mcap", "--set", f"track={f / 'report.json'}", "--out", f / "report"],
    "detect-gates": lambda f: [f / "gate.jpg", "--json", f / "gate.jpg"],
    "import-calibration": lambda f: [f / "track.yaml", "--out", f / "track.yaml"],
}


@pytest.mark.parametrize("name", OVERWRITING)
def test_no_output_overwrites_what_the_command_line_names(name, files):
    (files / "link.yaml").unlink(missing_ok=True)
    (files / "link.yaml").symlink_to(files / "flight.mcap")
    arguments = [str(argument) for argument in OVERWRITING[name](files)]
    before = {path.name: path.read_bytes() for path in files.iterdir() if path.is_file()}
    done = run_here(COMMANDS[name.strip()], *arguments)
    assert done.returncode == 2 and "would overwrite" in done.stderr
    assert {path.name: path.read_bytes() for path in files.iterdir() if path.is_file()} == before


NOWHERE = {
    "plan-track": ["vq1"],
    "run-mpc": ["vq1", "--lockstep"],
    "race-bench": ["--tracks", "vq1"],
    "bootcamp": [ROOT / "examples/waypoint.py"],
    "train-detector": [ROOT],
}


@pytest.mark.parametrize("name", NOWHERE)
def test_results_that_cannot_be_written_are_refused_before_the_work(name, tmp_path, monkeypatch):
    """In a folder where files stand in the place of its folders, so that root cannot write there either."""
    for folder in ("plans", "logs"):
        (tmp_path / folder).touch()
    (tmp_path / "gates.onnx").mkdir()
    monkeypatch.setattr("gate_racer.planner.planning.make_plan", lambda *_, **__: pytest.fail("worked for nothing"))
    done = run_here(COMMANDS[name], *NOWHERE[name], folder=tmp_path)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and done.stderr.count("error: ") == 1
    assert last.startswith(("error: plans", "error: logs", "error: gates.onnx")) and "[Errno" not in last
