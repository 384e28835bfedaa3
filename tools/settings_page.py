"""Write docs/settings.md, the keys of all commands with their options: python -m tools.settings_page"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gate_racer.bootcamp import cli as bootcamp
from gate_racer.common.settings import key_table
from gate_racer.field.identify import cli as identify
from gate_racer.field.mapping import cli as mapping
from gate_racer.field.preflight import cli as preflight
from gate_racer.field.probe import cli as probe
from gate_racer.field.report import cli as fly_report
from gate_racer.perception.training import cli as teaching
from gate_racer.pilot import detect_gates, replay_flight
from gate_racer.race import plan_track, race_sim
from gate_racer.race import settings as race
from gate_racer.race.campaign import cli as bench
from gate_racer.race.training import cli as learning

PAGE = Path(__file__).parent.parent / "docs/settings.md"
HEAD = """# Settings

Each setting of a command is a key. What is changed often has an option too; all keys are set one at a time by
`--set KEY=VALUE`, and of commands with `--config FILE` in a YAML file. An option takes precedence over `--set`, and `--set`
over the file.
A misspelt key is refused with the nearest one. Log and result of a flight contain its settings, in the form of such a file.

```sh
run-mpc vq1 --set guidance.retry=false --set link.timeout_s=20
```

The same in a file, as in `run-mpc vq1 --config run.yaml`:

```yaml
guidance: {retry: false}
link: {timeout_s: 20}
```

This page is generated from the settings by `python -m tools.settings_page`.
"""
COMMANDS: dict[str, tuple[Any, Mapping[str, Mapping[str, str]]]] = {  # settings and options of each
    "plan-track": (plan_track.PlanSettings(), plan_track.OPTIONS),
    "run-mpc, explore, excite": (race.RunSettings(), race.RACE),
    "race-sim": (race_sim.SimulatorSettings(), race_sim.OPTIONS),
    "race-bench": (bench.BenchSettings(), bench.OPTIONS),
    "gate-racer board": (bench.BoardSettings(), bench.BOARD_OPTIONS),
    "bootcamp": (bootcamp.BootcampSettings(), bootcamp.OPTIONS),
    "probe-link": (probe.ProbeSettings(), probe.OPTIONS),
    "preflight": (preflight.PreflightSettings(), preflight.OPTIONS),
    "identify-vehicle": (identify.IdentificationSettings(), identify.OPTIONS),
    "map-track": (mapping.MappingSettings(), mapping.OPTIONS),
    "replay-flight": (replay_flight.ReplaySettings(), replay_flight.OPTIONS),
    "fly-report": (fly_report.ReportSettings(), fly_report.OPTIONS),
    "detect-gates": (detect_gates.DetectionSettings(), detect_gates.OPTIONS),
    "train-detector": (teaching.TeachingSettings(), teaching.OPTIONS),
    "train-policy": (learning.TrainingSettings(), learning.OPTIONS),
}


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, (settings, options) in COMMANDS.items():
        parts.append(f"\n## {title}\n\n{key_table(settings, options)}\n")
    return "".join(parts)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
