"""CasADi functions compiled to machine code, once per function and machine, then loaded in milliseconds.

Derivatives take nine tenths of an optimisation's time in CasADi's virtual machine; compiled they take a tenth of that.
Without a C compiler the function itself is used, which is slower.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import casadi as ca

from gate_racer.vehicle.cache import entry
from gate_racer.vehicle.files import FileError

LIBRARY = "function.so"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O1", "-shared", "-fPIC")  # -O2 takes twice as long to compile and is no faster


def compiled(*functions: ca.Function) -> tuple[ca.Function, ...]:
    """Return the functions from a shared library named after the first, or unchanged if they cannot be compiled."""
    if (compiler := find_compiler()) is None:
        return functions
    text = repr(([one.serialize() for one in functions], ca.CasadiMeta.version(), FLAGS))
    name = f"{functions[0].name()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        folder = entry(name, lambda draft: _build(functions, compiler, draft))
        return tuple(ca.external(one.name(), str(folder / LIBRARY)) for one in functions)
    except (FileError, subprocess.CalledProcessError, RuntimeError):  # no cache, no compilation, or no loading
        return functions


def find_compiler() -> str | None:
    """Return the path of a C compiler, or None; always None on Windows, where its libraries cannot be loaded."""
    return next((path for name in COMPILERS if os.name != "nt" and (path := shutil.which(name))), None)


def _build(functions: tuple[ca.Function, ...], compiler: str, folder: Path) -> None:
    """Generate and compile the functions in a folder.

    Raises:
        CalledProcessError: compilation failed.
    """
    generator = ca.CodeGenerator(f"{functions[0].name()}.c")
    for one in functions:
        generator.add(one)
    generator.generate(f"{folder}/")
    source = folder / f"{functions[0].name()}.c"
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(folder / LIBRARY)], capture_output=True, check=True)
    source.unlink()
