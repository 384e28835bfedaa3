"""`identify-vehicle`: from flight logs to a vehicle file."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.command import add_common, perform, remark, write_json
from gate_racer.common.files import require_output
from gate_racer.common.settings import add_settings, key, settings_of
from gate_racer.field.files import identified, write_vehicle
from gate_racer.field.identify.fit import Estimate, Fit, identify
from gate_racer.field.identify.signals import read_signals
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import FOLDER, load_vehicle

OPTIONS = {"records": {"--out": "out"}}
MOVED = {"--name": "--out NAME.yaml"}  # former options


@dataclass(frozen=True)
class IdentificationSettings:
    """Settings of `identify-vehicle`."""

    base: str = key("dcl", "vehicle that supplies all other parameters")
    linear_drag: bool = key(False, "also fit drag proportional to speed")
    out: Path = key(Path("identified.yaml"), "file to write, whose name the vehicle gets", "NAME.yaml")

    def __post_init__(self) -> None:
        if self.out.suffix != ".yaml":
            raise ValueError(f"out {self.out}: a vehicle file ends in .yaml")


def parser() -> argparse.ArgumentParser:
    """Return the command line of `identify-vehicle`."""
    arguments = argparse.ArgumentParser(
        prog="identify-vehicle", description="Fit thrust curve, drag, delay and lags to flight logs."
    )
    arguments.add_argument(
        "logs", nargs="+", type=Path, help="MCAP, CSV (t, throttle, v_z, ...), .ulg, .bbl, .tlog, .bin"
    )
    add_settings(arguments, IdentificationSettings(), OPTIONS, MOVED, file=False)
    add_common(arguments, "the fitted parameters, with 95 % half widths")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Fit the logs, write the vehicle's file and a plot, and return the exit code. Raises UserError for unusable logs."""
    settings = settings_of(arguments, IdentificationSettings)
    base, out = load_vehicle(settings.base), settings.out
    for output in (out, out.with_suffix(".png"), *filter(None, [arguments.json])):
        require_output(output, *arguments.logs, settings.base, FOLDER / f"{settings.base}.yaml")
    logs = [read_signals(path) for path in arguments.logs]
    for log in logs:
        if log.note:
            remark(f"{log.source}: {log.note}")
    fit = identify(logs, settings.linear_drag)
    print(table(fit))
    names = ", ".join(path.name for path in arguments.logs)
    vehicle = identified(
        fit,
        base,
        out.stem,
        f"Fitted to {names}; parameters that the logs do not excite are those of {base.name}.",
    )
    write_vehicle(out, vehicle)
    from gate_racer.field.identify.plot import draw_fit  # matplotlib takes longer to import than the fit takes

    draw_fit(out.with_suffix(".png"), fit, base)
    print(f"hover at throttle {vehicle.throttle.throttle(GRAVITY):.3f}")
    write_json(arguments.json, fit)
    remark(f"wrote {out} and {out.with_suffix('.png').name}")
    return 0


def table(fit: Fit) -> str:
    """Return all fitted parameters, a line each, with 95 % half widths."""
    lines = [f"thrust at {u:5.3f}   {_formatted(c)} m/s^2" for u, c in zip(fit.throttle, fit.thrust_m_s2, strict=True)]
    for axis, drag in zip("xyz", fit.drag_linear_1_s or (), strict=False):
        lines.append(f"drag {axis}            {_formatted(drag)} 1/s")
    lines.append(f"drag              {_formatted(fit.drag_quadratic_1_m)} 1/m")
    lines.append(f"delay, lag        {fit.delay_s * 1e3:.1f} ms, {fit.thrust_lag_s * 1e3:.1f} ms")
    for axis, gain, lag in zip(("roll", "pitch", "yaw"), fit.rate_gain, fit.rate_lag_s, strict=True):
        lines.append(f"{axis:5s} rate gain   {_formatted(gain)}" + (f", lag {lag * 1e3:.1f} ms" if lag else ""))
    lines.append(f"residual          {fit.residual_m_s2:.3f} m/s^2 fitted, {fit.hold_out_m_s2:.3f} m/s^2 held out")
    return "\n".join(lines + [f"missing:          {wanted}" for wanted in fit.wanted])


def _formatted(estimate: Estimate | None) -> str:
    return "unknown" if estimate is None else f"{estimate.value:.4g} +- {estimate.half_width:.2g}"


def main() -> None:
    """Run `identify-vehicle` and exit with its code."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
