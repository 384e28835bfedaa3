"""All commands. Each exists under its own name and as a sub-command: `gate-racer run-mpc vq1` is `run-mpc vq1`."""

from collections.abc import Callable

from vehicle.launch import DISTRIBUTION, launch
from vehicle.rooms import module_name

COMMANDS = {  # module of each command, with a `main` and a `parser`
    name: module_name(module)
    for name, module in {
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
    }.items()
}
ABOUT = f"{__package__}.about"


def _command(name: str) -> Callable[[], int]:
    return lambda: launch(COMMANDS[name], name)


def gate_racer() -> int:
    """Run the command named by the first argument; `list`, `doctor` and `--help` are handled by ABOUT."""
    import sys

    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        return launch(ABOUT, DISTRIBUTION)
    sys.argv[:2] = [name]
    return launch(COMMANDS[name], name)


plan_track, run_mpc, race_sim, race_bench, replay_flight, fly_report = (
    _command(name) for name in ("plan-track", "run-mpc", "race-sim", "race-bench", "replay-flight", "fly-report")
)
probe_link, preflight, identify_vehicle, map_track, detect_gates, bootcamp = (
    _command(name) for name in ("probe-link", "preflight", "identify-vehicle", "map-track", "detect-gates", "bootcamp")
)
