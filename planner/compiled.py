"""CasADi functions as machine code: generated and compiled once per function and machine, then loaded in milliseconds.

Derivatives are nine tenths of the time of an optimisation in CasADi's virtual machine; compiled they cost a tenth of that.
Without a C compiler the function itself is used, and everything works, slower.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import casadi as ca
from platformdirs import user_cache_path

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O1", "-shared", "-fPIC")  # -O2 takes twice as long to compile and is no faster


def compiled(function: ca.Function) -> ca.Function:
    """The same function from a shared library that also holds its Jacobian and the Jacobian of its adjoint."""
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None or os.name == "nt":
        return function
    text = repr((function.serialize(), ca.CasadiMeta.version(), FLAGS))
    library = user_cache_path("gate-racer") / f"{function.name()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not library.exists() and not _build(function, compiler, library):
        return function
    return ca.external(function.name(), str(library))


def require_uninterrupted(solver: ca.Function) -> None:
    """CasADi turns a Ctrl-C that strikes while IPOPT runs into a status; this turns it back.

    Raises:
        KeyboardInterrupt: the last solve was interrupted.
    """
    if solver.stats()["return_status"] in ("User_Requested_Stop", "NonIpopt_Exception_Thrown"):
        raise KeyboardInterrupt


def _build(function: ca.Function, compiler: str, library: Path) -> bool:
    """Generates and compiles beside the target, then moves it in place: processes that build at once do no harm."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        adjoint = function.reverse(1)
        generator = ca.CodeGenerator(f"{function.name()}.c")
        for part in (function, function.jacobian(), adjoint, adjoint.jacobian()):
            generator.add(part)
        generator.generate(f"{folder}/")
        source, draft = Path(folder) / f"{function.name()}.c", Path(folder) / "draft.so"
        done = subprocess.run([compiler, *FLAGS, str(source), "-o", str(draft)], capture_output=True, check=False)
        if done.returncode != 0:
            return False
        with contextlib.suppress(OSError):
            draft.replace(library)
    return library.exists()
