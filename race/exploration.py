"""An exploration: a flight by sight, from its settings to its log, in every mode of a race."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gate_racer.pilot.build import build_explorer
from gate_racer.pilot.flight import Phase
from gate_racer.pilot.guidance.explorer import NAME, OPEN, parse_room
from gate_racer.pilot.handshake import Preflight
from gate_racer.pilot.live import forgiving, interruptible
from gate_racer.pilot.records.result import live_verdict, world_name
from gate_racer.race.session import Session, flown, keep, log_verdict, recorded


@dataclass(frozen=True)
class FoundGate:
    """One gate that was passed, as estimated in flight."""

    position_m: list[float]  # m from the pad, world NED
    yaw_deg: float


@dataclass(frozen=True)
class Exploration:
    """Stable keys of the JSON."""

    status: str
    cause: str
    gates_passed: int
    gates_seen: int
    time_s: float | None
    gates: list[FoundGate]
    world: dict[str, Any] | None  # None where it is unknown
    settings: dict[str, Any]
    log: str
    troubles: dict[str, str]


def explore(session: Session) -> Exploration:
    """Fly by sight and return the gates found; errors as in `race.session.fly`."""
    # Only the simulator gets the track; logs do not name it, since the pilot has none.
    session = replace(session, track=replace(session.track, name=NAME))
    settings = session.settings
    preflight = Preflight(session.profile, None) if settings.link.check else None
    room = parse_room(settings.explore.room) if settings.explore.room else OPEN
    asked = settings.explore.opening_m, session.manoeuvres, session.seed
    pilot, explorer = build_explorer(session.vehicle, session.profile, *asked, preflight, room)
    with interruptible(pilot):
        with recorded(session, pilot) as recorder:
            verdict = None
            with forgiving(pilot, recorder):
                _, verdict = flown(session, pilot, recorder)
            log_verdict(recorder.log, verdict or live_verdict(pilot, recorder.scoreboard))
        gates = {gate.number: gate for gate in pilot.estimator.landmarks}
        found = [gates[number] for number in explorer.passed if number in gates]
        outcome = Exploration(
            status="explored" if pilot.phase is Phase.FINISHED and explorer.passed else "aborted",
            cause=pilot.cause,
            gates_passed=len(explorer.passed),
            gates_seen=len(gates),
            time_s=pilot.estimator.t - pilot.go_t if pilot.go_t is not None else None,
            gates=[FoundGate(np.round(g.p_w, 3).tolist(), round(float(np.degrees(g.yaw)), 2)) for g in found],
            world=session.described["world"],
            settings=session.described["settings"],
            log=str(recorder.log.path),
            troubles=recorder.troubles,
        )
        keep(session, asdict(outcome))
    return outcome


def summary(outcome: Exploration) -> str:
    lines = [
        f"{outcome.status}: {outcome.cause}; world {world_name(outcome.world)}",
        f"passed {outcome.gates_passed} of {outcome.gates_seen} gates seen",
    ]
    for i, gate in enumerate(outcome.gates):
        place = ", ".join(f"{x:.1f}" for x in gate.position_m)
        lines.append(f"  gate {i}: about ({place}) m from the pad, yaw {gate.yaw_deg:.0f} deg")
    lines += [f"trouble: {sentence}" for sentence in outcome.troubles.values()]
    return "\n".join([*lines, f"log {outcome.log}"])
