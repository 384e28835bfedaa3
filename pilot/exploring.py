"""`run-mpc --explore`: a flight by sight from its settings to its log, in any of the ways in which races are flown."""

from dataclasses import replace
from typing import Any

import numpy as np

from link.options import Link
from pilot.ending import forgiving, interruptible
from pilot.explorer import NAME, Explorer, make_explorer
from pilot.flight import Phase
from pilot.recorder import Recorder
from pilot.result import live_verdict, world_name
from pilot.session import Session, flown, keep, log_verdict, recorded


def explore(session: Session, opening_m: float, mode: str, link: Link) -> dict[str, Any]:
    """Flies by sight and returns what was found; arguments and errors as of `pilot.session.fly`."""
    # The simulator gets the track; logs do not tell its name, since nobody has been told.
    session = replace(session, track=replace(session.track, name=NAME))
    pilot = make_explorer(session.vehicle, session.profile, opening_m, session.manoeuvres, session.seed)
    with interruptible(pilot):
        with recorded(session, pilot, mode) as recorder:
            verdict = None
            with forgiving(pilot, recorder):
                _, verdict = flown(session, pilot, mode, link, recorder)
            log_verdict(recorder, verdict or live_verdict(pilot, recorder.scoreboard))
        outcome = _found(session, pilot, recorder)
        keep(session, outcome)
    return outcome


def _found(session: Session, pilot: Explorer, recorder: Recorder) -> dict[str, Any]:
    gates = {gate.number: gate for gate in pilot.map.landmarks}
    found = [gates[number] for number in pilot.passed if number in gates]
    return {
        "status": "explored" if pilot.phase is Phase.FINISHED and pilot.passed else "aborted",
        "cause": pilot.reason,
        "gates_passed": len(pilot.passed),
        "gates_seen": len(gates),
        "time_s": pilot.estimator.t - pilot.go_t if pilot.go_t is not None else None,
        "gates": [
            {"position_m": np.round(gate.p_w, 3).tolist(), "yaw_deg": round(float(np.degrees(gate.yaw)), 2)}
            for gate in found
        ],
        "world": session.described_world,
        "log": str(recorder.path),
        "troubles": recorder.troubles,
    }


def summary(outcome: dict[str, Any]) -> str:
    """What was found, for people."""
    lines = [
        f"{outcome['status']}: {outcome['cause']}; world {world_name(outcome['world'])}",
        f"flown through {outcome['gates_passed']} of the gates seen",
    ]
    lines += [
        f"  gate {i}: about ({', '.join(f'{x:.1f}' for x in gate['position_m'])}) m from the pad, yaw {gate['yaw_deg']:.0f} deg"
        for i, gate in enumerate(outcome["gates"])
    ]
    lines += [f"trouble: {sentence}" for sentence in outcome["troubles"].values()]
    return "\n".join([*lines, f"log {outcome['log']}"])
