"""Trial of a plan: flights by the nominal controller on the vehicle's grey-box plant, on the true state and by camera."""

import sys

import numpy as np

from gate_racer.mpc.names import CONTOURING, TRACKING
from gate_racer.planner.certificate.replay import clearances
from gate_racer.planner.models import V
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import Task
from gate_racer.planner.trial import Trial, needed_m
from gate_racer.vehicle.rotation import Array

SEEDS = (7001, 7002, 7003)  # of the flights by camera; those of campaigns and tests begin at 0 (chosen)
SPACING_M = 0.02  # m, largest spacing of the points of a path whose distance to solids is taken


def fly_trial(plan: Plan, task: Task) -> Trial | None:
    """Fly a plan on the vehicle's own plant until a flight fails: once on the true state, then by projected camera.

    None if that plant is the plan's model, or the plan does not begin on the pad. Slots are flown on the true state alone, by the
    controller that holds the plan's attitude.
    """
    vehicle, track, options = task.vehicle, task.track, task.options
    if not vehicle.grey_box or options.start is not None or options.flying_lap:
        return None
    # Slow to load: simulator and controller.
    from gate_racer.estimation.registry import DEFAULT
    from gate_racer.race.campaign.case import Case
    from gate_racer.race.campaign.choice import NO_ESTIMATOR, PreparedCourse
    from gate_racer.race.campaign.flight import NoLog, fly

    course = PreparedCourse(track, vehicle, plan, tuple(plan.passage_times_s(track)), None, None)
    slots = any(map(task.is_slot, task.gates))
    seen, controller = any(gate.visible for gate in task.gates) and not slots, TRACKING if slots else CONTOURING
    flights = [("3", NO_ESTIMATOR, 0)] + [("projected", DEFAULT, seed) for seed in SEEDS if seen]
    speed_m_s = float(np.linalg.norm(plan.x[:, V], axis=1).max())
    trial = Trial(0, len(task.gates), needed_m(task), options.reserve, speed_m_s)
    for number, (setting, estimator, seed) in enumerate(flights):
        if sys.stderr.isatty():
            print(f"\r  trial flight {number + 1} of {len(flights)}   ", end="", file=sys.stderr, flush=True)
        flown = fly(Case(track.name, vehicle.name, plan.laps, setting, controller, estimator, seed), course, NoLog())
        outcome = flown.outcome
        margins = [
            m for m, gate in zip(outcome.margin_m, task.gates, strict=False) if not (gate.is_ball or task.is_slot(gate))
        ]
        cause = "" if outcome.finished else outcome.cause or outcome.status
        by = f" by camera, seed {seed}" if estimator != NO_ESTIMATOR else ""
        trial = trial.then(len(outcome.gate_s), margins, clearance_m(task, flown.path[:, 1:4]), cause, by)
        if not trial.ok:
            break
    return trial


def clearance_m(task: Task, p_w: Array) -> float | None:
    """Return the least distance, m, from a path (M, 3) m to an obstacle or a gate's stand; None where there is none."""
    if len(p_w) < 2:
        return None
    steps = np.linalg.norm(np.diff(p_w, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    fine = np.linspace(0.0, along[-1], int(along[-1] / SPACING_M) + 2)
    path = np.column_stack([np.interp(fine, along, axis) for axis in p_w.T])
    return min((near.distance_m for near in clearances(task.track, path) if not near.frame), default=None)
