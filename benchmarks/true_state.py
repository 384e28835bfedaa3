"""Race on the true state: plant, referee and controller, without camera and IMU, faster than real time.

The plant is that of a world with deviations, as in Sun et al. (T-RO 2022, table V) and Song et al. (Science Robotics 2023):
starts scattered around the pad, delay, thrust, drag, gusts.
"""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from gate_racer.link.messages import AttitudeTarget
from gate_racer.mpc.control import Source
from gate_racer.mpc.controller import Controller
from gate_racer.planner.plan import Plan
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.setting import make_plant, natural
from gate_racer.sim.referee import Referee, RunStatus
from gate_racer.sim.worlds.forces import forces_of
from gate_racer.sim.worlds.world import World
from gate_racer.vehicle.vehicle import Vehicle

PHYSICS_HZ, COMMAND_TICKS = 120.0, 2  # Hz, and ticks between commands: 60 Hz, as on the link
SCATTER_M = 0.25  # m, bound of the start's uniform offset on both horizontal axes
OVERDUE = 1.5  # time limit over the plan's time


@dataclass
class TrueStateFlight:
    """Result of a race. Margins as measured by the referee."""

    status: RunStatus
    cause: str
    time_s: float
    margins_m: list[float]
    errors_m: list[float] = field(default_factory=list)  # distance from the plan, at each command
    step_s: list[float] = field(default_factory=list)  # controller, from state to command
    tick_s: list[float] = field(default_factory=list)  # including the preparation of the next step
    cpu_s: list[float] = field(default_factory=list)  # CPU time of the whole tick, in this thread
    solve_s: list[float] = field(default_factory=list)  # time inside the solver
    fallbacks: int = 0

    @property
    def finished(self) -> bool:
        """Whether the course was finished."""
        return self.status is RunStatus.FINISHED

    @property
    def margin_m(self) -> float:
        """Least gate margin, m; NaN if no gate was passed."""
        return min(self.margins_m, default=float("nan"))

    @property
    def rmse_m(self) -> float:
        """RMS of the distance from the plan, m."""
        return float(np.sqrt(np.mean(np.square(self.errors_m))))


def fly(
    controller: Controller,
    plan: Plan,
    world: World,
    vehicle: Vehicle,
    seed: int,
    scatter: bool = True,
    by_rates: bool = True,
    patience: float = OVERDUE,
) -> TrueStateFlight:
    """Fly one race. `vehicle`: the controller's model; `by_rates`: body-rate instead of attitude commands.

    The race ends as a timeout after `patience` times the plan's time.
    """
    rng = np.random.default_rng(seed)
    track, flown = world.track, world.vehicle
    start = track.start
    if scatter:
        x, y, z = start.position_m
        dx, dy = rng.uniform(-SCATTER_M, SCATTER_M, 2)
        start = replace(start, position_m=(x + dx, y + dy, z))
    limit_s = patience * plan.total_time
    plant = make_plant(flown, start, natural(flown), Colliders(track), forces_of(world, seed))
    referee = Referee(track, plan.laps, limit_s)
    plant.armed = True
    referee.go(0.0)
    flight = TrueStateFlight(RunStatus.RUNNING, "", limit_s, [])
    count, dt = 0, COMMAND_TICKS / PHYSICS_HZ
    while not referee.race.over:
        t = count / PHYSICS_HZ
        if count % COMMAND_TICKS == 0:
            begin, busy = time.perf_counter(), time.thread_time()
            control = controller.step(t, plant.truth.x, dt)
            flight.step_s.append(control.step_s)
            controller.prepare()
            flight.cpu_s.append(time.thread_time() - busy)
            flight.tick_s.append(time.perf_counter() - begin)
            flight.solve_s.append(control.solve_s)
            flight.fallbacks += control.source is not Source.SOLVED
            flight.errors_m.append(controller.reference.distance(control.theta, plant.truth.p_wb))
            throttle = vehicle.throttle.throttle(control.u[3])
            omega = tuple(control.u[:3]) if by_rates else (0.0, 0.0, 0.0)
            plant.command(t, AttitudeTarget(tuple(control.q_wb), omega, throttle, by_rates))
        count += 1
        contacts = plant.advance(count / PHYSICS_HZ)
        referee.watch(plant.truth, contacts)
    race = referee.race
    flight.status, flight.cause, flight.margins_m = race.status, race.cause, race.gate_margins_m
    if flight.finished:
        flight.time_s = race.gate_times_s[-1]
    return flight
