"""The acados back-end: SQP_RTI on HPIPM, generated and compiled once per machine.

It stands in `acados-wheel` of the virtual environment: the wheel `comma-deps-acados`, with the interface of acados 0.2, or
acados 0.6 as `tools/build-acados.sh` builds it. Another build of 0.6 is used if ACADOS_SOURCE_DIR is set and
`acados_template` is importable. The process that compiles a solver also tries it: BLASFEO's kernels are compiled for one
processor (the wheel's on x86-64 for Haswell: AVX2 and FMA), another one ends the process with SIGILL, and a truncated
library with SIGBUS. No other process loads what was not tried.
"""

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import io
import json
import os
import pickle
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.common.cache import cache_folder, entry
from gate_racer.common.errors import UserError, exit_code
from gate_racer.common.files import FileError
from gate_racer.common.process import command_line
from gate_racer.mpc.problem import Problem, Solution
from gate_racer.mpc.terms import NP
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

WHEEL = Path(sys.prefix) / "acados-wheel"
TICK = Path(__file__).with_name("tick.c")
JSON = "ocp.json"  # the description of a problem by acados 0.2
HEADER = """#include "acados_solver_NAME.h"
int custom_update_init_function(NAME_solver_capsule *);
int custom_update_function(NAME_solver_capsule *, double *, int);
int custom_update_terminate_function(NAME_solver_capsule *);
"""  # of `tick.c`
LIBRARIES = ("libqpOASES_e", "libblasfeo", "libhpipm", "libacados")  # in the order of their dependence
Formulate = Callable[[ModuleType, Path], Any]


class AcadosMissingError(UserError):
    """No usable acados on this machine."""


def _installed(wheel: Path) -> tuple[Path, bool]:
    """Return the folder of acados, and whether it is the user's own, not that of a wheel. Raises AcadosMissingError."""
    if not __debug__:
        raise AcadosMissingError("acados's interface creates its solvers in assert statements, which python -O removes")
    ours = wheel / "acados" / "install"
    stated = Path(os.environ.get("ACADOS_SOURCE_DIR") or ours)
    own = stated != ours and importlib.util.find_spec("acados_template") is not None
    install = stated if own else ours
    if not install.is_dir():
        mend = "unset ACADOS_SOURCE_DIR to use the wheel" if own else "`gate-racer doctor` tells how to install it"
        raise AcadosMissingError(f"acados is missing in {install}; {mend}")
    return install, own


def _import_template(wheel: Path) -> ModuleType:
    """Load acados, the user's own or of the folder of a wheel, and import its template module. Raises AcadosMissingError."""
    install, own = _installed(wheel)
    try:
        if not own:
            os.environ["ACADOS_SOURCE_DIR"] = str(install)
            os.environ["ACADOS_PYTHON_INTERFACE_PATH"] = str(wheel / "acados" / "acados_template")
            os.environ["TERA_PATH"] = str(install / "bin" / "t_renderer")
            if str(wheel / "acados") not in sys.path:
                sys.path.insert(0, str(wheel / "acados"))
            for library in LIBRARIES:
                # The generated solver refers to these by name only, so they must be loaded before it.
                for path in sorted((install / "lib").glob(library + ".*"))[:1]:
                    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences in the wheel's sources
            return importlib.import_module("acados_template")
    except (OSError, ImportError) as error:
        raise AcadosMissingError(f"acados in {install} cannot be loaded ({error}); install it again") from None


class AcadosSolver:
    """acados solver with one real-time iteration per tick, each warm-started from the last solution."""

    def __init__(self, problem: Problem, vehicle: Vehicle):
        """Load the solver, generated and compiled on first use. Errors as `load_generated`."""
        steps, form, w = problem.settings.horizon.steps, problem.formulation, problem.settings.weights
        s, nh = problem.symbols, problem.symbols.h.numel()
        text = ca.Function("key", [s.x, s.u, s.p], [s.after, s.y, s.y_end, s.h]).serialize()
        stated = [text, problem.settings.horizon]
        self._solver = solver = load_generated(form.name, partial(_formulate, problem), stated)
        silence()
        low, high = problem.input_limits(vehicle)
        for k in range(steps):
            solver.cost_set(k, "W", np.diag(s.w))
            solver.constraints_set(k, "lbu", low)
            solver.constraints_set(k, "ubu", high)
            for side in "lu" if nh else "":  # penalties of the soft constraints
                solver.cost_set(k, f"Z{side}", np.full(nh, w.gate_corridor))
                solver.cost_set(k, f"z{side}", np.full(nh, w.gate_corridor_price))
        solver.cost_set(steps, "W", np.diag(s.w_end))
        # Buffers for all calls of `tick.c`, so that nothing is allocated in flight.
        self._x0 = np.zeros(form.x.size)
        self._p = np.zeros((steps + 1, NP))
        self._x, self._u = np.zeros((steps + 1, form.x.size)), np.zeros((steps, form.u.size))
        self._prepare = bound(solver, "tick_prepare", self._p)
        self._feedback = bound(solver, "tick_feedback", self._x0, self._x, self._u)
        self._start = bound(solver, "tick_start", self._x, self._u)

    def start(self, x: Array, u: Array) -> None:
        self._x[:], self._u[:] = x, u
        self._start()

    def prepare(self, parameters: Array) -> None:
        self._p[:] = parameters
        self._prepare()

    def solve(self, x0: Array) -> Solution:
        begin = time.perf_counter()
        self._x0[:] = x0
        status = self._feedback()
        return Solution(self._x.copy(), self._u.copy(), int(status), time.perf_counter() - begin)


@cache
def silence() -> None:
    """Discard the C library's stdout, where acados prints every failed iteration; Python's streams are unaffected."""
    c = ctypes.CDLL(None)
    with contextlib.suppress(ValueError, AttributeError):  # C libraries in which stdout is not a variable
        c.fopen.restype, c.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
        stdout = ctypes.c_void_p.in_dll(c, "stdout")
        c.fflush(None)
        stdout.value = c.fopen(os.devnull.encode(), b"w")


def bound(solver: Any, name: str, *arrays: Array) -> Callable[[], int]:
    """Bind a C function to its argument buffers, which must not move."""
    function = getattr(solver.shared_lib, name)
    function.argtypes, function.restype = [ctypes.c_void_p] * (1 + len(arrays)), ctypes.c_int
    arguments = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    capsule = ctypes.cast(solver.capsule, ctypes.c_void_p)
    return lambda: function(capsule, *arguments)


def _formulate(problem: Problem, template: ModuleType, folder: Path) -> Any:
    """Formulate the problem as an `AcadosOcp`, with generated code under `folder`."""
    s, horizon = problem.symbols, problem.settings.horizon
    nx, nu, ny, ny_end, nh = s.x.numel(), s.u.numel(), s.y.numel(), s.y_end.numel(), s.h.numel()
    model = template.AcadosModel()
    model.name, model.x, model.u, model.p = problem.formulation.name, s.x, s.u, s.p
    model.disc_dyn_expr = s.after
    model.cost_y_expr, model.cost_y_expr_e = s.y, s.y_end
    ocp = template.AcadosOcp()
    ocp.model = model
    options = ocp.solver_options
    ocp.parameter_values = np.ones(NP)
    ocp.cost.cost_type = ocp.cost.cost_type_e = "NONLINEAR_LS"
    ocp.cost.W, ocp.cost.W_e = np.eye(ny), np.eye(ny_end)
    ocp.cost.yref, ocp.cost.yref_e = np.zeros(ny), np.zeros(ny_end)
    ocp.constraints.x0 = np.zeros(nx)
    ocp.constraints.idxbu = np.arange(nu)
    ocp.constraints.lbu, ocp.constraints.ubu = -np.ones(nu), np.ones(nu)
    if nh:
        model.con_h_expr = s.h
        ocp.constraints.lh, ocp.constraints.uh = -np.ones(nh), np.ones(nh)
        ocp.constraints.idxsh = np.arange(nh)
        ocp.cost.Zl = ocp.cost.Zu = ocp.cost.zl = ocp.cost.zu = np.ones(nh)
    options.tf = horizon.steps * horizon.step_s
    options.nlp_solver_type, options.qp_solver = "SQP_RTI", "PARTIAL_CONDENSING_HPIPM"
    options.hessian_approx, options.integrator_type = "GAUSS_NEWTON", "DISCRETE"
    # Other blocks, a warm start and a looser tolerance gain nothing; bounds on the pace within the horizon would cost 0.11 ms.
    # Races take 3 to 10 QP iterations, a poor guess 22. The limit bounds the tick's time; a truncated solve is still an iterate.
    options.qp_solver_cond_N, options.qp_solver_iter_max = min(5, horizon.steps), 25
    options.qp_tol, options.hpipm_mode, options.qp_solver_warm_start = 1e-6, "SPEED", 0
    return with_tick(ocp, horizon.steps, folder)


def with_tick(ocp: Any, steps: int, folder: Path) -> Any:
    """Return an `AcadosOcp` of so many steps whose code is generated under a folder, compiled with `tick.c`."""
    options = ocp.solver_options
    if _current(ocp):
        ocp.name, options.N_horizon = ocp.model.name, steps
        code = compiler = ocp.code_gen_options
        _constrain_start(ocp)
    else:
        ocp.dims.N, code, compiler = steps, ocp, options
    compiler.ext_fun_compile_flags = "-O3"
    code.code_export_directory = str(folder / "c")
    options.custom_update_filename, options.custom_update_header_filename = "tick.c", "tick.h"
    options.custom_update_copy = False
    return ocp


def _constrain_start(ocp: Any) -> None:
    """Impose nonlinear constraints on the first stage too, as acados 0.2 does."""
    bounds, cost = ocp.constraints, ocp.cost
    ocp.model.con_h_expr_0 = ocp.model.con_h_expr
    bounds.lh_0, bounds.uh_0, bounds.idxsh_0 = bounds.lh, bounds.uh, bounds.idxsh
    for name in ("Zl", "Zu", "zl", "zu"):
        prices = getattr(cost, name)
        setattr(cost, f"{name}_0", prices[len(prices) - len(bounds.idxsh) :])  # those of bounds stand before


def load_generated(name: str, formulate: Formulate, stated: Sequence[object]) -> Any:
    """Load a compiled solver with `tick.c` from the cache, or build it.

    Args:
        name: of the problem, in C.
        formulate: of `template` and a folder, the `AcadosOcp`, see `with_tick`; it is pickled for another process.
        stated: what the code depends on, besides acados and this file.

    Raises:
        AcadosMissingError: no acados, its code cannot be compiled or kept, or it does not run on this processor.
    """
    libraries = sorted((_installed(WHEEL)[0] / "lib").glob("lib*"))
    built = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in libraries]
    tools = [ca.__version__, built, _processor()]
    sources = [path.read_text(encoding="utf-8") for path in (Path(__file__), TICK)]
    key = hashlib.sha256(repr([*stated, *tools, *sources]).encode()).hexdigest()[:16]
    try:
        place = cache_folder() / f"acados-{key}"
        folder = entry(place.name, lambda draft: _build((name, formulate, draft, place)))
    except FileError as error:
        raise AcadosMissingError(f"acados: {error}") from None
    with contextlib.redirect_stdout(io.StringIO()):
        return _solver(_import_template(WHEEL), formulate, folder)


def _current(ocp: Any) -> bool:
    """Whether an `AcadosOcp` is of acados 0.6, not of 0.2."""
    return hasattr(ocp, "code_gen_options")


def _solver(template: ModuleType, formulate: Formulate, folder: Path, make: bool = False) -> Any:
    """Load a solver, after generating and compiling it if asked to `make` it."""
    ocp = formulate(template, folder)
    given = {"check_reuse_possible": False} if _current(ocp) else {"json_file": str(folder / JSON)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a newer CasADi, and of names that acados itself calls deprecated
        return template.AcadosOcpSolver(ocp, build=make, generate=make, verbose=False, **given)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _build(job: tuple[str, Formulate, Path, Path]) -> None:
    """Generate, compile and try in a subprocess, since acados ignores Ctrl-C and may crash. Raises AcadosMissingError."""
    command = command_line("from gate_racer.mpc.solvers.acados import main; main()")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as child:
        try:
            _, stderr = child.communicate(pickle.dumps(job))
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        lacks = "this processor lacks instructions such as AVX2" if name == "SIGILL" else "they are damaged"
        raise AcadosMissingError(f"acados's libraries do not run ({name}): {lacks}")
    if child.returncode:
        said = stderr.decode(errors="replace").strip() or f"its compilation ended with exit code {child.returncode}"
        raise AcadosMissingError(f"acados: {said.splitlines()[-1].removeprefix('error: ')}")


def _plain(path: Path, link: Path) -> Path:
    """Return a path that acados can hand to shells and makefiles as it does, without quotes: a link to it if need be."""
    if not re.search(r"[^\w/.,+-]", str(path)):
        return path
    link.symlink_to(path, target_is_directory=True)
    return link


def _generate(name: str, formulate: Formulate, draft: Path, folder: Path) -> None:
    """Generate and compile in the folder `draft`, which is moved to `folder` afterwards."""
    (draft / "c").mkdir(parents=True)
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as links:
        wheel, place = _plain(WHEEL, Path(links) / "wheel"), _plain(draft, Path(links) / "draft")
        if not _installed(WHEEL)[1]:
            ours = str(WHEEL / "acados")  # of the process that started this one
            sys.path[:] = [path for path in sys.path if path != ours]
        template = _import_template(wheel)
        text = re.sub(r"NAME_N([XUP])", rf"{name.upper()}_N\1", TICK.read_text(encoding="utf-8"))
        text = f"#define CURRENT {int(_current(template.AcadosOcp()))}\n{text}"
        (draft / "c" / "tick.c").write_text(text.replace("NAME", name), encoding="utf-8")
        (draft / "c" / "tick.h").write_text(HEADER.replace("NAME", name), encoding="utf-8")
        try:
            _solver(template, formulate, place, make=True).solve()  # as in the module's text: a crash ends this process
        except OSError:
            if not (draft / "c" / "Makefile").exists() or any((draft / "c").glob(f"libacados_ocp_solver_{name}.*")):
                raise
            says = "the generated solver did not compile; a C compiler and make are needed"
            raise AcadosMissingError(says) from None
    if (draft / JSON).exists():  # of acados 0.2, which reads its paths there
        about = json.loads((draft / JSON).read_text(encoding="utf-8"))
        about["code_export_directory"] = str(folder / "c")
        for name in ("acados_include_path", "acados_lib_path"):
            about[name] = about[name].replace(str(wheel), str(WHEEL))
        (draft / JSON).write_text(json.dumps(about), encoding="utf-8")


def main() -> None:
    """Build the solver in the process that `_build` starts."""
    sys.exit(exit_code(lambda: _generate(*pickle.load(sys.stdin.buffer))))
