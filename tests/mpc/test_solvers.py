"""Both back-ends solve one problem; where acados cannot run CasADi flies; its failures are statuses."""

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gate_racer.mpc.model import nominal_parameters
from gate_racer.mpc.problem import Problem, load_settings
from gate_racer.mpc.reference import TARGET_PACE, U_W, Reference
from gate_racer.mpc.registry import make_controller
from gate_racer.mpc.solvers import acados
from gate_racer.mpc.solvers.acados import WHEEL, AcadosSolver
from gate_racer.mpc.solvers.portable import CasadiSolver
from gate_racer.vehicle.dynamics import RATES_X
from tests.processes import BELOW_A_FILE, python

P, Q = (RATES_X[name].at for name in "pq")


def test_inputs_stay_within_the_vehicles_limits(plan, dcl, problem, solver, control):
    controller = control(solver)
    low, high = problem.input_limits(dcl)
    x = plan.x[40].copy()
    x[P] += 3.0
    for k in range(20):
        u = controller.step(k / 60, x, 1 / 60).u
        assert (u >= low - 1e-9).all() and (u <= high + 1e-9).all()


@pytest.mark.parametrize(("used", "granted"), [(0.5, 0.9), (0.9, 0.9), (0.95, 0.95), (1.0, 0.97)])
def test_a_plan_is_granted_the_thrust_it_uses(plan, dcl, vq1, solver, used, granted, monkeypatch):
    monkeypatch.setattr("gate_racer.mpc.registry.CasadiSolver", lambda *_: solver)  # which takes a second to make
    u = plan.u.copy()
    u[:, 3] *= used / plan.thrust_share(dcl)
    controller = make_controller("mpcc", replace(plan, u=u), dcl, vq1, "casadi")
    assert controller.allocated(np.array([0, 0, 0, 2 * dcl.thrust_max]), np.full(14, np.nan))[3] == pytest.approx(
        granted * dcl.thrust_max, abs=1e-9
    )


@pytest.mark.parametrize("name", ["tracking", "mpcc"])
def test_both_solvers_find_the_same(plan, vq1, dcl, name):
    problem = Problem(load_settings(name))
    row = Reference(plan, dcl, vq1.course(1)).sample(1.6 + np.arange(21) * 0.05)
    parameters = np.hstack([row, np.tile(nominal_parameters(dcl), (21, 1))])
    parameters[:, TARGET_PACE] = problem.settings.pace_max
    x0 = np.concatenate([row[0, :10], row[0, U_W], [30.0], [1.6, 1.0]])[: problem.formulation.x.size]
    x0[P] += [0.5, -0.8, 0.6]
    found = []
    for solver in (AcadosSolver(problem, dcl), CasadiSolver(problem, dcl)):
        guess = np.tile(x0, (21, 1)), np.tile(np.zeros(problem.formulation.u.size), (20, 1))
        solver.start(*guess)
        solver.prepare(parameters)
        found.append(solver.solve(x0))
        assert found[-1].status == 0
    low, high = problem.input_limits(dcl)
    assert (np.isclose(found[1].u, low) | np.isclose(found[1].u, high)).any()
    assert np.allclose(found[0].u, found[1].u, atol=5e-3) and np.allclose(found[0].x, found[1].x, atol=5e-3)


# acados: where it cannot run, CasADi flies instead; its code compiles whatever the paths; its failures are statuses.


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


def test_acados_is_built_from_the_named_sources_only_by_as_many_jobs_as_there_are_processors(tmp_path):
    for name in ("git", "cmake", "pip"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/calls"\n')
        (tmp_path / name).chmod(0o755)
    given = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "ACADOS_SOURCES": str(tmp_path / "none"),
        "VIRTUAL_ENV": str(tmp_path),
    }
    script = Path(__file__).parents[2] / "tools/build-acados.sh"
    assert subprocess.run([script], env=os.environ | given, capture_output=True).returncode != 0
    calls = (tmp_path / "calls").read_text()
    assert "git clone" not in calls and f"--parallel {os.cpu_count()}" in calls


def test_without_asserts_acados_counts_as_missing():
    last = python("-c", LOADS, PYTHONOPTIMIZE="1").stderr.splitlines()[-1]
    assert "AcadosMissingError: " in last and "assert" in last
