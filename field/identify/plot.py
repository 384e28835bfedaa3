"""The plot of a fit: thrust curve with its 95 % band, and measured and predicted force."""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from gate_racer.common.files import write_figure
from gate_racer.field.identify.fit import Fit
from gate_racer.vehicle.vehicle import Vehicle

matplotlib.use("Agg")


def draw_fit(path: Path, fit: Fit, base: Vehicle) -> None:
    """Write the PNG."""
    figure, axes = plt.subplots(4, 1, figsize=(10, 12), height_ratios=[2, 1, 1, 1])
    figure.subplots_adjust(left=0.08, right=0.97, bottom=0.05, top=0.97, hspace=0.2)
    values = [point.value for point in fit.thrust_m_s2]
    axes[0].errorbar(
        fit.throttle, values, [point.half_width for point in fit.thrust_m_s2], marker="o", label="fitted, 95 %"
    )
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
    plt.close(figure)
