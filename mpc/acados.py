"""The acados back-end: the tracking problem as SQP_RTI on HPIPM, generated and compiled once per machine.

Two distributions of acados work: a user's own (ACADOS_SOURCE_DIR set and `acados_template` importable) and the wheel
`comma-deps-acados`, unpacked into `acados-wheel` of the virtual environment. They differ in the name of a few fields only.
"""

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import casadi as ca
import numpy as np
from platformdirs import user_cache_path

from mpc.problem import NP, NU, NX, NY, NY_END, Settings, symbols
from vehicle.errors import UserError
from vehicle.rotation import Array

WHEEL = Path(sys.prefix) / "acados-wheel"
LIBRARIES = ("libqpOASES_e", "libblasfeo", "libhpipm", "libacados")  # in the order of their dependence
NAME = "tracking"


class AcadosMissingError(UserError):
    """No usable acados on this machine."""


@dataclass(frozen=True)
class Solve:
    """One solution: first input, states and inputs along the horizon, and how it ended (0 = success)."""

    x: Array  # (N + 1, NX)
    u: Array  # (N, NU)
    status: int
    solve_s: float


def import_template() -> ModuleType:
    """Finds acados and returns its template module.

    Raises:
        AcadosMissingError: none is installed.
    """
    if os.environ.get("ACADOS_SOURCE_DIR") and importlib.util.find_spec("acados_template"):
        return importlib.import_module("acados_template")
    package, install = WHEEL / "acados", WHEEL / "acados" / "install"
    if not install.is_dir():
        raise AcadosMissingError(
            f"acados is missing: `make setup` puts it into {WHEEL}, or set ACADOS_SOURCE_DIR and install acados_template"
        )
    os.environ["ACADOS_SOURCE_DIR"] = str(install)
    os.environ["ACADOS_PYTHON_INTERFACE_PATH"] = str(package / "acados_template")
    os.environ["TERA_PATH"] = str(install / "bin" / "t_renderer")
    if str(WHEEL) not in sys.path:
        sys.path.append(str(WHEEL))
    try:
        for library in LIBRARIES:
            # The generated solver finds these by name only, so they have to be in the process before it.
            ctypes.CDLL(str(next((install / "lib").glob(library + ".*"))), mode=ctypes.RTLD_GLOBAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes in the wheel's own sources
            return importlib.import_module("acados.acados_template")
    except (OSError, StopIteration, ImportError) as error:
        raise AcadosMissingError(f"acados in {WHEEL} cannot be loaded ({error}); run `make setup` again") from None


class AcadosSolver:
    """One real-time iteration per call. Keeps the last solution as the start of the next."""

    def __init__(self, settings: Settings, limits: tuple[Array, Array]):
        """Loads the solver, generating and compiling it when this machine has not yet done so.

        Raises:
            AcadosMissingError: no acados, or its code cannot be compiled.
        """
        self.steps = settings.steps
        self._solver = _load(settings)
        weights = settings.weights
        for k in range(self.steps):
            self._solver.cost_set(k, "W", np.diag(weights))
            self._solver.constraints_set(k, "lbu", limits[0])
            self._solver.constraints_set(k, "ubu", limits[1])
        self._solver.cost_set(self.steps, "W", np.diag(weights[:NY_END]))

    def start(self, x: Array, u: Array) -> None:
        """Sets the first guess: x (N + 1, NX), u (N, NU)."""
        for k in range(self.steps):
            self._solver.set(k, "x", x[k])
            self._solver.set(k, "u", u[k])
        self._solver.set(self.steps, "x", x[self.steps])

    def solve(self, x0: Array, parameters: Array) -> Solve:
        """One iteration from x0 (NX,) with stage parameters (N + 1, NP)."""
        begin = time.perf_counter()
        solver = self._solver
        for k, row in enumerate(parameters):
            solver.set(k, "p", row)
        solver.set(0, "lbx", x0)
        solver.set(0, "ubx", x0)
        status = solver.solve()
        x = np.array([solver.get(k, "x") for k in range(self.steps + 1)])
        u = np.array([solver.get(k, "u") for k in range(self.steps)])
        return Solve(x, u, int(status), time.perf_counter() - begin)


def _formulate(template: ModuleType, settings: Settings, folder: Path):
    """The optimal-control problem in acados's words."""
    s = symbols()
    model = template.AcadosModel()
    model.name, model.x, model.u, model.p = NAME, s.x, s.u, s.p
    model.f_expl_expr = s.f
    model.cost_y_expr, model.cost_y_expr_e = s.y, s.y_end
    ocp = template.AcadosOcp()
    ocp.model = model
    options = ocp.solver_options
    if hasattr(options, "N_horizon"):
        options.N_horizon = settings.steps
    else:
        ocp.dims.N = settings.steps
    ocp.parameter_values = np.ones(NP)
    ocp.cost.cost_type = ocp.cost.cost_type_e = "NONLINEAR_LS"
    ocp.cost.W, ocp.cost.W_e = np.eye(NY), np.eye(NY_END)
    ocp.cost.yref, ocp.cost.yref_e = np.zeros(NY), np.zeros(NY_END)
    ocp.constraints.x0 = np.zeros(NX)
    ocp.constraints.idxbu = np.arange(NU)
    ocp.constraints.lbu, ocp.constraints.ubu = -np.ones(NU), np.ones(NU)
    options.tf = settings.steps * settings.step_s
    options.nlp_solver_type, options.qp_solver = "SQP_RTI", "PARTIAL_CONDENSING_HPIPM"
    options.hessian_approx, options.integrator_type = "GAUSS_NEWTON", "ERK"
    options.sim_method_num_stages, options.sim_method_num_steps = 4, settings.integrator_steps
    options.qp_solver_cond_N, options.qp_solver_iter_max = 5, 50
    options.qp_solver_warm_start = 0
    ocp.code_export_directory = str(folder / "c")
    return ocp


def _load(settings: Settings):
    """The compiled solver from the cache, or a new one. Everything that the code depends on is in the cache's key."""
    template = import_template()
    s = symbols()
    text = ca.Function("key", [s.x, s.u, s.p], [s.f, s.y, s.y_end]).serialize()
    stated = [text, settings.steps, settings.step_s, settings.integrator_steps, ca.__version__, template.__file__]
    source = Path(__file__).read_text(encoding="utf-8")
    key = hashlib.sha256(repr([*stated, source]).encode()).hexdigest()[:16]
    folder = user_cache_path("gate-racer") / f"acados-{key}"
    if not (folder / "ocp.json").exists():
        _build(template, settings, folder)
    with contextlib.redirect_stdout(io.StringIO()):
        ocp = _formulate(template, settings, folder)
        return template.AcadosOcpSolver(ocp, json_file=str(folder / "ocp.json"), build=False, generate=False)


def _build(template: ModuleType, settings: Settings, folder: Path) -> None:
    """Generates and compiles in a folder of its own, then moves it in place, so that two processes cannot disturb each other."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            ocp = _formulate(template, settings, draft)
            template.AcadosOcpSolver.generate(ocp, json_file=str(draft / "ocp.json"))
            template.AcadosOcpSolver.build(ocp.code_export_directory, verbose=False)
        if not any((draft / "c").glob(f"*acados_ocp_solver_{NAME}.*")):
            raise AcadosMissingError("acados: the generated solver did not compile; a C compiler and make are needed")
        about = json.loads((draft / "ocp.json").read_text(encoding="utf-8"))
        about["code_export_directory"] = str(folder / "c")
        (draft / "ocp.json").write_text(json.dumps(about), encoding="utf-8")
        with contextlib.suppress(OSError):  # another process was faster
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
