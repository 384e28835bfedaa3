"""Figures of the field tools; Matplotlib takes longer to load than the tools take, so they import this when they draw.

The fit of a vehicle: thrust curve with its 95 % band, and measured and predicted force. A map: gates with ellipses of three
standard deviations, and the flights, from above and from the side.
"""

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from gate_racer.common.files import write_figure
from gate_racer.field.identify.fit import Fit
from gate_racer.field.mapping.bundle import Map, MappedGate
from gate_racer.tracks.track import GateFrame, Start
from gate_racer.vehicle.rotation import Array, from_euler, matrix
from gate_racer.vehicle.vehicle import Vehicle


def draw_fit(path: Path, fit: Fit, base: Vehicle) -> None:
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


VIEWS = ((1, 0, "east [m]", "north [m]"), (0, 2, "north [m]", "down [m]"))


def draw_map(path: Path, gates: list[MappedGate], found: Map, start: Start, frame: GateFrame) -> None:
    """Write the PNG; gates in the track's frame."""
    figure = Figure(figsize=(14, 7))
    axes = figure.subplots(1, len(VIEWS))
    figure.subplots_adjust(left=0.05, right=0.98, bottom=0.07, top=0.97, wspace=0.15)
    R = matrix(from_euler(0.0, 0.0, math.radians(start.yaw_deg) - found.pad[2]))
    for axis, (i, j, across, up) in zip(axes, VIEWS, strict=True):
        for chain in found.chains:
            p = start.p_wb + chain.path()[1] @ R.T
            axis.plot(p[:, i], p[:, j], linewidth=0.8, label=chain.flight.path.stem)
        for n, gate in enumerate(gates):
            side = frame.outer_m / 2 * np.array([-math.sin(gate.yaw), math.cos(gate.yaw), 0.0])
            down = np.array([0.0, 0.0, frame.outer_m / 2])
            square = gate.p_w + np.array([side - down, side + down, -side + down, -side - down, side - down])
            axis.plot(square[:, i], square[:, j], color="tab:red")
            axis.add_patch(_ellipse(gate.p_w[[i, j]], gate.cov[np.ix_([i, j], [i, j])]))
            axis.annotate(str(n), gate.p_w[[i, j]], xytext=(6, 6), textcoords="offset points")
        axis.set(xlabel=across, ylabel=up, aspect="equal")
        axis.grid(alpha=0.3)
    axes[1].invert_yaxis()
    axes[0].legend(loc="upper right", fontsize="small")
    write_figure(path, figure)


def _ellipse(centre: Array, cov: Array) -> Ellipse:
    size, turn = np.linalg.eigh(cov)
    angle = math.degrees(math.atan2(turn[1, 1], turn[0, 1]))
    return Ellipse(tuple(centre), 6 * math.sqrt(size[1]), 6 * math.sqrt(max(size[0], 0.0)), angle=angle, alpha=0.3)
