"""acados: where it cannot run, CasADi flies instead; its code compiles whatever the paths; its failures are statuses."""

import ctypes
import sys
from pathlib import Path

import pytest

from gate_racer.mpc.registry import make_controller
from gate_racer.mpc.solvers import acados
from gate_racer.mpc.solvers.acados import WHEEL
from gate_racer.mpc.solvers.portable import CasadiSolver
from tests.processes import BELOW_A_FILE, python

LOADS = "from tests.mpc import tiny; tiny.load()"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_if_acados_crashes_casadi_flies_and_one_line_says_so(cache, plan, dcl, vq1, monkeypatch, capsys):
    script = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(acados, "command_line", lambda module: [sys.executable, "-c", script])
    controller = make_controller("auto", plan, dcl, vq1)
    assert isinstance(controller.solver, CasadiSolver)
    said = capsys.readouterr().err
    assert "SIGILL" in said and "AVX2" in said and said.count("\n") == 1


def test_where_no_code_can_be_kept_casadi_flies_and_one_line_says_so(plan, dcl, vq1, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", BELOW_A_FILE)
    assert isinstance(make_controller("auto", plan, dcl, vq1).solver, CasadiSolver)
    said = capsys.readouterr().err
    assert "set XDG_CACHE_HOME to another folder" in said and said.count("\n") == 1


def test_another_processor_is_tried_again(plan, dcl, vq1, monkeypatch):
    make_controller("mpcc", plan, dcl, vq1, "acados")
    monkeypatch.setattr(acados, "_processor", lambda: "flags: sse2")
    monkeypatch.setattr(acados, "_build", lambda job: pytest.fail("tried again"))
    with pytest.raises(pytest.fail.Exception, match="tried again"):
        make_controller("mpcc", plan, dcl, vq1, "acados")


@pytest.mark.skipif(not WHEEL.is_dir(), reason="needs the wheel of acados")
def test_an_apostrophe_and_a_blank_in_every_path(tmp_path):
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    (folder / "venv").symlink_to(sys.prefix, target_is_directory=True)
    by, code = folder / "venv/bin" / Path(sys.executable).name, f"{LOADS}; import sys; print(sys.prefix)"
    done = python("-c", code, by=by, XDG_CACHE_HOME=str(folder / "cache"))
    assert done.stdout == f"{folder / 'venv'}\n", done.stderr
    assert list((folder / "cache/gate-racer").glob("acados-*/c/*.so"))


@pytest.mark.skipif(not WHEEL.is_dir(), reason="needs the wheel of acados")
def test_a_truncated_library_is_one_line(cache, tmp_path):
    install = WHEEL / "acados/install"
    (tmp_path / "lib").mkdir()
    for path in (*install.glob("[!l]*"), *install.glob("lib/*")):
        (tmp_path / path.relative_to(install)).symlink_to(path)
    for path in (tmp_path / "lib").glob("*blasfeo*"):
        whole = path.read_bytes()
        path.unlink()
        path.write_bytes(whole[:20_000])
    own = {"ACADOS_SOURCE_DIR": str(tmp_path), "TERA_PATH": str(install / "bin/t_renderer")}
    own |= {"PYTHONPATH": str(WHEEL / "acados"), "ACADOS_PYTHON_INTERFACE_PATH": str(WHEEL / "acados/acados_template")}
    done = python("-c", LOADS, **own)
    assert done.returncode == 1 and "AcadosMissingError: acados" in done.stderr.splitlines()[-1]


def test_a_failed_solve_is_reported_by_its_status_alone(plan, dcl, vq1, capfd):
    controller = make_controller("mpcc", plan, dcl, vq1, "acados")
    for k in range(3):
        x = plan.x[60].copy()
        x[:3] += 1e6 * k
        control = controller.step(k / 60, x, 1 / 60)
    ctypes.CDLL(None).fflush(None)  # what the C library holds back
    said = capfd.readouterr()
    assert control.status != 0 and said.out == said.err == ""


def test_without_asserts_acados_counts_as_missing():
    last = python("-c", LOADS, PYTHONOPTIMIZE="1").stderr.splitlines()[-1]
    assert "AcadosMissingError: " in last and "assert" in last
