"""Tolerances of the certificate, and its check of a replayed path against the limits of vehicle, track and task."""

import numpy as np

from gate_racer.planner.models import C, P, Q, V, W
from gate_racer.planner.plan import Plan
from gate_racer.planner.task import Task
from gate_racer.vehicle.rotation import Array

# Largest tolerated defects of an interval, by state: difference between integrators, and the solver's tolerance of 1e-6.
TOLERANCES = {"position_m": 1e-5, "velocity_m_s": 1e-3, "attitude_rad": 1e-3, "rates_rad_s": 2e-2, "thrust_m_s2": 2e-2}
BLOCKS = {"position_m": P, "velocity_m_s": V, "attitude_rad": Q, "rates_rad_s": W, "thrust_m_s2": C}
# Largest tolerated deviations of the first and the last node, by state.
END_TOLERANCES = {name: max(tolerance, 1e-3) for name, tolerance in TOLERANCES.items()}
LIMIT_TOLERANCE = 1e-4  # relative, for the optimiser's constraint tolerance
MARGIN_TOLERANCE = 2e-3  # m, of gate margins, clearances and bounds
TURN_TOLERANCE = 1e-2  # relative to the angular acceleration at half thrust
SPEED_TOLERANCE = 1e-3  # relative, for limits that are imposed at the nodes and evaluated between them


def broken_limits(x: Array, plan: Plan, task: Task) -> list[str]:
    """Return a sentence per limit that the path x (M, NX) or the plan's inputs exceed."""
    limits, vehicle, bounds = task.model, task.vehicle, task.track.bounds
    radius = vehicle.contact_radius_m if task.options.bounds_clear else 0.0
    low, high = np.array(bounds.low_m) + radius, np.array(bounds.high_m) - radius
    outside = np.maximum(low - x[:, P], x[:, P] - high)
    outside -= np.maximum(np.maximum(low - x[0, P], x[0, P] - high), 0.0)  # the pad may lie outside these
    span = limits.u_high - limits.u_low
    rate = np.abs(np.array(limits.thrust_rates(plan.x[:-1].T, plan.u[:-1].T, np.diff(plan.t)[None]))).max()
    excesses = {  # limit: (excess, tolerance)
        "input, relative to its range": (
            np.maximum((limits.u_low - plan.u) / span, (plan.u - limits.u_high) / span),
            LIMIT_TOLERANCE,
        ),
        "body rate, relative": (np.abs(x[:, W]) / limits.x_high[W] - 1, LIMIT_TOLERANCE),
        "speed, relative": (np.linalg.norm(x[:, V], axis=1) / limits.speed_max - 1, SPEED_TOLERANCE),
        "thrust rate, relative": (rate / limits.thrust_rate_max - 1, SPEED_TOLERANCE),
        "track bounds, m": (outside, MARGIN_TOLERANCE),
        "quaternion norm": (np.abs(np.linalg.norm(x[:, Q], axis=1) - 1), 1e-6),
    }
    if np.isfinite(limits.slew_max).all():
        turn = np.abs(np.diff(plan.x[:, W], axis=0) / np.diff(plan.t)[:, None] / limits.slew_max).sum(axis=1)
        room = limits.turning(np.maximum(plan.x[:-1, C], plan.x[1:, C]).ravel())
        excesses["angular acceleration, relative to that at half thrust"] = (turn - room, TURN_TOLERANCE)
    largest = {name: (float(np.max(excess)), tolerance) for name, (excess, tolerance) in excesses.items()}
    if "c" in limits.x:
        thrust = x[:, C] / vehicle.thrust_max - 1
        largest["thrust, relative"] = (float(thrust.max()), LIMIT_TOLERANCE)
    return [
        f"limit exceeded by {size:.2g}: {name}" for name, (size, tolerance) in largest.items() if not size <= tolerance
    ]


def broken_ends(plan: Plan, task: Task) -> list[str]:
    """Return sentences on a start or an end that deviates from the task in any state."""
    if task.x0 is None:
        far = _apart(plan.x[0], plan.x[-1])
        return [f"the lap does not end in its initial state: {far}"] if far else []
    failures = []
    if far := _apart(plan.x[0], task.x0):
        failures.append(f"the plan does not begin in the requested initial state: {far}")
    if task.end_m is not None:
        off = np.linalg.norm(plan.x[-1, P] - task.end_m), np.linalg.norm(plan.x[-1, V])
        if not (off[0] <= END_TOLERANCES["position_m"] and off[1] <= END_TOLERANCES["velocity_m_s"]):
            failures.append("the plan does not come to rest at its end")
    return failures


def _apart(a: Array, b: Array) -> str:
    """Return the blocks in which two states (NX,) differ, with the differences; "" if none."""
    found = []
    for name, block in BLOCKS.items():
        if block.stop <= len(a):
            sign = np.sign(a[Q] @ b[Q]) if block == Q else 1.0
            off = float(np.linalg.norm(a[block] - sign * b[block])) * (2.0 if block == Q else 1.0)
            if not off <= END_TOLERANCES[name]:
                found.append(f"{name} by {off:.2g}")
    return ", ".join(found)
