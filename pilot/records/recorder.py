"""Recorder of a flight: the simulator's own report of the race, rows in memory for the result, records in the log.

The simulator's report (ENCAPSULATED_DATA type 1) has gates counted, their times and the finish; it is the verdict on a live
flight. Its fields are updated apart: the count lags by up to 0.75 s, and may not include the last gate at the finish.
"""

import contextlib
import os
import queue
import sys
import threading
from collections import deque
from dataclasses import asdict, dataclass, field
from itertools import pairwise

import numpy as np

from gate_racer.common.errors import escaped
from gate_racer.link.messages import (
    WARNING,
    Attitude,
    Farewell,
    HumanSticks,
    Imu,
    Odometry,
    RaceStatus,
    StatusText,
    Telemetry,
)
from gate_racer.model.reprojection import GateSighting
from gate_racer.pilot.flight import SAME_START_S, CommandRecord, DetectedImage, Phase
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.vehicle.rotation import Array

RACES_KEPT = 16  # the previous race, the current one and later ones; the bound is for foreign senders
SAME_TIME_S = 0.01  # s, tolerance of a gate's time against the stamp of the status that counts it
LAG_S = 1.0  # s after which a gate is counted
PERIOD_S = 0.3  # s, in which no two gates are passed: the real builds send a status each 0.25 s


@dataclass
class ReportedRace:
    """One race according to its statuses. Times in s since GO, but for `start` and `newest`."""

    start: float  # s, simulator clock
    newest: float  # s, simulator clock, stamp of the last status
    finished: bool = False
    finish_s: float | None = None  # None where the finish is reported without a possible time
    # Times of statuses, and the counts to which they raised it.
    _counted: list[tuple[float, int]] = field(default_factory=lambda: [(-np.inf, 0)])
    # By the time of a last gate, 0 before the first: the greatest count beside it, and the latest status that has it.
    _beside: dict[float, tuple[int, float]] = field(default_factory=lambda: {0.0: (0, 0.0)})

    def receive(self, status: RaceStatus) -> None:
        self.newest = max(self.newest, status.t)
        now_s, gate_s = status.t - self.start, status.gate_time
        if status.gate > self._counted[-1][1]:
            self._counted.append((now_s, status.gate))
        if gate_s is None and status.gate == 0:
            gate_s = 0.0
        if gate_s is not None and 0 <= gate_s <= now_s + SAME_TIME_S:
            count, latest_s = self._beside.get(gate_s, (0, 0.0))
            self._beside[gate_s] = max(count, status.gate), max(latest_s, now_s)
        if status.finish is not None and not self.finished:
            self.finished = True
            finish_s = status.finish - self.start
            if finish_s > SAME_TIME_S and max(self._beside) - SAME_TIME_S <= finish_s <= now_s + SAME_TIME_S:
                self.finish_s = finish_s

    def gate_times_s(self, total: int) -> list[float | None]:
        """Return the times of the gates passed of a course of `total` gates; None where the race status does not tell one.

        The count may lag. So the number of a gate, from 1, is at least the count beside its time, and one more than that of the
        gate before, and than the count of any status before it was passed. It is no more if the count no longer lags, or if a
        status of the gate before was sent shortly before it was passed. Else statuses are lost, and a time that may be several
        gates' is none's. A time at the finish is the last gate's.
        """
        end_s = np.inf if self.finish_s is None else self.finish_s - SAME_TIME_S
        told = sorted((gate_s, *beside) for gate_s, beside in self._beside.items() if gate_s <= end_s)
        least, most, follows = [0], [0], [False]
        for (_, _, before_s), (gate_s, beside, latest_s) in pairwise(told):
            before = max(count for t, count in self._counted if t < gate_s - SAME_TIME_S)
            follows.append(gate_s - before_s < PERIOD_S)
            least.append(max(beside, before + 1, least[-1] + 1))
            highest = beside if latest_s - gate_s > LAG_S else most[-1] + 1 if follows[-1] else total
            most.append(max(least[-1], highest))
        most.append(total if self.finish_s is not None else total + 1)
        for k in range(len(told) - 1, 0, -1):
            most[k] = min(most[k], most[k + 1] - 1)
            if follows[k]:
                least[k - 1] = max(least[k - 1], least[k] - 1)
        passed = {low: told[k][0] for k, (low, high) in enumerate(zip(least, most, strict=False)) if low == high}
        count = total if self.finished else min(max(least[-1], self._counted[-1][1]), total)
        times = [passed.get(number) for number in range(1, count + 1)]
        if self.finish_s is not None and times:
            times[-1] = self.finish_s
        return times

    def counted_s(self, number: int) -> float:
        """Return the latest time at which a gate, numbered from 1, was passed: that of the status that counts it."""
        return next((t for t, count in self._counted if count >= number), self.newest - self.start)


class Scoreboard:
    """Record of all statuses, of earlier and later races too."""

    def __init__(self) -> None:
        self._races: deque[ReportedRace] = deque(maxlen=RACES_KEPT)
        self.farewell: Farewell | None = None  # with the referee's verdict, in lock-step

    def receive(self, status: RaceStatus) -> None:
        """Process a status of a race that has started; before GO there is nothing to count."""
        if not status.go or status.start is None:
            return
        race = self.race(status.start)
        if race is None:
            race = ReportedRace(status.start, status.t)
            self._races.append(race)
        race.receive(status)

    def race(self, go_t: float | None) -> ReportedRace | None:
        """Return the race that began at go_t (s); None where none is reported."""
        if go_t is None:
            return None
        near = [race for race in self._races if abs(race.start - go_t) < SAME_START_S]
        return min(near, key=lambda race: abs(race.start - go_t), default=None)


# stderr, written by its own thread: a closed or blocked stream neither delays nor ends a flight. The status line is rewritten on
# a terminal; elsewhere it is a line for each change of phase.

LINES_KEPT = 100  # lines buffered while the stream is blocked
CLOSE_S = 1.0  # s to write the remaining lines at the end
CLEAR = "\r\x1b[K"


def _write(text: str) -> None:
    """Write without Python's buffer, whose lock would outlive a thread that hangs."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never open
        os.write(sys.stderr.fileno(), text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))


class Console:
    """Writer of stderr; `say` and `show` never wait and never raise."""

    def __init__(self) -> None:
        # Text, and whether it is a status line, which the next one replaces; None ends the thread.
        self._queue: queue.SimpleQueue[tuple[str, bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="console", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        if self._queue.qsize() < LINES_KEPT:
            self._queue.put((line, False))

    def show(self, status: str) -> None:
        """Replace the status line, on a terminal."""
        if self._queue.empty():
            self._queue.put((status, True))

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        shown = False  # a status line is on the screen
        while (item := self._queue.get()) is not None:
            text, passing = item
            clear, end = CLEAR if shown or passing else "", "" if passing else "\n"
            _write(f"{clear}{escaped(text)}{end}")
            shown = passing
        if shown:
            _write("\n")


LINE_S = 0.2  # s of the simulator clock between two updates


class StatusLine:
    """Status display; call it with the pilot at any rate, it writes when an update is due."""

    def __init__(self, console: Console):
        self._console, self._live, self._due, self._phase = console, sys.stderr.isatty(), -1.0, ""
        self.command_hz = 0.0

    def __call__(self, pilot: AnyPilot) -> None:
        t = pilot.estimator.t
        changed = pilot.phase != self._phase
        if self._live and (changed or t >= self._due):
            self._console.show(self.text(pilot))
            self._due = t + LINE_S
        elif changed and not self._live:
            self._console.say(self.text(pilot))
        self._phase = pilot.phase

    def text(self, pilot: AnyPilot) -> str:
        """Return phase, time, gate, speed, drift, solve time and command rate as a line."""
        t = pilot.estimator.t
        if pilot.phase is Phase.WAIT_LINK:
            return f"wait_link: {', '.join(pilot.handshake.missing) or 'ready'}"
        text = pilot.phase.value + (f": {pilot.cause}" if pilot.cause else "")
        if pilot.last_command is None or pilot.go_t is None:
            return text
        state, control = pilot.last_command.state, pilot.last_command.control
        of = f"/{len(pilot.guidance.course)}" if pilot.guidance.course else ""
        where = f"gate {len(pilot.guidance.passages.times_s)}{of}  {float(state.v_w @ state.v_w) ** 0.5:4.1f} m/s"
        loop = f"drift {state.drift:.2f} m  solve {control.solve_s * 1e3:.1f} ms  {self.command_hz:.0f} Hz"
        return f"{text}  {t - pilot.go_t:6.2f} s  {where}  {loop}"


MOST_TEXTS = 20  # autopilot messages reported per flight


@dataclass
class FlightRows:
    """One row per command before any landing. Positions in m, world NED; times in s of the simulator clock."""

    t: list[float] = field(default_factory=list)
    p: list[Array] = field(default_factory=list)  # estimate
    v: list[Array] = field(default_factory=list)
    theta: list[float] = field(default_factory=list)
    solve_s: list[float] = field(default_factory=list)
    sightings: list[tuple[float, int, float]] = field(default_factory=list)  # t, gate, range


class Recorder:
    def __init__(self, log: FlightLog, console: Console | None = None):
        self.flight, self.log, self._phase = FlightRows(), log, ""
        self.console = console
        self.scoreboard, self._texts = Scoreboard(), 0
        self.troubles: dict[str, str] = {}  # sentence by name of each trouble, fatal or not
        self._fallback: tuple[str, str] = ("", "")  # source and reason of the previous command

    def note(self, name: str, sentence: str) -> None:
        """Record a trouble in its newest wording for the result; a new one is reported on the console."""
        if name not in self.troubles and self.console is not None:
            self.console.say(f"warning: {sentence}")
        self.troubles[name] = sentence

    def close(self) -> None:
        log = self.log
        log.close()
        if log.problem:
            self.troubles["log"] = log.problem
        if log.images_dropped or log.records_dropped:
            lost = f"{log.images_dropped} images and {log.records_dropped} records"
            self.troubles["log drops"] = f"{lost} are not in the log"

    def phase(self, pilot: AnyPilot) -> None:
        if pilot.phase != self._phase:
            self._phase = pilot.phase
            self.log.write("phase", pilot.estimator.t, phase=pilot.phase.value, reason=pilot.cause)

    def received(self, message: Telemetry) -> None:
        if isinstance(message, Imu):
            self.log.write("imu", message.t, accel=message.accel, gyro=message.gyro)
        elif isinstance(message, Attitude):
            self.log.write("attitude", message.t, q=message.q_wb)
        elif isinstance(message, Odometry):
            pose = {"p": message.p_wb, "q": message.q_wb, "v_b": message.v_b}
            self.log.write("odometry", message.t, **pose, resets=message.resets)
        elif isinstance(message, HumanSticks):
            self.log.write("sticks", message.t, w=message.omega, throttle=message.throttle)
        elif isinstance(message, RaceStatus):
            self.scoreboard.receive(message)
        elif isinstance(message, Farewell) and message.verdict:
            self.scoreboard.farewell = message
        elif isinstance(message, StatusText) and message.severity <= WARNING and self._texts < MOST_TEXTS:
            self._texts += f"autopilot: {message.text}" not in self.troubles
            self.note(f"autopilot: {message.text}", f"autopilot message: {message.text}")

    def step(self, step: CommandRecord) -> None:
        state, control, target = step.state, step.control, step.target
        flight = self.flight
        if not step.lands:
            flight.t.append(state.t)
            flight.p.append(state.p_wb)
            flight.v.append(state.v_w)
            flight.theta.append(control.theta)
            flight.solve_s.append(control.solve_s)
        motion = {"p": state.p_wb, "q": state.q_wb, "v": state.v_w, "w": state.omega_b}
        self.log.write("state", state.t, **motion, sigma_p=np.sqrt(state.cov_p.diagonal()), drift=state.drift)
        fallback = (control.source.value, control.reason) if control.reason else ("", "")
        if fallback != self._fallback and control.reason:
            self.log.write("fallback", state.t, source=control.source.value, reason=control.reason)
        self._fallback = fallback
        row = control.reference
        self.log.write("reference", state.t, theta=control.theta, p=row[:3], q=row[3:7], v=row[7:10])
        solved = {"source": control.source.value, "status": control.status, "solve_ms": control.solve_s * 1e3}
        self.log.write("command", state.t, q=target.q_wb, w=target.omega, throttle=target.throttle, **solved)

    def image(self, image: DetectedImage, sightings: list[GateSighting]) -> None:
        """Record one frame, its detections and its recognised gates."""
        if image.jpeg:
            if image.window is not None:
                self.log.write("window", image.t, **image.window._asdict())
            self.log.image(image.t, image.jpeg)
        for detection in image.detections:
            self.log.write("detection", image.t, frame=image.id, **detection.record())
        for sighting in sightings:
            self.flight.sightings.append((sighting.t, sighting.gate, sighting.range_m))
            seen = {"gate": sighting.gate, "range_m": sighting.range_m, "corners_px": np.round(sighting.corners_px, 3)}
            place = {"p": sighting.p_wb, "sigma_p": np.sqrt(sighting.cov.diagonal())}
            self.log.write("sighting", sighting.t, frame=image.id, **seen, **place)

    def conclude(self, pilot: AnyPilot, frames_dropped: int) -> None:
        """Record what a flight that is over has estimated and counted; what measurements contradicted is a trouble."""
        t, health, passages, write = pilot.estimator.t, pilot.estimator.health, pilot.guidance.passages, self.log.write
        if health.fallbacks:
            self.note("estimator", f"failed {health.fallbacks} times: {health.fallback_reason}")
        if health.odometry_lost or health.odometry_resets:
            counted = f"lost {health.odometry_lost} times, reset {health.odometry_resets} times in flight"
            self.note("odometry", f"the odometry was {counted}, {health.odometry_used} samples were used")
        if health.contradicted_t is not None:
            write("widths", health.contradicted_t, ratios=health.widths)
            ratios = ", ".join(f"{factor} x{width:.1f}" for factor, width in health.widths.items())
            self.note("widths", f"errors are greater than assumed, standard deviations: {ratios}")
        if (camera := pilot.estimator.calibration()) is not None:
            write("calibration", t, camera=asdict(camera))
        if (learned := pilot.guidance.learned()) is not None:
            write("learned", t, **asdict(learned))
        for one in passages.replans:
            fields = {name: value for name, value in asdict(one).items() if value is not None}
            write("replan", (pilot.go_t or 0.0) + one.asked_s, **fields)
        write("counters", t, **asdict(pilot.counters), frames_dropped=frames_dropped)
