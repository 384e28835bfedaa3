"""Vehicle files from fits: fitted parameters replace those of the base vehicle, and a YAML file stores them."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.field.identify.fit import Fit
from gate_racer.vehicle.config import write
from gate_racer.vehicle.vehicle import ThrottleCurve, Vehicle

RISE_M_S2 = 1e-3  # m/s^2, least step of a thrust curve between knots, so that it is invertible


def identified(fit: Fit, base: Vehicle, name: str, source: str) -> Vehicle:
    """Return the base vehicle with all fitted parameters."""
    rate_lag = tuple(lag or kept for lag, kept in zip(fit.rate_lag_s, base.rate_lag_s, strict=True))
    linear, quadratic = fit.drag_linear_1_s, fit.drag_quadratic_1_m
    return replace(
        base,
        name=name,
        source=source,
        throttle=_curve(fit, base.throttle),
        thrust_lag_s=fit.thrust_lag_s,
        command_delay_s=fit.delay_s,
        rate_lag_s=(rate_lag[0], rate_lag[1], rate_lag[2]),
        drag_linear_1_s=(linear[0].value, linear[1].value, linear[2].value) if linear else base.drag_linear_1_s,
        drag_quadratic_1_m=quadratic.value if quadratic else base.drag_quadratic_1_m,
    )


def _curve(fit: Fit, base: ThrottleCurve) -> ThrottleCurve:
    """Return the fitted knots; beyond them the base curve, scaled to meet the nearest knot."""
    knots, thrust = np.array(fit.throttle), np.array([point.value for point in fit.thrust_m_s2])
    ends = []
    for u in (0.0, 1.0):
        if u not in knots:
            near = int(np.abs(knots - u).argmin())
            ends.append((u, base.thrust(u) * thrust[near] / max(base.thrust(knots[near]), RISE_M_S2)))
    command, force = zip(*sorted([*ends, *zip(knots.tolist(), thrust.tolist(), strict=True)]), strict=True)
    rising = np.maximum.accumulate(np.array(force) - RISE_M_S2 * np.arange(len(force))) + RISE_M_S2 * np.arange(
        len(force)
    )
    return ThrottleCurve(tuple(command), tuple(round(max(0.0, c), 4) for c in rising.tolist()))


def write_vehicle(path: Path, vehicle: Vehicle) -> None:
    """Write the YAML file for `load_vehicle`."""
    write_yaml(path, asdict(vehicle))


def write_yaml(path: Path, fields: dict[str, Any]) -> None:
    """Write fields to a file for the strict loader: numbers with six digits, no absent values."""
    write(path, _rounded(fields))


def _rounded(value: Any) -> Any:
    """Round numbers to six digits."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
