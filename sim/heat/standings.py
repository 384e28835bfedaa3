"""Ranking of a heat: by gates passed, then by the time of the last passage on the common clock."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gate_racer.sim.heat.heat import Heat
from gate_racer.vehicle.files import write_file


@dataclass(frozen=True)
class Standing:
    """Result of one pilot. Times in s since GO, margins in m."""

    rank: int  # from 1
    pilot: int  # from 1
    status: str
    cause: str
    gates: int
    gates_total: int
    time_s: float | None  # time of the last gate
    contacts: int  # encounters with rivals while either run was in progress
    gate_times_s: list[float]
    gate_margins_m: list[float]

    def __str__(self) -> str:
        time = f"{self.time_s:8.3f} s" if self.time_s is not None else "       - s"
        margin = f"{min(self.gate_margins_m):.3f} m" if self.gate_margins_m else "-"
        cause = f" ({self.cause})" if self.cause else ""
        return (
            f"{self.rank}. pilot {self.pilot}: {self.status}{cause}, {self.gates}/{self.gates_total} gates, {time},"
            f" least margin {margin}, {self.contacts} contacts with rivals"
        )


def standings(heat: Heat) -> list[Standing]:
    """Return the current standings by rank."""
    races = [simulator.referee.race for simulator in heat.simulators]

    def order(k: int) -> tuple[int, float, int]:
        race = races[k]
        began_t = race.go_t or 0.0 if heat.simulators[k].referee.track.clock == "go" else 0.0
        last = (heat.simulators[k].referee.elapsed_s or 0.0) + began_t
        return -len(race.gate_times_s), last, k

    return [
        Standing(
            rank,
            k + 1,
            races[k].status.value,
            races[k].cause,
            len(races[k].gate_times_s),
            len(heat.simulators[k].referee.course),
            heat.simulators[k].referee.elapsed_s,
            heat.contacts(k),
            list(races[k].gate_times_s),
            list(races[k].gate_margins_m),
        )
        for rank, k in enumerate(sorted(range(len(races)), key=order), 1)
    ]


def write_standings(path: Path, heat: Heat) -> None:
    """Write standings and encounters (JSON, pilots from 1), atomically. Raises FileError."""
    touched = [{**asdict(one), "pilots": [k + 1 for k in one.pilots]} for one in heat.encounters]
    rows = [asdict(standing) for standing in standings(heat)]
    write_file(path, json.dumps({"standings": rows, "contacts": touched}, indent=2) + "\n")


class Commentator:
    """Live commentary: gate passages, encounters and ends of runs."""

    def __init__(self, heat: Heat):
        self._heat = heat
        self.forget()

    def forget(self) -> None:
        """Reset for another race."""
        n = len(self._heat.simulators)
        self._passed, self._over, self._touched = [0] * n, [False] * n, 0
        self._first: dict[int, float] = {}  # s, time of the first passage of each gate

    def news(self) -> list[str]:
        """Return the lines for events since the last call."""
        said = []
        for encounter in self._heat.encounters[self._touched :]:
            i, k = (pilot + 1 for pilot in encounter.pilots)
            said.append(f"{encounter.t:8.2f} s  pilots {i} and {k} touch at {encounter.approach_m_s:.1f} m/s")
        self._touched = len(self._heat.encounters)
        for k, simulator in enumerate(self._heat.simulators):
            said += self._gates(k)
            race = simulator.referee.race
            if race.over and not self._over[k]:
                cause = f": {race.cause}" if race.cause else ""
                said.append(f"{simulator.t:8.2f} s  pilot {k + 1} {race.status.value}{cause}")
            self._over[k] = race.over
        return said

    def _gates(self, k: int) -> list[str]:
        simulator, said = self._heat.simulators[k], list[str]()
        race, total = simulator.referee.race, len(simulator.referee.course)
        for gate in range(self._passed[k], len(race.gate_times_s)):
            t = race.gate_times_s[gate] + (race.go_t or 0.0)
            behind = t - self._first.setdefault(gate, t)
            gap = f", {behind:.3f} s behind" if behind > 0 else ""
            said.append(f"{t:8.2f} s  pilot {k + 1} gate {gate + 1}/{total} at {race.gate_times_s[gate]:.3f} s{gap}")
        self._passed[k] = len(race.gate_times_s)
        return said
