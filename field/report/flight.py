"""A flight as read from its log: series over the time since GO, and single records. World NED, body FRD, SI."""

import base64
import binascii
import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.files import file_name, reading, within
from gate_racer.field.files import camera_of
from gate_racer.link.record import Losses, Record, tell_losses
from gate_racer.mpc.control import Source
from gate_racer.pilot.records.imported import read_any_records
from gate_racer.pilot.records.recorder import FlightRows
from gate_racer.pilot.records.result import Verdict, distance
from gate_racer.planner.plan import Plan
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

PACE_OVER_S = 0.1  # s, interval of the pace
IGNORED = ("/imu", "/attitude")  # the bulk of a log, not on the page
TimedImage = tuple[float, bytes]  # s since GO, JPEG


@dataclass(frozen=True)
class TimeSeries:
    """Columns over time. `t` (N,) s since GO, ascending; a column is (N,) or (N, n)."""

    t: Array
    columns: dict[str, Array]

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def at(self, name: str, t: Array) -> Array:
        """Return a column interpolated at times t (M,), constant beyond the ends."""
        column = self.columns[name]
        if column.ndim == 1:
            return np.interp(t, self.t, column)
        return np.column_stack([np.interp(t, self.t, part) for part in column.T])


@dataclass(frozen=True)
class ReportedFlight:
    """A logged flight. Times in s since GO. Gates count from 0 in the order of flight, over all laps.

    Examples:
        >>> from gate_racer import ReportedFlight
        >>> ReportedFlight.leg_name(0)
        'before gate 0'
    """

    path: Path
    about: Record  # record of the channel `flight`
    status: str
    cause: str
    gate_times_s: Array  # (G,)
    gate_margins_m: Array  # (G,)
    planned_s: Array  # (all gates,), or (0,) if not logged
    state: TimeSeries  # p, q, v, w, sigma_p
    reference: TimeSeries  # theta, p, v
    command: TimeSeries  # w, throttle, solve_ms
    sticks: TimeSeries  # w, throttle of a person who flew instead
    sources: tuple[str, ...]  # source of each command
    truth: TimeSeries  # p
    sighting: TimeSeries  # gate, range_m
    fallbacks: tuple[tuple[float, str, str], ...]  # time, source, reason
    images: tuple[TimedImage, ...]
    detections: tuple[tuple[float, Array], ...]  # time, corners (4, 2) px; in order of time
    camera: Camera | None  # as calibrated in flight, else as modelled; None where unknown
    learned: Record  # empty where nothing was estimated
    replans: tuple[Record, ...]  # plans requested in flight
    counters: Record  # empty if not logged
    link: tuple[tuple[float, dict[str, float]], ...]  # counters of the link over time

    @property
    def track(self) -> str:
        return str(self.about["track"])

    @property
    def world(self) -> str:
        return str((self.about.get("world") or {}).get("name", ""))

    @property
    def path_flown(self) -> TimeSeries:
        """The true path where known, else the estimate: p."""
        return self.truth if len(self.truth) > 1 else self.state

    @property
    def lost_s(self) -> Array:
        """Delay relative to the plan at each gate passed, (G,) s; (0,) without a plan."""
        n = min(len(self.gate_times_s), len(self.planned_s))
        return self.gate_times_s[:n] - self.planned_s[:n]

    @cached_property
    def ceiling(self) -> float:
        """The highest throttle of the flight, 0..1; a limit if much of the flight is at it."""
        return float(self.command["throttle"].max(initial=0.0))

    @cached_property
    def paces(self) -> tuple[Array, Array]:
        """Times (N,) s since GO and the pace there (N,), s of plan per s over a tenth of a second; (0,) without data."""
        reference = self.reference
        if len(reference) < 2:
            return np.empty(0), np.empty(0)
        t, half = reference.t, PACE_OVER_S / 2
        begin, end = (np.clip(t + side, t[0], t[-1]) for side in (-half, half))
        return t, (reference.at("theta", end) - reference.at("theta", begin)) / np.maximum(end - begin, 1e-9)

    @cached_property
    def corrections(self) -> tuple[Array, Array]:
        """Times (N,) s since GO, and the step of the position estimate beyond its velocity (N,), m."""
        state = self.state
        step = np.diff(state["p"], axis=0) - (state["v"][1:] + state["v"][:-1]) / 2 * np.diff(state.t)[:, None]
        return state.t[1:], np.linalg.norm(step, axis=1)

    @cached_property
    def off_path(self) -> tuple[Array, Array]:
        """Times (N,) s since GO, and the estimate's distance from the path commanded within 0.5 s (N,), m."""
        state, commanded, away = self.state, self.reference, list[float]()
        if len(commanded) < 2:
            return np.empty(0), np.empty(0)
        for t, p in zip(state.t, state["p"], strict=True):
            begin, end = np.searchsorted(commanded.t, [t - 0.5, t + 0.5])
            begin -= begin == end  # the segment about t where no row is near
            first = int(np.clip(begin, 0, len(commanded) - 2))
            away.append(distance(p, commanded["p"][first : max(end, first + 1) + 1]))
        return state.t, np.array(away)

    @cached_property
    def estimate_errors(self) -> tuple[Array, Array]:
        """Times (N,) s since GO, and the error of the position estimate (N,), m; (0,) without truth."""
        state, truth = self.state, self.truth
        if len(truth) < 2:
            return np.empty(0), np.empty(0)
        known = (state.t >= truth.t[0] - 1e-3) & (state.t <= truth.t[-1])
        t = state.t[known]
        return t, np.linalg.norm(state["p"][known] - truth.at("p", t), axis=1)

    def plot(self, path: Path, track: Track, vehicle: Vehicle, plan: Plan | None = None) -> None:
        """Write a PNG: path and plan, errors over time, margins. Raises UserError where it cannot be written."""
        from gate_racer.pilot.records.plot import draw_flight  # matplotlib only when something is drawn

        state, truth, seen = self.state, self.truth, self.sighting
        theta = self.reference.at("theta", state.t) if len(self.reference) else np.zeros(len(state))
        rows = FlightRows(state.t.tolist(), list(state["p"]), list(state["v"]), theta.tolist())
        columns = seen.t.tolist(), seen["gate"].astype(int).tolist(), seen["range_m"].tolist()
        rows.sightings = list(zip(*columns, strict=True))
        verdict = Verdict(self.status, self.cause, self.gate_times_s.tolist(), self.gate_margins_m.tolist())
        if len(truth) > 1:
            verdict = replace(verdict, t=truth.t, x=truth["p"])
        draw_flight(path, rows, verdict, plan, track, vehicle, 0.0)

    def when(self, t: float) -> str:
        """Return a time, s, and where on the course it was, if gates were passed."""
        passed = int(np.searchsorted(self.gate_times_s, t, side="right"))
        ahead = self.leg_name(passed) if passed < len(self.gate_times_s) else ""
        where = ahead or (f"after gate {passed - 1}" if passed else "")
        return f"{t:.2f} s, {where}" if where else f"{t:.2f} s"

    @staticmethod
    def leg_name(gate: int) -> str:
        """Return the name of the leg to a gate."""
        return f"between gates {gate - 1} and {gate}" if gate else "before gate 0"


def read_logged_flight(path: Path, report: Callable[[Path, Losses], None] = tell_losses) -> ReportedFlight:
    """Read the flight in an MCAP log of `run-mpc`, or in a foreign log as far as it has the data.

    Raises:
        UserError: the file cannot be read, is no such log, or holds no flight.

    Examples:
        >>> from gate_racer import read_logged_flight
        >>> try:
        ...     read_logged_flight(folder / "flight.mcap").plot(folder / "flight.png", track, vehicle, plan)
        ... except UserError as error:
        ...     print(str(error).rpartition("/")[2])
        flight.mcap: cannot be read (No such file or directory)
    """
    log: dict[str, list[Record]] = defaultdict(list)
    for topic, record in read_any_records(path, IGNORED, report):
        log[topic].append(record)
    if not log["/flight"] or len(log["/state"]) < 2:
        raise UserError(f"{path}: holds no flight (topics /flight and /state of run-mpc are needed)")
    with reading(path):
        return _flight(path, log)


def passed(flight: ReportedFlight, track: Track) -> ReportedFlight:
    """Return a flight whose log tells of no gates with the gates of a track that its path passes, in their order."""
    path, times, margins = flight.path_flown, list[float](), list[float]()
    if len(flight.gate_times_s) or not track.gates:
        return flight
    for k in range(len(path) - 1):
        if len(times) == len(track.gates):
            break
        step = track.gates[len(times)].crossing(path["p"][k], path["p"][k + 1])
        if step is not None and step.margin > 0:
            times.append(float(path.t[k] + step.s * (path.t[k + 1] - path.t[k])))
            margins.append(step.margin)
    return replace(flight, gate_times_s=np.array(times), gate_margins_m=np.array(margins))


def _flight(path: Path, log: dict[str, list[Record]]) -> ReportedFlight:
    about, go = log["/flight"][0], float(log["/state"][0]["t"])
    file_name(about["track"], f"{path}: track")
    end = log["/referee"][-1] if log["/referee"] else {}
    phase = log["/phase"][-1] if log["/phase"] else {"phase": "cut off"}
    times, margins = _numbers(end.get("gate_times_s", [])), _numbers(end.get("gate_margins_m", []))
    commands = _rising(log["/command"])
    return ReportedFlight(
        path=path,
        about=about,
        status=str(end.get("status", phase["phase"])),
        cause=str(end.get("cause", "") or phase.get("reason", "")),
        gate_times_s=times,
        gate_margins_m=margins[: len(times)],
        planned_s=_numbers(about.get("planned_gate_times_s", [])),
        state=_series(_rising(log["/state"]), go, p=3, q=4, v=3, w=3, sigma_p=3),
        reference=_series(_rising(log["/reference"]), go, theta=1, p=3, v=3),
        command=_series(commands, go, w=3, throttle=1, solve_ms=1),
        sticks=_series(_rising(log["/sticks"]), go, w=3, throttle=1),
        sources=tuple(str(row.get("source", Source.SOLVED)) for row in commands),
        truth=_series(_rising(log["/truth"]), go, p=3),
        sighting=_series(_rising(log["/sighting"], strictly=False), go, gate=1, range_m=1),
        fallbacks=tuple((row["t"] - go, str(row["source"]), str(row["reason"])) for row in log["/fallback"]),
        images=tuple(_images(log["/camera"], go)),
        detections=tuple(
            (row["t"] - go, np.array(row["corners_px"], float).reshape(4, 2))
            for row in _rising(log["/detection"], strictly=False)
        ),
        camera=_camera(log),
        learned=log["/learned"][-1] if log["/learned"] else {},
        replans=tuple(log["/replan"]),
        counters=log["/counters"][-1] if log["/counters"] else {},
        link=tuple((row["t"] - go, dict(row["counters"])) for row in _rising(log["/link"])),
    )


def _rising(rows: list[Record], strictly: bool = True) -> list[Record]:
    rows = sorted((row for row in rows if np.isfinite(row["t"])), key=lambda row: row["t"])
    return [row for k, row in enumerate(rows) if not (strictly and k and row["t"] == rows[k - 1]["t"])]


def _series(rows: Sequence[Record], go: float, **sizes: int) -> TimeSeries:
    columns = {}
    for name, size in sizes.items():
        column = np.array([row[name] for row in rows], float)
        columns[name] = column.reshape(len(rows), size) if size > 1 else column.reshape(len(rows))
    return TimeSeries(np.array([row["t"] for row in rows], float) - go, columns)


def _numbers(values: Any) -> Array:
    return np.array(values, float).reshape(-1)


def _camera(log: dict[str, list[Record]]) -> Camera | None:
    if log["/calibration"]:
        return camera_of(log["/calibration"][-1])
    name = log["/flight"][0].get("vehicle")
    with contextlib.suppress(UserError):
        return load_vehicle(within(name, "vehicle")).camera
    return None


def _images(rows: list[Record], go: float) -> list[TimedImage]:
    found = []
    for row in rows:
        t = row["timestamp"]["sec"] + row["timestamp"]["nsec"] * 1e-9 - go
        try:
            found.append((float(t), base64.b64decode(row["data"])))
        except binascii.Error:
            continue
    return sorted(found, key=lambda image: image[0])
