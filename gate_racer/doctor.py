"""Checks of a machine's fitness for flight: each thing is tried, and a remedy named where it is missing."""

import os
import shlex
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gate_racer.common.cache import cache_folder
from gate_racer.common.errors import UserError, one_line
from gate_racer.link.profile import load_profile
from gate_racer.link.sockets import LinkError, bind_udp
from gate_racer.mpc.problem import Problem, load_settings
from gate_racer.mpc.registry import DEFAULT
from gate_racer.mpc.solvers.acados import WHEEL, AcadosMissingError, AcadosSolver
from gate_racer.planner.nlp import find_compiler
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle

CLOCK_MS = 1.0  # ms, greatest step of a usable clock (chosen); on Windows it is 15.6 before Python 3.13
CORES = 2  # pilot and perception; a simulator on the same machine needs one more
EXTRAS = {  # use by distribution
    "foxglove-sdk": "--view",
    "shtab": "gate-racer completion",
    "cma": "tools/tune_mpc.py of a checkout",
    "torch": "train-detector and train-policy",
}


@dataclass(frozen=True)
class Finding:
    what: str
    good: bool
    detail: str  # what was found; if not good, the cost and the remedy
    needed: bool = False  # required for flight

    @property
    def line(self) -> str:
        mark = "ok     " if self.good else "MISSING" if self.needed else "without"
        return f"{mark} {self.what}: {self.detail}"


def examine(folder: Path) -> list[Finding]:
    """Run all checks, the required ones first; `folder`: where results would be written."""
    writable, compiler = os.access(folder, os.W_OK), find_compiler()
    step_ms = 1e3 * time.get_clock_info("monotonic").resolution
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    few = "" if cores >= CORES else f"; real-time flights need {CORES}, run-mpc --lockstep needs one"
    coarse = ", by which messages are stamped: use Python 3.13 or newer, which reads a finer one"
    without = "none of cc, gcc, clang found: acados cannot be built, and planning is several times slower; install gcc"
    return [
        Finding("Python", True, f"{sys.version.split()[0]}, gate-racer {version('gate-racer')}", needed=True),
        _cache(),
        Finding("this folder", writable, f"{folder} {'can' if writable else 'cannot'} be written (plans, logs)", True),
        Finding("processor cores", not few, f"{cores}{few}"),
        Finding("clock", step_ms <= CLOCK_MS, f"in steps of {step_ms:.1g} ms{coarse * (step_ms > CLOCK_MS)}"),
        _acados(),
        Finding("C compiler", compiler is not None, compiler or without),
        _images(),
        *_ports(),
        *_extras(),
    ]


def _cache() -> Finding:
    try:
        return Finding("cache of compiled code", True, str(cache_folder()))
    except UserError as error:
        return Finding("cache of compiled code", False, f"{one_line(str(error))}; without it each start compiles again")


def _acados() -> Finding:
    try:
        AcadosSolver(Problem(load_settings(DEFAULT)), load_vehicle("dcl"))  # which compiles once on a machine
        return Finding("acados", True, f"{os.environ['ACADOS_SOURCE_DIR']}: about 0.5 ms per command")
    except AcadosMissingError as error:
        reason = one_line(str(error)).partition("; `gate-racer doctor`")[0]
        consequence = "without it CasADi is used (--set controller.solver=casadi), several times slower"
        folder = shlex.quote(str(WHEEL))
        wheel = f"`pip install --no-deps --target {folder} comma-deps-acados`, then delete {folder}/casadi*"
        remedy = f"; run {wheel} (in a checkout `make setup`, or `tools/build-acados.sh`)"
        return Finding("acados", False, f"{reason}; {consequence}{'' if WHEEL.is_dir() else remedy}")


def _images() -> Finding:
    try:
        from gate_racer.sim.view.renderer import RenderedCamera  # loads OpenGL, which may be missing

        RenderedCamera(load_track("vq1"), load_vehicle("dcl").camera, load_style("race"), 0).close()
        return Finding("rendered images", True, "rendered off-screen by OpenGL")
    except Exception as error:  # drivers raise various exceptions
        without = "without them fly --live, or --lockstep --camera projected"
        return Finding("rendered images", False, f"{one_line(str(error))}; {without}")


def _ports() -> list[Finding]:
    profile, found = load_profile("dcl"), []
    for what, port in (("MAVLink", profile.mavlink_port), ("video", profile.video_port)):
        try:
            bind_udp("127.0.0.1", port).close()
            found.append(Finding(f"UDP {port} ({what})", True, "free"))
        except LinkError as error:
            found.append(Finding(f"UDP {port} ({what})", False, f"{error} (link.listen, link.video)"))
    return found


def _extras() -> list[Finding]:
    result = []
    for name, use in EXTRAS.items():
        try:
            result.append(Finding(name, True, f"{version(name)}, for {use}"))
        except PackageNotFoundError:
            result.append(Finding(name, False, f"not installed; only for {use}: pip install {name}"))
    return result
