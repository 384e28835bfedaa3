"""Trial of a plan: one flight by the nominal controller, on the true state, on the vehicle's grey-box plant."""

import numpy as np

from gate_racer.planner.models import V
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import Task
from gate_racer.planner.trial import Trial, needed_m


def fly_trial(plan: Plan, task: Task) -> Trial | None:
    """Fly a plan on the vehicle's own plant; None if that is the plan's model, or the plan does not begin on the pad."""
    vehicle, track, options = task.vehicle, task.track, task.options
    if not vehicle.grey_box or options.start is not None or options.flying_lap:
        return None
    # Slow to load: simulator and controller.
    from gate_racer.race.campaign.case import Case
    from gate_racer.race.campaign.choice import NO_ESTIMATOR, PreparedCourse
    from gate_racer.race.campaign.flight import NoLog, fly

    count = len(task.gates)
    course = PreparedCourse(track, vehicle, plan, tuple(plan.passage_times_s(track)), None, None)
    case = Case(track.name, vehicle.name, plan.laps, "3", "mpcc", NO_ESTIMATOR, seed=0)
    outcome = fly(case, course, NoLog()).outcome
    margins = [m for m, gate in zip(outcome.margin_m, task.gates, strict=False) if not gate.is_ball]
    cause = "" if outcome.finished else outcome.cause or outcome.status
    margin_m, speed_m_s = min(margins, default=None), float(np.linalg.norm(plan.x[:, V], axis=1).max())
    return Trial(len(outcome.gate_s), count, margin_m, needed_m(task), cause, options.reserve, speed_m_s)
