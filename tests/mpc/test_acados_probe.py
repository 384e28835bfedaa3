"""A processor or a library on which acados dies is found out by a process of its own, once, and CasADi flies instead."""

import subprocess

import pytest

from gate_racer.mpc.registry import make_controller
from gate_racer.mpc.solvers import acados_probe
from gate_racer.mpc.solvers.acados import WHEEL
from gate_racer.mpc.solvers.portable import CasadiSolver

LIB = WHEEL / "acados" / "install" / "lib"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_wheel_runs_here_and_is_tried_once(monkeypatch):
    acados_probe.require_runs(LIB)
    monkeypatch.setattr(acados_probe, "_tried", lambda folder: pytest.fail("tried again"))
    acados_probe.require_runs(LIB)


def test_another_processor_is_tried_again(monkeypatch):
    acados_probe.require_runs(LIB)
    monkeypatch.setattr(acados_probe, "_processor", lambda: "flags: sse2")
    monkeypatch.setattr(acados_probe, "_tried", lambda folder: "SIGILL: no")
    with pytest.raises(OSError, match="SIGILL"):
        acados_probe.require_runs(LIB)


def test_a_truncated_library_is_told(tmp_path):
    for path in LIB.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[: 20_000 if "blasfeo" in path.name else None])
    with pytest.raises(OSError, match=r"SIGBUS|SIGSEGV|too short|truncated|invalid"):
        acados_probe.require_runs(tmp_path)


def test_if_acados_crashes_casadi_flies_and_one_line_says_so(plan, dcl, vq1, monkeypatch, capsys):
    script = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **more: run([command[0], "-c", script], **more))
    controller = make_controller("auto", plan, dcl, vq1)
    assert isinstance(controller._solver, CasadiSolver)
    told = capsys.readouterr().err
    assert "SIGILL" in told and "AVX2" in told and told.count("\n") == 1
