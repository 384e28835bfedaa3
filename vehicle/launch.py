"""Entry point of all commands, which loads other modules late, so that Ctrl-C works and progress is shown from the start.

Each command exists under its own name and as a sub-command: `gate-racer run-mpc vq1` is `run-mpc vq1`.
"""

import _signal  # what `signal` wraps, without the twenty modules that it imports first
import _thread
import os
import time
from collections.abc import Callable

INTERRUPTED = 130
AGAIN_S = 0.1  # from an interrupt that was dropped to the next
DISTRIBUTION = "gate-racer"
# Matrices here are small. NumPy's threads would gain nothing, and the loop that flies would wait for them: by CasADi on two cores
# commands went out at 25 Hz instead of 57.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
QUIET = "--quiet"  # an option of every command: no progress and no remarks
COMMANDS = {  # the module of each, which has a `main`
    "plan-track": "planner.cli",
    "run-mpc": "field.run_mpc",
    "race-sim": "sim.cli",
    "race-bench": "benchmarks.campaign.cli",
    "replay-flight": "pilot.replay",
    "fly-report": "field.report.cli",
    "probe-link": "field.probe.cli",
    "preflight": "field.preflight.cli",
    "identify-vehicle": "field.identify.cli",
    "map-track": "field.mapping.cli",
    "detect-gates": "pilot.detect_gates",
    "bootcamp": "bootcamp.cli",
}


def launch(module: str, name: str) -> int:
    """Load a module and run its `main`. Returns the exit code; 130 after Ctrl-C at any time."""
    _signal.signal(_signal.SIGINT, _leave)
    for variable in ONE_THREAD:
        os.environ.setdefault(variable, "1")
    import importlib
    import sys

    from vehicle.errors import exit_code, say
    from vehicle.progress_dots import ProgressDots

    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        say(f"{name} {version(DISTRIBUTION)}")
        return 0

    tell = sys.unraisablehook
    sys.unraisablehook = lambda told: _strike_again() if told.exc_type is KeyboardInterrupt else tell(told)
    silent = QUIET in sys.argv or sys.stdout is None or sys.stderr is None
    sign = None if silent else ProgressDots(name)

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
    """Exit at once: nothing has started yet, and extension modules do not handle an exception reliably while they load."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _strike_again() -> None:
    """Interrupt again after a moment: Python drops exceptions raised in its internal callbacks, such as those of imports."""

    def strike() -> None:
        time.sleep(AGAIN_S)
        if os.name == "posix":
            os.kill(os.getpid(), _signal.SIGINT)  # which also ends a wait of the main thread
        else:
            _thread.interrupt_main()

    _thread.start_new_thread(strike, ())


def _command(name: str) -> Callable[[], int]:
    return lambda: launch(COMMANDS[name], name)


def gate_racer() -> int:
    """Run the command named by the first argument; `list`, `doctor` and `--help` are handled by `field.about`."""
    import sys

    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        return launch("field.about", DISTRIBUTION)
    sys.argv[:2] = [name]
    return launch(COMMANDS[name], name)


plan_track, run_mpc, race_sim, race_bench, replay_flight, fly_report = (
    _command(name) for name in ("plan-track", "run-mpc", "race-sim", "race-bench", "replay-flight", "fly-report")
)
probe_link, preflight, identify_vehicle, map_track, detect_gates, bootcamp = (
    _command(name) for name in ("probe-link", "preflight", "identify-vehicle", "map-track", "detect-gates", "bootcamp")
)
