"""All commands. Each exists under its own name and as a sub-command: `gate-racer run-mpc vq1` is `run-mpc vq1`."""

from collections.abc import Callable

from gate_racer.common.launch import DISTRIBUTION, launch

COMMANDS = {  # module of each command, as of `common.command.main`
    "plan-track": "gate_racer.race.plan_track",
    "run-mpc": "gate_racer.race.run_mpc",
    "explore": "gate_racer.race.explore",
    "excite": "gate_racer.race.excite",
    "race-sim": "gate_racer.race.race_sim",
    "race-bench": "gate_racer.race.campaign.cli",
    "replay-flight": "gate_racer.pilot.replay_flight",
    "fly-report": "gate_racer.field.report.cli",
    "probe-link": "gate_racer.field.probe.cli",
    "preflight": "gate_racer.field.preflight.cli",
    "identify-vehicle": "gate_racer.field.identify.cli",
    "map-track": "gate_racer.field.mapping.cli",
    "import-calibration": "gate_racer.field.import_calibration",
    "detect-gates": "gate_racer.pilot.detect_gates",
    "train-detector": "gate_racer.perception.training.cli",
    "train-policy": "gate_racer.race.training.cli",
    "bootcamp": "gate_racer.bootcamp.cli",
}
WITHIN = {"board": "race-bench"}  # commands of `gate-racer` that are sub-commands of another
ABOUT = "gate_racer.about"


def __getattr__(name: str) -> Callable[[], int]:
    """Return the entry point of a command: `plan_track` is that of plan-track. Raises AttributeError."""
    command = name.replace("_", "-")
    if command not in COMMANDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return lambda: launch(COMMANDS[command], command)


def gate_racer() -> int:
    """Run the command named by the first argument; `list`, `doctor` and `--help` are handled by ABOUT."""
    import sys

    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in WITHIN:
        sys.argv.insert(1, name := WITHIN[name])
    if name not in COMMANDS:
        return launch(ABOUT, DISTRIBUTION)
    sys.argv[:2] = [name]
    return launch(COMMANDS[name], name)
