"""The plot of a plan: top and side view coloured by speed, and profiles over time."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from planner.plan import Plan
from tracks.track import Track
from vehicle.dynamics import RATES_X
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

# Of a figure of five rows; a layout that matplotlib finds costs as long as all the drawing.
MARGINS = {"left": 0.07, "right": 0.88, "bottom": 0.04, "top": 0.96, "hspace": 0.3}
VIEWS = ((0, 1, "x north [m]", "y east [m]"), (0, 2, "x north [m]", "z down [m]"))


def draw_gates(axes: Axes, track: Track, i: int, j: int) -> None:
    """Openings (thick) and frames (thin) of all gates, projected on world axes i and j."""
    for number, gate in enumerate(track.gates):
        if gate.is_ball:
            axes.add_patch(plt.Circle((gate.p_wg[i], gate.p_wg[j]), gate.half, fill=False, color="tab:red"))
        else:
            for side, width in ((gate.outer_m, 1.0), (gate.opening_m, 3.0)):
                corners = gate.corners(side)
                ring = np.vstack([corners, corners[:1]])
                axes.plot(ring[:, i], ring[:, j], color="tab:red", linewidth=width)
        axes.annotate(
            str(number), (gate.p_wg[i], gate.p_wg[j]), textcoords="offset points", xytext=(6, 6), color="tab:red"
        )


def draw_path(axes: Axes, p: Array, speed: Array, i: int, j: int) -> LineCollection:
    """A path p (M, 3) on world axes i and j, coloured by speed (M,) in m/s."""
    points = p[:, [i, j]]
    lines = LineCollection(np.stack([points[:-1], points[1:]], 1), cmap="viridis", linewidth=2.5)
    lines.set_array(speed[:-1])
    axes.add_collection(lines)
    axes.autoscale()
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(alpha=0.3)
    return lines


def add_speed_bar(axes: Axes, lines: LineCollection) -> None:
    """The colours of `draw_path`, beside it."""
    axes.figure.colorbar(lines, cax=axes.inset_axes((1.02, 0.0, 0.02, 1.0)), label="speed [m/s]")


def draw_plan(path: Path, plan: Plan, track: Track, vehicle: Vehicle) -> None:
    """Writes the PNG."""
    t, x, inputs = plan.dense(vehicle, 4)
    model = plan.flight_model(vehicle)
    u, lagging = model.commands(x, inputs), "c" in model.x
    speed = np.linalg.norm(x[:, RATES_X["v"].at], axis=1)
    figure, axes = plt.subplots(5, 1, figsize=(12, 15), height_ratios=[3, 3, 1, 1, 1])
    figure.subplots_adjust(**MARGINS)
    for axis, (i, j, x_label, y_label) in zip(axes, VIEWS, strict=False):
        lines = draw_path(axis, x[:, RATES_X["p"].at], speed, i, j)
        draw_gates(axis, track, i, j)
        axis.set(xlabel=x_label, ylabel=y_label)
        axis.invert_yaxis()
        add_speed_bar(axis, lines)
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
    figure.savefig(path, dpi=90)
    plt.close(figure)
