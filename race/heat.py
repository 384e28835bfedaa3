"""The lock-step driver of a race of several: pilots and simulators in one process, tick by tick, deterministic for a seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gate_racer.link.messages import Arm
from gate_racer.pilot.lockstep import steps
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import Verdict
from gate_racer.race.embedded import referees_verdict
from gate_racer.race.lockstep import EmbeddedLink
from gate_racer.race.perception import LockstepPerception
from gate_racer.sim.heat import Heat
from gate_racer.sim.report import report


@dataclass(frozen=True, slots=True)
class HeatPilot:
    """Pilot of one of a heat's vehicles, its camera and its log."""

    pilot: AnyPilot
    eye: LockstepPerception
    recorder: Recorder


def fly_heat(heat: Heat, entries: Sequence[HeatPilot], tell: Callable[[Heat], None]) -> list[Verdict]:
    """Fly until every pilot is done; a pilot that is done earlier disarms, falls, and remains an obstacle.

    Args:
        entries: one for each of the heat's vehicles, in their order.
        tell: called after each tick.
    """
    flights = []
    for simulator, entry in zip(heat.simulators, entries, strict=True):
        link = EmbeddedLink(simulator, entry.eye)
        flights.append(steps(entry.pilot, heat.profile, link, entry.recorder, lambda _: None, []))
    done = [False] * len(flights)
    while not all(done):
        for k, flight in enumerate(flights):
            if not done[k] and next(flight, True):
                done[k] = True
                heat.simulators[k].command(Arm(False))
            if done[k]:
                heat.simulators[k].tick()
        heat.settle()
        tell(heat)
    return [
        referees_verdict(report(simulator), entry.pilot)
        for simulator, entry in zip(heat.simulators, entries, strict=True)
    ]
