"""Full names of modules that are loaded by name: rooms are top-level in a checkout, and within `gate_racer` once installed."""

import sys

_PARENT = __package__.removesuffix("vehicle")


def module_name(name: str) -> str:
    """Return the full name of a room's module, such as `planner.cli`."""
    return _PARENT + name


def command_line(module: str, *arguments: str) -> list[str]:
    """Return the command line of a process that runs `main` of a room's module with the search path of this process.

    `python -m` would search the working directory first, which may contain another `gate_racer` or a `random.py`, and its
    child processes would load the module again.
    """
    code = f"import sys; sys.path[:] = {sys.path}; from {module_name(module)} import main; main()"
    return [sys.executable, "-P", "-c", code, *arguments]
