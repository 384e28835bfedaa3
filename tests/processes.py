"""Commands as tests run them: in a process of their own, or here, which spares them the loading."""

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from gate_racer.common.command import main
from gate_racer.common.process import PERIODIC
from tests.conftest import ROOT

BELOW_A_FILE = "/dev/null/x"  # where nobody can write, root included


def command(module: str, *arguments: object) -> list[str]:
    """Return the command line of a module for `subprocess`. As when installed, child processes do not load the command again."""
    return [sys.executable, "-c", f"from gate_racer.common.command import main; main({module!r})", *map(str, arguments)]


def run(module: str, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, from the project's folder."""
    return subprocess.run(
        command(module, *arguments), cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


def python(*words: object, by: object = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these words, in a process of its own, from the project's folder."""
    command, env = [str(by), *map(str, words)], os.environ | environment
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)


@contextlib.contextmanager
def started(module: str, *arguments: object, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, from the project's folder, which is killed in the end."""
    words = command(module, *arguments)
    with subprocess.Popen(words, cwd=ROOT, text=True, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def run_here(module: str, *arguments: object, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The same in this process, from any folder."""
    words, out, err = [module, *map(str, arguments)], io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(module)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def raced(folder: Path, *arguments: object) -> dict[str, Any]:
    """The result of a race of `run-mpc` in lock-step, by projected camera unless told; `printed` is its stdout."""
    words = "--lockstep", "--camera", "projected", "--log", folder, "--json", folder / "result.json"
    done = run_here("gate_racer.race.run_mpc", *words, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "result.json").read_text(encoding="utf-8")) | {"printed": done.stdout}


# Troubles of a machine that others use: between two programs on it, telemetry has no other cause to pause.
SLOW = {"machine", "telemetry"}


def in_real_time(fly: Callable[[Path], subprocess.CompletedProcess[str]], folder: Path) -> Path:
    """A flight by a machine that others use as well: flown again, twice at most, where its result says that this was too slow.

    `fly` writes `result.json` into the new folder that it is given. Returns the folder of the flight that ended well.
    """
    for k in range(3):
        (own := folder / f"flight{k}").mkdir()
        done, result = fly(own), own / "result.json"
        if done.returncode == 0 or not result.exists() or not SLOW & json.loads(result.read_text())["troubles"].keys():
            break
    assert done.returncode == 0, done.stdout + done.stderr
    return own


def few_images(name: str, folder: Path, hz: float = 10.0) -> Path:
    """A profile as it stands, but for fewer images a second, a sooner start and a flight controller that boots sooner."""
    text = next(ROOT.glob(f"link/**/profiles/{name}.yaml")).read_text(encoding="utf-8")
    for key, value in {"video_hz": hz, "boot_s": 1.0, "settle_s": 0.5, "countdown_s": 1.0}.items():
        text = re.sub(rf"(?m)^( *{key}): [\d.]+", rf"\1: {value}", text)
    (folder / "few_images.yaml").write_text(text, encoding="utf-8")
    return folder / "few_images.yaml"


def may_be_preferred() -> bool:
    """Whether this user may raise the priority of a process."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, PERIODIC)
    except OSError:
        return False
    os.setpriority(os.PRIO_PROCESS, 0, before)
    return True


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def waiting(bound: socket.socket) -> list[bytes]:
    """All datagrams that lie in a socket, which does not block any more."""
    found: list[bytes] = []
    bound.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(bound.recv(65535))
    return found


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, str]]:
    """A pseudo-terminal: the descriptor of our end, and the name of the other, which is closed with it."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    try:
        yield ours, os.ttyname(theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def survivors(session: int) -> list[int]:
    """Processes of a session that do not end by themselves within a minute, which is ample: they end at once. Ends them."""
    until = time.monotonic() + 60
    while (left_over := running(session)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left_over:
        os.kill(pid, signal.SIGKILL)
    return left_over


def running(session: int) -> list[int]:
    """Processes of a session that still run, by their state in /proc/PID/stat."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its = path.read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and state != "Z":
                found.append(int(path.parent.name))
    return found
