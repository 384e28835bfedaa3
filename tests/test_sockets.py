"""What our pages and messages say to start listens on loopback, by the sockets that the system lists."""

import contextlib
import shlex
import socket
import subprocess
import time
from pathlib import Path

import pytest

from gate_racer.common.process import descendants
from tests.conftest import ROOT
from tests.processes import command

PROC = Path("/proc/net")
LISTENING = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}  # states of bound sockets (net/tcp_states.h)

pytestmark = pytest.mark.skipif(not PROC.exists(), reason="sockets are listed by Linux only")


def bound(pid: int) -> set[tuple[str, int]]:
    """Address and port of every socket on which a process or its children receive from others."""
    files = [link for one in (pid, *descendants(pid)) for link in Path(f"/proc/{one}/fd").iterdir()]
    inodes = set()
    for file in files:
        with contextlib.suppress(OSError):
            inodes.add(str(file.readlink()).removeprefix("socket:[").rstrip("]"))
    found = set()
    for kind, state in LISTENING.items():
        for line in (PROC / kind).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                host, port = fields[1].split(":")
                v4 = socket.inet_ntoa(bytes.fromhex(host)[::-1]) if len(host) == 8 else host
                found.add((v4, int(port, 16)))
    return found


def opened(words: list[str], least: int, folder: Path) -> set[tuple[str, int]]:
    """The sockets of a program, once there are as many as expected."""
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        try:
            until = time.monotonic() + 60
            while time.monotonic() < until and program.poll() is None:
                with contextlib.suppress(OSError):
                    if len(sockets := bound(program.pid)) >= least:
                        return sockets
                time.sleep(0.2)
        finally:
            program.terminate()
            program.wait(30)
    raise AssertionError(f"{shlex.join(words)}: too few sockets")


OWN = "--track", "vq1", "--set", "link.bind=127.0.0.1:0", "link.client=127.0.0.1:9"
RFLYSIM = "--lockstep", "--set", "link.vision_protocol=rflysim://127.0.0.1:0?imu=0"
POLICY = "splits_swift", "--vehicle", "swift", "--controller", "splits_swift"  # which needs no plan
FREE = "--set", "link.listen=127.0.0.1:0", "link.video=127.0.0.1:0"
PROGRAMS = {  # and the sockets that each has at least
    "images": (("race.race_sim", *OWN), 2),
    "requests of images": (("race.race_sim", *OWN, *RFLYSIM), 3),
    "a pilot's view": (("race.run_mpc", *POLICY, "--live", "--view", "127.0.0.1:0", *FREE), 4),
    "a learner's browser": (("bootcamp.cli", ROOT / "examples/waypoint.py", "--browser", "127.0.0.1:0"), 1),
}


@pytest.mark.parametrize(("words", "least"), PROGRAMS.values(), ids=PROGRAMS)
def test_no_program_listens_beyond_loopback(words, least, tmp_path):
    module, *arguments = words
    if "--view" in arguments:
        pytest.importorskip("foxglove")
    found = opened(command(f"gate_racer.{module}", *arguments), least, tmp_path)
    assert all(host.startswith("127.") for host, _ in found), found
