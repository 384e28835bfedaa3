"""CasADi functions as machine code: generated and compiled once per function and machine, then loaded in milliseconds.

Derivatives are nine tenths of the time of an optimisation in CasADi's virtual machine; compiled they cost a tenth of that.
Without a C compiler the function itself is used, and everything works, slower.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import casadi as ca

from vehicle.cache import entry
from vehicle.files import FileError

LIBRARY = "function.so"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O1", "-shared", "-fPIC")  # -O2 takes twice as long to compile and is no faster


def compiled(function: ca.Function) -> ca.Function:
    """The same function from a shared library that also holds its Jacobian and the Jacobian of its adjoint."""
    if (compiler := find_compiler()) is None:
        return function
    text = repr((function.serialize(), ca.CasadiMeta.version(), FLAGS))
    name = f"{function.name()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        folder = entry(name, lambda draft: _build(function, compiler, draft))
        return ca.external(function.name(), str(folder / LIBRARY))
    except (FileError, subprocess.CalledProcessError, RuntimeError):  # no cache, no compilation, or no loading
        return function


def find_compiler() -> str | None:
    """The path of a C compiler whose libraries can be loaded here."""
    return next((path for name in COMPILERS if os.name != "nt" and (path := shutil.which(name))), None)


def _build(function: ca.Function, compiler: str, folder: Path) -> None:
    """Generates and compiles in a folder. Raises CalledProcessError."""
    adjoint = function.reverse(1)
    generator = ca.CodeGenerator(f"{function.name()}.c")
    for part in (function, function.jacobian(), adjoint, adjoint.jacobian()):
        generator.add(part)
    generator.generate(f"{folder}/")
    source = folder / f"{function.name()}.c"
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(folder / LIBRARY)], capture_output=True, check=True)
    source.unlink()
