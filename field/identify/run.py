"""`identify-vehicle`: from flight logs to a vehicle file."""

import argparse
import contextlib
from pathlib import Path

import numpy as np

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.files import write_figure
from gate_racer.common.settings import settings_of
from gate_racer.field.files import identified, write_vehicle
from gate_racer.field.identify.cli import IdentificationSettings
from gate_racer.field.identify.fit import Fit, identify
from gate_racer.field.identify.regression import AXES
from gate_racer.field.identify.signals import STEP_S, read_signals
from gate_racer.link.logs.samples import SignalError
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import FOLDER, Vehicle, load_vehicle

# m/s, error of the held-out velocity after 0.5 s from which drag proportional to the speed, as of rotors, is tried (chosen);
# share of it that is left where it is taken: the flown drag of `dcl` and the Hummingbird of RotorPy are told apart.
UNEXPLAINED_M_S, BETTER = 0.1, 0.8


def run(arguments: argparse.Namespace) -> int:
    """Fit the logs, write the vehicle's file and a plot, and return the exit code. Raises UserError for unusable logs."""
    settings = settings_of(arguments, IdentificationSettings)
    base, out = load_vehicle(settings.base), settings.out
    outputs = out, out.with_suffix(".png"), arguments.json
    require_outputs(outputs, *arguments.logs, settings.base, FOLDER / f"{settings.base}.yaml")
    logs = [read_signals(path) for path in arguments.logs]
    for log in logs:
        cuts = ", ".join(f"{cut.seconds:.1f} s {cut.reason}" for cut in log.cuts if cut.mask.any())
        used = [f"{log.valid.sum() * STEP_S:.1f} s are used; cut are {cuts}"] if cuts else []
        for note in (*log.notes, *used):
            remark(f"{log.source}: {note}")
    fit = identify(logs, settings.linear_drag)
    other = fit
    if not settings.linear_drag and fit.predicted.velocity_m_s > UNEXPLAINED_M_S:
        with contextlib.suppress(SignalError):
            other = identify(logs, True)
        if other.predicted.velocity_m_s < BETTER * fit.predicted.velocity_m_s:
            fit = other
            remark("drag proportional to the speed explains the motion much better, and is fitted too")
    print(table(fit))
    names = ", ".join(path.name for path in arguments.logs)
    source = f"Fitted to {names}; parameters that the logs do not excite are those of {base.name}."
    vehicle = identified(fit, base, out.stem, source)
    write_vehicle(out, vehicle)
    draw_fit(out.with_suffix(".png"), fit, base)
    print(f"hover at throttle {vehicle.throttle.throttle(GRAVITY):.3f}")
    write_json(arguments.json, fit)
    remark(f"wrote {out} and {out.with_suffix('.png').name}")
    return 0


def table(fit: Fit) -> str:
    """Return all fitted parameters, a line each, with 95 % bounds, and what tests them."""
    at = f" at {fit.battery.reference_v:.1f} V" if fit.battery else ""
    lines = [f"thrust at {u:5.3f}   {c} m/s^2{at}" for u, c in zip(fit.throttle, fit.thrust_m_s2, strict=True)]
    if fit.battery:
        assumed = " (the exponent is assumed)" if fit.battery.assumed else ""
        scale = f"(U / {fit.battery.reference_v:.1f} V)^{fit.battery.exponent:.2f}"
        lines.append(f"battery           throttle * {scale}{assumed}")
    for axis, drag in zip("xyz", fit.drag_linear_1_s or (), strict=False):
        lines.append(f"drag {axis}            {drag} 1/s")
    lines.append(f"drag              {fit.drag_quadratic_1_m or 'unknown'} 1/m")
    for what, interval in (("delay", fit.timing.delay), ("lag", fit.timing.lag), ("delay + lag", fit.timing.total)):
        lines.append(f"{what:17s} {interval}")
    for axis, rate in zip(AXES, fit.rates, strict=True):
        lag = f", lag {rate.lag_s.value * 1e3:.0f} +- {rate.lag_s.half_width * 1e3:.1f} ms" if rate.lag_s else ""
        lines.append(f"{axis:5s} rate gain   {rate.gain or 'unknown'}{lag}")
    lines += _tested(fit)
    lines += [f"doubt:            {note}" for note in fit.notes]
    lines += [f"missing:          {one}" for one in fit.wanted]
    return "\n".join(lines)


def _tested(fit: Fit) -> list[str]:
    """Return how well the fit explains and predicts, and whether the logs agree."""
    lines, p = [f"residual          {fit.residual_m_s2:.3f} m/s^2"], fit.predicted
    if p.starts:
        still = f"{p.steady_velocity_m_s:.3f} m/s and {p.steady_position_m:.3f} m"
        ahead = f"{p.step_m_s:.4f} m/s one step ahead; 0.5 s ahead {p.velocity_m_s:.3f} m/s and {p.position_m:.3f} m"
        lines.append(f"held out          {ahead} (constant velocity {still})")
    delays = dict(fit.timing.by_log)
    for one in fit.scales:
        scale, late = one.scale, f"; delay {delays[one.log].bounds}" if one.log in delays else ""
        told = f"thrust {scale.value:.3f} +- {scale.half_width:.3f} of the common curve{late}"
        lines.append(f"{Path(one.log).name}: {told}")
    if fit.spread:
        differs = f"thrust differs by {fit.spread:.1%} between them (one sigma)"
        lines.append(f"the logs disagree: {differs}; bounds are widened by that")
    return lines


def draw_fit(path: Path, fit: Fit, base: Vehicle) -> None:
    """Write the thrust curve with its 95 % bounds, and measured and fitted force, as PNG."""
    from matplotlib.figure import Figure  # which takes longer to load than the fit

    figure = Figure(figsize=(10, 12))
    axes = figure.subplots(4, 1, height_ratios=[2, 1, 1, 1])
    figure.subplots_adjust(left=0.08, right=0.97, bottom=0.05, top=0.97, hspace=0.2)
    values, widths = zip(*((point.value, point.half_width) for point in fit.thrust_m_s2), strict=True)
    axes[0].errorbar(fit.throttle, values, widths, marker="o", label="fitted, 95 %")
    axes[0].plot(base.throttle.command, base.throttle.thrust_m_s2, "--", label=base.name)
    axes[0].set(xlabel="throttle", ylabel="thrust [m/s²]")
    axes[0].legend()
    samples = np.arange(len(fit.t)) * (fit.t[1] - fit.t[0])
    for axis, i, name in zip(axes[1:], range(3), "xyz", strict=True):
        axis.plot(samples, fit.measured_b[:, i], linewidth=0.8, label="measured")
        axis.plot(samples, fit.predicted_b[:, i], linewidth=0.8, label="fitted")
        axis.set(ylabel=f"force {name} [m/s²]")
    axes[1].legend(loc="upper right")  # the best place would be searched over every sample
    axes[3].set(xlabel="time [s], logs concatenated")
    for axis in axes:
        axis.grid(alpha=0.3)
    write_figure(path, figure)
