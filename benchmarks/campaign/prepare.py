"""What the cases of a track and vehicle share, made once and kept in the campaign's folder: plan, bound, observation errors."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.campaign.case import Case
from benchmarks.campaign.choice import PreparedCourse, plan_options
from benchmarks.campaign.flight import NoLog, fly
from estimation.registry import DEFAULT
from mpc.make import DEFAULT as CONTROLLER
from planner.options import PlanOptions
from planner.planning import find_or_make_plan, plan_path
from sim.physics.gaussian_process import Indices
from sim.physics.observation import ObservationModel
from sim.physics.residual import Residuals
from tracks.track import Track
from vehicle.errors import UserError
from vehicle.files import read_arrays, read_json, reading, write_arrays
from vehicle.rotation import Array, conjugate, log, product
from vehicle.vehicle import Vehicle

ROLLOUTS = 3  # as many as the paper's
ROLLOUT_SEED = 1_000_000  # far from any that a campaign counts up to


class Estimates(NoLog):
    """Keeps the states that the pilot believed in and those that were true, by time."""

    def __init__(self) -> None:
        self.believed: dict[float, Any] = {}
        self.true: dict[float, Any] = {}

    def write(self, channel: str, t: float, **fields: Any) -> None:
        if channel in ("state", "truth"):
            kept = self.believed if channel == "state" else self.true
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
    """Plan and bound; with `noisy` the observation errors too.

    Args:
        plan_asked: as `plan_options` reads it; errors are learned from flights of the usual plan all the same.
        residuals: their acceleration flies along, and their errors, if they have any, are those of noisy settings.

    Raises:
        UserError: no plan can be made, or no flight that the errors could be learned from.
    """
    course = _course(track, vehicle, laps, folder / plan_asked, tell, uncertified, plan_asked)
    errors, acceleration = (residuals.observation, residuals.acceleration) if residuals else (None, None)
    if noisy and errors is None:
        usual = _course(track, vehicle, laps, folder, tell, uncertified, "") if plan_asked else course
        errors = _errors(usual, plan_path(folder, track, vehicle, PlanOptions(laps=laps)), laps, tell)
    return replace(course, errors=errors, residual=acceleration)


def _course(
    track: Track,
    vehicle: Vehicle,
    laps: int,
    folder: Path,
    tell: Callable[[str], None],
    uncertified: bool,
    asked: str,
) -> PreparedCourse:
    """Without observation errors."""
    options = plan_options(asked, laps)
    path = plan_path(folder, track, vehicle, options)
    if not path.exists():
        tell(f"planning {path.stem}" + (f", {asked}" if asked else ""))
    plan = find_or_make_plan(folder, track, vehicle, options, None, uncertified)
    about = read_json(path.with_suffix(".json"))
    with reading(path.with_suffix(".json")):
        return PreparedCourse(track, vehicle, plan, tuple(about["gate_times_s"]), about["point_mass_bound_s"], None)


def _errors(course: PreparedCourse, plan: Path, laps: int, tell: Callable[[str], None]) -> ObservationModel:
    """Learned from vision-only flights of the course, as the paper learns from real rollouts, and kept beside its plan."""
    path = plan.with_suffix(".errors.npz")
    if not path.exists():
        tell(f"learning observation errors from {ROLLOUTS} vision-only flights: {path.stem}")
        write_arrays(path, ObservationModel.fit(*_rollouts(course, laps, tell)).arrays())
    arrays = read_arrays(path)
    with reading(path, "no observation errors; delete it, and they are learned anew"):
        return ObservationModel.from_arrays(**arrays)


def _rollouts(course: PreparedCourse, laps: int, tell: Callable[[str], None]) -> tuple[Array, Array, Indices]:
    """True states (N, 10), errors (N, 9), observed minus true, and the number (N,) of the flight.

    Of the controller's own model, since a flight that ends early teaches nothing of the rest of the course.
    """
    states, errors, flights = [], [], []
    for k in range(ROLLOUTS):
        kept, names = Estimates(), (course.track.name, course.vehicle.name, laps)
        outcome = fly(Case(*names, "projected-1", CONTROLLER, DEFAULT, ROLLOUT_SEED + k), course, kept).outcome
        if not outcome.finished:
            tell(f"a flight to learn from ended after {100 * outcome.share:.0f} % of the course: {outcome.cause}")
        for t in sorted(kept.believed.keys() & kept.true.keys()):
            (p, q, v), (p_true, q_true, v_true) = kept.believed[t], kept.true[t]
            states.append([*p_true, *q_true, *v_true])
            errors.append([*(p - p_true), *(v - v_true), *log(product(q, conjugate(q_true)))])
            flights.append(k)
    if len(states) < 2:
        raise UserError(
            f"{course.track.name}, {course.vehicle.name}: not one vision-only flight leaves the pad, so there are no"
            " observation errors to learn; leave settings 2 and 4 out"
        )
    return np.array(states), np.array(errors), np.array(flights)
