"""The plot of a flight: flown and planned path, errors over time, gate margins."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from gate_racer.common.files import write_figure
from gate_racer.mpc.reference import Reference
from gate_racer.pilot.records.recorder import FlightRows
from gate_racer.pilot.records.result import Verdict, off_path, true_positions
from gate_racer.planner.plan import Plan
from gate_racer.planner.plot import MARGINS, draw_views, view_heights
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle


def draw_flight(
    path: Path, flight: FlightRows, verdict: Verdict, plan: Plan | None, track: Track, vehicle: Vehicle, go_t: float
) -> None:
    """Write the PNG; without a plan it shows the flown path alone."""
    reference = Reference(plan, vehicle) if plan is not None else None
    t, p, v = np.array(flight.t), np.array(flight.p), np.array(flight.v)
    truth = true_positions(verdict, t)
    flown, since_go = (p if truth is None else truth), t - go_t
    figure = Figure(figsize=(12, 15))
    axes = figure.subplots(5, 1, height_ratios=[*view_heights(track), 1, 1, 1])
    figure.subplots_adjust(**MARGINS)
    planned = reference.sample(np.linspace(0, reference.end, 1000)) if reference is not None else np.empty((0, 3))
    draw_views(axes, track, flown, np.linalg.norm(v, axis=1), planned)
    if reference is not None:
        axes[2].plot(since_go, off_path(reference, np.array(flight.theta), flown))
    axes[2].set(ylabel="distance from plan [m]")
    if truth is not None:
        axes[3].plot(since_go, p - truth, label=["x", "y", "z"])
        axes[3].legend(loc="upper right")
    axes[3].set(ylabel="position error [m]")
    seen = [when - go_t for when, _, _ in flight.sightings]
    axes[3].vlines(seen, 0, 1, transform=axes[3].get_xaxis_transform(), color="tab:green", linewidth=0.3)
    for axis in axes[2:4]:
        axis.grid(alpha=0.3)
        axis.set(xlabel="time since GO [s]; red: gates, green: sightings")
        for gate_s in verdict.gate_times_s:
            axis.axvline(gate_s, color="tab:red", linewidth=0.8)
    axes[4].bar(range(len(verdict.gate_margins_m)), verdict.gate_margins_m)
    axes[4].axhline(vehicle.contact_radius_m, color="black", linewidth=0.8, linestyle="--", label="contact")
    axes[4].legend(loc="upper right")
    axes[4].set(xlabel="gate", ylabel="gate margin [m]", xticks=range(len(verdict.gate_margins_m)))
    last = f", {verdict.gate_times_s[-1]:.3f} s" if verdict.gate_times_s else ""
    planned_s = f" (planned {plan.passage_times_s(track)[-1]:.3f} s)" if plan is not None else ""
    figure.suptitle(f"{track.name}, {vehicle.name}: {verdict.status}{last}{planned_s}")
    write_figure(path, figure)
