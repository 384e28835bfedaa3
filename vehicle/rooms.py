"""What is loaded by name: the rooms lie at the top in a checkout, within `gate_racer` once installed (setup.py)."""

import sys

_PARENT = __package__.removesuffix("vehicle")


def module_name(name: str) -> str:
    """The full name of a room's module, such as `planner.cli`."""
    return _PARENT + name


def command_line(module: str, *arguments: str) -> list[str]:
    """For `subprocess`: runs the `main` of a room's module by the modules that this process has found.

    `python -m` would look for them in the folder where it is run first, which may hold another `gate_racer`, or a `random.py`;
    and processes that it starts in turn would load the command again.
    """
    code = f"import sys; sys.path[:] = {sys.path}; from {module_name(module)} import main; main()"
    return [sys.executable, "-P", "-c", code, *arguments]
