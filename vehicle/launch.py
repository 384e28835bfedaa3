"""Where every command begins: nothing else is loaded yet, so that Ctrl-C is answered and a wait is shown from the start."""

import _signal  # what `signal` wraps, without the twenty modules that it imports first
import os
from collections.abc import Callable

INTERRUPTED = 130


def launch(module: str, name: str) -> int:
    """Loads a module and runs its `main`. Returns the exit code; 130 after Ctrl-C at any moment."""
    _signal.signal(_signal.SIGINT, _leave)
    import importlib
    import sys

    from vehicle.errors import exit_code
    from vehicle.sign_of_life import SignOfLife

    sign = SignOfLife(name) if sys.stdout is not None and sys.stderr is not None else None

    def run() -> int | None:
        main = importlib.import_module(module).main
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0

    try:
        return exit_code(run)
    finally:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # the answer stands; what is left is the interpreter's end
        if sign is not None:
            sign.close()


def _leave(*_: object) -> None:
    """Ends at once: nothing is begun yet, and extension modules make anything of an exception that strikes while they load."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _command(name: str, module: str) -> Callable[[], int]:
    return lambda: launch(module, name)


plan_track = _command("plan-track", "planner.cli")
run_mpc = _command("run-mpc", "field.run_mpc")
replay_flight = _command("replay-flight", "pilot.replay")
race_sim = _command("race-sim", "sim.cli")
race_bench = _command("race-bench", "benchmarks.campaign.cli")
bootcamp = _command("bootcamp", "bootcamp.cli")
fly_report = _command("fly-report", "field.fly_report")
probe_link = _command("probe-link", "field.probe.cli")
identify_vehicle = _command("identify-vehicle", "field.identify.cli")
map_track = _command("map-track", "field.mapping.cli")
detect_gates = _command("detect-gates", "pilot.detect_gates")
