"""Rarely changed settings of `run-mpc`, by `--config FILE` and `--set KEY=VALUE`; docs/racing.md lists them."""

from dataclasses import dataclass, field

from gate_racer.common.settings import key
from gate_racer.link.profile import COMMANDS
from gate_racer.mpc.solvers.solver import AUTO, SOLVERS
from gate_racer.pilot.records.flight_log import LIMIT_MB

WAIT_S = 60.0  # s, default wait for a simulator in another process (chosen)
START_S = 300.0  # s, for the built-in one: it compiles at its first use, on a machine that may be loaded (chosen)
MOVED = {  # former options
    "--solver": "controller.solver=NAME",
    "--command": "controller.command=NAME",
    "--no-retry": "guidance.retry=false",
    "--no-check": "link.check=false",
    "--timeout": "link.timeout_s=S",
    "--log-limit": "record.limit_mb=MB",
}


@dataclass(frozen=True)
class ControllerSettings:
    """Settings of the controller."""

    solver: str = key(AUTO, f"{', '.join(SOLVERS)}; `casadi` needs no compiler")
    command: str = key(AUTO, f"kind of set-point: {AUTO} (from the profile), {', '.join(COMMANDS)}")

    def __post_init__(self) -> None:
        for name, known in {"solver": SOLVERS, "command": (AUTO, *COMMANDS)}.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} {getattr(self, name)!r}: must be one of {', '.join(known)}")


@dataclass(frozen=True)
class GuidanceSettings:
    """Settings of the guidance."""

    retry: bool = key(True, "repeat a missed gate, and search for gates after losing the estimate")


@dataclass(frozen=True)
class LinkSettings:
    """Settings of the link."""

    check: bool = key(True, "refuse to start if the simulator contradicts profile or track")
    timeout_s: float | None = key(
        None, f"time to wait for a simulator, s; else {WAIT_S:g}, for the built-in one {START_S:g}"
    )

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"timeout_s {self.timeout_s:g}: must be positive")

    def wait_s(self, live: bool) -> float:
        """Return the time to wait for a simulator, s."""
        return self.timeout_s if self.timeout_s is not None else WAIT_S if live else START_S


@dataclass(frozen=True)
class RecordSettings:
    """Settings of the log."""

    limit_mb: float = key(
        LIMIT_MB, "maximum size of the log, MB; images stop at 80 % of it; the default is about seven minutes"
    )

    def __post_init__(self) -> None:
        if not self.limit_mb > 0:
            raise ValueError(f"limit_mb {self.limit_mb:g}: must be positive")


@dataclass(frozen=True)
class RunSettings:
    """All settings."""

    controller: ControllerSettings = field(default_factory=ControllerSettings)
    guidance: GuidanceSettings = field(default_factory=GuidanceSettings)
    link: LinkSettings = field(default_factory=LinkSettings)
    record: RecordSettings = field(default_factory=RecordSettings)
