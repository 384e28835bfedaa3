"""Plot of a plan: top and side view coloured by speed, and profiles over time."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import SubFigure

from gate_racer.common.files import write_figure
from gate_racer.planner.plan import Plan
from gate_racer.planner.uncertainty.risk import FlightRisk, GateRisk
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

SIGMAS = 3.0  # standard deviations drawn around a crossing
PANELS, PANEL_IN = 8, 1.9  # crossings per row; inches, height of a row
# Fixed layout of a figure with five rows, since matplotlib's automatic layout takes as long as all of the drawing.
MARGINS = {"left": 0.07, "right": 0.88, "bottom": 0.04, "top": 0.96, "hspace": 0.3}
VIEWS = ((0, 1, "x north [m]", "y east [m]"), (0, 2, "x north [m]", "z down [m]"))


def view_heights(track: Track) -> Array:
    """Return the heights (2,) of the two views of a course over that of a profile: as the gates extend, within limits."""
    gates = np.array([track.start.position_m, *(gate.p_wg for gate in track.gates)])
    span_m = 1 + np.ptp(gates, axis=0)[[j for _, j, _, _ in VIEWS]]
    return np.asarray(6 * np.clip(span_m / span_m.sum(), 0.3, 0.7))


def draw_course(axes: Axes, track: Track, i: int, j: int) -> None:
    """Draw solids, openings (thick) and frames (thin) of all gates, projected on world axes i and j."""
    for solid in track.obstacles:
        low, size = np.array(solid.low_m)[[i, j]], np.subtract(solid.high_m, solid.low_m)[[i, j]]
        axes.add_patch(plt.Rectangle(tuple(low), *size, color="0.8", zorder=0))
    for number, gate in enumerate(track.gates):
        if gate.is_ball:
            axes.add_patch(plt.Circle((gate.p_wg[i], gate.p_wg[j]), gate.half, fill=False, color="tab:red"))
        else:
            rings = [(gate.p_wg + gate.outline_m @ gate.R_wg[:, 1:].T, 3.0)]
            for corners, width in [*rings, *([(gate.corners(gate.outer_m), 1.0)] if gate.has_frame else [])]:
                ring = np.vstack([corners, corners[:1]])
                axes.plot(ring[:, i], ring[:, j], color="tab:red", linewidth=width)
        at = gate.p_wg[i], gate.p_wg[j]
        axes.annotate(str(number), at, textcoords="offset points", xytext=(6, 6), color="tab:red")


def draw_views(axes: Sequence[Axes], track: Track, p: Array, speed: Array, planned: Array | None = None) -> None:
    """Draw top and side view of a course and a path p (M, 3), m, coloured by speed (M,), m/s, and a planned one (N, 3) dashed."""
    for axis, (i, j, x_label, y_label) in zip(axes, VIEWS, strict=False):
        if planned is not None:  # above the path flown
            axis.plot(planned[:, i], planned[:, j], "k--", linewidth=0.8, zorder=3, label="planned")
        points = p[:, [i, j]]
        lines = LineCollection(np.stack([points[:-1], points[1:]], 1), cmap="viridis", linewidth=2.5)
        lines.set_array(speed[:-1])
        axis.add_collection(lines)
        axis.autoscale()
        axis.set_aspect("equal", adjustable="datalim")
        axis.grid(alpha=0.3)
        draw_course(axis, track, i, j)
        axis.set(xlabel=x_label, ylabel=y_label)
        axis.invert_yaxis()
        if planned is not None:
            axis.legend(loc="upper right")
        axis.figure.colorbar(lines, cax=axis.inset_axes((1.02, 0.0, 0.02, 1.0)), label="speed [m/s]")


def draw_crossing(axes: Axes, gate: Gate, crossed_m: Array, risk: GateRisk, radius_m: float) -> None:
    """Draw an opening in flight direction, the body's sphere at the planned crossing, and the 3-sigma set of its position."""
    outline = gate.outline_m
    axes.plot(*np.vstack([outline, outline[:1]]).T, color="tab:red", linewidth=2.0)
    angle = np.linspace(0, 2 * np.pi, 120)
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    cov, short = np.array(risk.cov_m2), np.array(risk.short_m)
    one_sided = np.maximum(ring @ short.T, 0.0)
    variance = ((ring @ cov) * ring).sum(axis=1) + (one_sided**2).sum(axis=1)
    # Of the one-sigma set, where `ring` is normal to it.
    sigma = (ring @ cov + one_sided @ short) / np.sqrt(variance)[:, None]
    axes.fill(*(crossed_m + risk.drawn_m + SIGMAS * sigma).T, color="tab:blue", alpha=0.35)
    axes.plot(*(crossed_m + radius_m * ring).T, color="black", linewidth=0.8)
    axes.plot(*crossed_m, "k+")
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.tick_params(labelsize=6)


def draw_tube(figure: SubFigure, plan: Plan, gates: Sequence[Gate], risk: FlightRisk, radius_m: float) -> None:
    title = f"{SIGMAS:g} sigma ellipses of the predicted gate crossings, total risk {risk.total:.1e}"
    figure.suptitle(title, fontsize=10)
    passed = [(i, gate) for i, gate in enumerate(gates) if not gate.is_ball]
    rows = -(-len(passed) // PANELS)
    axes = figure.subplots(rows, min(len(passed), PANELS), squeeze=False).ravel()
    figure.subplots_adjust(left=0.05, right=0.97, bottom=0.15 / rows, top=1 - 0.25 / rows, hspace=0.4)
    for axis in axes[len(passed) :]:
        axis.set_axis_off()
    for axis, (i, gate), one in zip(axes, passed, risk.gates, strict=False):
        crossed_m = gate.local(plan.x[plan.gate_nodes[i], RATES_X["p"].at])[1:]
        draw_crossing(axis, gate, crossed_m, one, radius_m)
        axis.set_title(f"{i}: {sum(one.risks):.0e}", fontsize=7)


def draw_plan(path: Path, plan: Plan, track: Track, vehicle: Vehicle, risk: FlightRisk | None = None) -> None:
    """Write the PNG; with a risk, also the uncertainty of the gate crossings."""
    t, x, inputs = plan.dense(vehicle, 4)
    model = plan.flight_model(vehicle)
    u, lagging = model.commands(x, inputs), "c" in model.x
    speed = np.linalg.norm(x[:, RATES_X["v"].at], axis=1)
    gates = track.course(plan.laps)
    high = 0.0 if risk is None else PANEL_IN * -(-len(risk.gates) // PANELS)
    whole = plt.figure(figsize=(12, 15 + high))
    parts = whole.subfigures(1 + (high > 0), 1, squeeze=False, height_ratios=[15.0, high][: 1 + (high > 0)]).ravel()
    figure = parts[0]
    axes = figure.subplots(5, 1, height_ratios=[*view_heights(track), 1, 1, 1])
    figure.subplots_adjust(**MARGINS)
    if risk is not None and high > 0:
        draw_tube(parts[1], plan, gates, risk, vehicle.contact_radius_m)
    draw_views(axes, track, x[:, RATES_X["p"].at], speed)
    axes[2].plot(t, speed)
    axes[2].set(ylabel="speed [m/s]")
    axes[3].plot(t, u[:, 3], drawstyle="steps-post", label="commanded" if lagging else "thrust")
    if lagging:
        axes[3].plot(t, x[:, RATES_X["c"].at], label="thrust")
    axes[3].axhline(vehicle.thrust_max, color="black", linewidth=0.8, linestyle="--")
    axes[3].set(ylabel="thrust [m/s²]")
    axes[3].legend(loc="lower right")
    axes[4].plot(t, x[:, RATES_X["w"].at], label=["roll", "pitch", "yaw"])
    axes[4].set(ylabel="body rates [rad/s]", xlabel="time [s]")
    axes[4].legend(loc="lower right")
    for axis in axes[2:]:
        axis.grid(alpha=0.3)
        for node in plan.gate_nodes:
            axis.axvline(plan.t[node], color="tab:red", linewidth=0.8)
    figure.suptitle(f"{track.name}, {vehicle.name}: {plan.total_time:.3f} s")
    write_figure(path, whole)
    plt.close(whole)
