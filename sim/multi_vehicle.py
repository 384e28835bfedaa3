"""Several simulators on one clock in one world, coupled by contacts, sight and wakes, and their ranking: by gates passed, then
by the time of the last passage on the common clock.

Each vehicle has its own plant, sensors, referee and link. After every tick of all vehicles `settle` resolves the contacts
between bodies and updates what each vehicle observes of the others.
"""

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from gate_racer.link.messages import Arm
from gate_racer.link.profile import Profile
from gate_racer.sim.physics.contact import ColliderKind, Contact
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.traffic import CollidingBody, Traffic, TrafficView, impact, rotors_of
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import SPACING_M, place

APART_S = 0.25  # s without contact after which the next contact of a pair counts as another encounter
NEXT_SEED = 1000  # offset between the seeds of consecutive vehicles


@dataclass(frozen=True, slots=True)
class Encounter:
    """Encounter of two vehicles: one or more contacts in close succession."""

    t: float  # s, simulator clock
    pilots: tuple[int, int]  # from 0
    approach_m_s: float  # at the first contact
    impulse: float  # kg m/s at the first contact, or m/s (per mass) where a mass is unknown


@dataclass(frozen=True, slots=True)
class MultiVehicleSetup(RunSetup):
    pilots: int = 1
    spacing_m: float = SPACING_M
    rotor_radius_m: float = 0.0  # radius of the rotors whose wake is simulated; 0: none
    publish_states: bool = False  # whether each pilot receives the states of the others
    ahead_m: float = 0.0  # head start of the first vehicle over the others


class MultiVehicleRace:
    """Race of several vehicles. Deterministic for a seed; vehicle i (from 0) has the noise of seed + 1000 i."""

    def __init__(self, world: World, profile: Profile, seed: int, setup: MultiVehicleSetup):
        """Place copies of the world's vehicle side by side at its start. Raises UserError for a place outside the bounds, and as
        `Simulator`."""
        n = setup.pilots
        self.traffic = Traffic(world.vehicle, rotors_of(world.vehicle, setup.rotor_radius_m), setup.publish_states)
        self.worlds = []
        for k in range(n):
            grid = k + 1, n, setup.spacing_m, 0.0 if k else setup.ahead_m
            self.worlds.append(replace(world, track=place(world.track, *grid), published=place(world.published, *grid)))
        self.seeds = [seed + NEXT_SEED * k for k in range(n)]
        self.simulators = [
            Simulator(here, profile, own, setup, TrafficView(self.traffic, k) if n > 1 else None)
            for k, (here, own) in enumerate(zip(self.worlds, self.seeds, strict=True))
        ]
        self.profile, self.encounters = profile, list[Encounter]()
        self._touched: dict[tuple[int, int], float] = {}  # s, time of the last contact of each pair
        self._ready()

    @property
    def t(self) -> float:  # s, on the common clock
        return self.simulators[0].t

    @property
    def over(self) -> bool:
        return all(simulator.referee.race.over for simulator in self.simulators)

    def settle(self) -> None:
        """Resolve contacts after a tick of every vehicle, update the traffic, and release GO once all clients are present."""
        for i, simulator in enumerate(self.simulators):
            if self._resets[i] != simulator.resets:  # it was moved, not flown
                self.traffic.truths[i] = simulator.truth
        for pair in combinations(range(len(self.simulators)), 2):
            self._meet(*pair)
        self._observe()
        if any(simulator.waits for simulator in self.simulators):
            self._gather()

    def reset(self) -> None:
        for simulator in self.simulators:
            simulator.reset()
        self._ready()

    def _ready(self) -> None:
        self.encounters.clear()
        self._touched.clear()
        for simulator in self.simulators:
            simulator.waits, simulator.ready = len(self.simulators) > 1, False
        self._observe()

    def _observe(self) -> None:
        self.traffic.truths = [simulator.truth for simulator in self.simulators]
        self._resets = [simulator.resets for simulator in self.simulators]

    def _gather(self) -> None:
        """Hold the start until every client is present; then set the same GO for all."""
        counts_down = self.profile.race is not None
        if not all(s.ready or s.clock.go_t is not None for s in self.simulators):
            for simulator in self.simulators:
                simulator.clock.wait(simulator.t)
            return
        go_t = max(s.clock.go_t or 0.0 for s in self.simulators)
        for simulator in self.simulators:
            simulator.waits = False
            if counts_down:
                simulator.clock.go_t = go_t
            else:
                simulator.command(Arm(True))

    def _meet(self, i: int, k: int) -> None:
        def mover(j: int) -> CollidingBody:
            one = self.simulators[j]
            return CollidingBody(one.plant.body, self.traffic.truths[j].p_wb, one.truth.x[:13], one.landed)

        hit = impact(mover(i), mover(k), 1 / self.profile.physics_hz)
        if hit is None:
            return
        a, b = self.simulators[i], self.simulators[k]
        a.strike(hit.a, Contact(self.t, ColliderKind.RIVAL, k, hit.impulse))
        b.strike(hit.b, Contact(self.t, ColliderKind.RIVAL, i, hit.impulse))
        racing = any(s.referee.race.status is RunStatus.RUNNING for s in (a, b))
        if racing and self.t - self._touched.get((i, k), -np.inf) > APART_S:
            self.encounters.append(Encounter(self.t, (i, k), hit.approach_m_s, hit.impulse))
        self._touched[i, k] = self.t


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


def standings(race: MultiVehicleRace) -> list[Standing]:
    referees = [simulator.referee for simulator in race.simulators]

    def order(k: int) -> tuple[int, float, int]:
        referee, run = referees[k], referees[k].race
        began_t = run.go_t or 0.0 if referee.track.clock == "go" else 0.0
        return -len(run.gate_times_s), (referee.elapsed_s or 0.0) + began_t, k

    found = []
    for rank, k in enumerate(sorted(range(len(referees)), key=order), 1):
        run, times_s = referees[k].race, list(referees[k].race.gate_times_s)
        contacts = sum(k in encounter.pilots for encounter in race.encounters)
        passed = len(times_s), len(referees[k].course), referees[k].elapsed_s, contacts
        found.append(Standing(rank, k + 1, run.status.value, run.cause, *passed, times_s, list(run.gate_margins_m)))
    return found
