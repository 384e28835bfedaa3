"""Preparation of a course, once per campaign folder: plan, bound and observation errors, shared by its cases."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.benchmarks.campaign.case import Case
from gate_racer.benchmarks.campaign.choice import PreparedCourse, plan_options
from gate_racer.benchmarks.campaign.flight import NoLog, fly
from gate_racer.estimation.registry import DEFAULT
from gate_racer.mpc.make import DEFAULT as CONTROLLER
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.planning import find_or_make_plan, plan_path
from gate_racer.sim.physics.observation import ObservationModel
from gate_racer.sim.physics.residual import Residuals
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.files import read_arrays, read_json, reading, write_arrays
from gate_racer.vehicle.rotation import Array, Indices, conjugate, log, product
from gate_racer.vehicle.vehicle import Vehicle

ROLLOUTS = 3  # flights to learn from, as in the paper
ROLLOUT_SEED = 1_000_000  # outside the range of a campaign's seeds


class Estimates(NoLog):
    """Log that stores only estimated and true states, by time."""

    def __init__(self) -> None:
        self.estimated: dict[float, Any] = {}
        self.true: dict[float, Any] = {}

    def write(self, channel: str, t: float, **fields: Any) -> None:
        """Store the state of a record on the channels `state` and `truth`, (p, q, v) by time in s; ignore other channels."""
        if channel in ("state", "truth"):
            kept = self.estimated if channel == "state" else self.true
            kept[round(t, 6)] = (fields["p"], fields["q"], fields["v"])


def prepare(
    track: Track,
    vehicle: Vehicle,
    laps: int,
    noisy: bool,
    folder: Path,
    tell: Callable[[str], None],
    uncertified: bool = False,
    plan_asked: str = "",
    residuals: Residuals | None = None,
) -> PreparedCourse:
    """Prepare plan and bound; with `noisy` the observation errors too.

    Args:
        plan_asked: plan options as in `plan_options`; errors are learned from flights of the default plan in any case.
        residuals: residual acceleration of the plant and, if present, observation errors for noisy settings.

    Raises:
        UserError: no plan can be made, or no flight is available to learn the errors from.
    """
    course = _course(track, vehicle, laps, folder / plan_asked, tell, uncertified, plan_asked)
    errors, acceleration = (residuals.observation, residuals.acceleration) if residuals else (None, None)
    if noisy and errors is None:
        usual = _course(track, vehicle, laps, folder, tell, uncertified, "") if plan_asked else course
        path = plan_path(folder, track, vehicle, PlanOptions(laps=laps))
        errors = _errors(usual, path.with_suffix(f".errors-{usual.plan.hash[:8]}.npz"), laps, tell)
    return replace(course, errors=errors, residual=acceleration)


def _course(
    track: Track,
    vehicle: Vehicle,
    laps: int,
    folder: Path,
    tell: Callable[[str], None],
    uncertified: bool,
    plan_text: str,
) -> PreparedCourse:
    """Prepare the course without observation errors."""
    options = plan_options(plan_text, laps)
    path = plan_path(folder, track, vehicle, options)
    if not path.exists():
        tell(f"planning {path.stem}" + (f", {plan_text}" if plan_text else ""))
    plan = find_or_make_plan(folder, track, vehicle, options, None, uncertified)
    about = read_json(path.with_suffix(".json"))
    with reading(path.with_suffix(".json")):
        return PreparedCourse(track, vehicle, plan, tuple(about["gate_times_s"]), about["point_mass_bound_s"], None)


def _errors(course: PreparedCourse, path: Path, laps: int, tell: Callable[[str], None]) -> ObservationModel:
    """Learn observation errors from vision-only flights, as the paper from real rollouts; the file at `path` keeps them."""
    if not path.exists():
        tell(f"learning observation errors from {ROLLOUTS} vision-only flights: {path.stem}")
        write_arrays(path, ObservationModel.fit(*_rollouts(course, laps, tell)).arrays())
    arrays = read_arrays(path)
    with reading(path, "not a file of observation errors; delete it to learn them again"):
        return ObservationModel.from_arrays(**arrays)


def _rollouts(course: PreparedCourse, laps: int, tell: Callable[[str], None]) -> tuple[Array, Array, Indices]:
    """Return true states (N, 10), errors (N, 9), observed minus true, and flight numbers (N,) of vision-only flights.

    They are flown with the controller's own model, since a flight that ends early has no data on the rest of the course.
    """
    states, errors, flights = [], [], []
    for k in range(ROLLOUTS):
        kept, names = Estimates(), (course.track.name, course.vehicle.name, laps)
        outcome = fly(Case(*names, "projected-1", CONTROLLER, DEFAULT, ROLLOUT_SEED + k), course, kept).outcome
        if not outcome.finished:
            tell(f"a training flight ended after {100 * outcome.share:.0f} % of the course: {outcome.cause}")
        for t in sorted(kept.estimated.keys() & kept.true.keys()):
            (p, q, v), (p_true, q_true, v_true) = kept.estimated[t], kept.true[t]
            states.append([*p_true, *q_true, *v_true])
            errors.append([*(p - p_true), *(v - v_true), *log(product(q, conjugate(q_true)))])
            flights.append(k)
    if len(states) < 2:
        raise UserError(
            f"{course.track.name}, {course.vehicle.name}: no vision-only flight left the pad, so there are no"
            " observation errors to learn; leave out settings 2 and 4"
        )
    return np.array(states), np.array(errors), np.array(flights)
