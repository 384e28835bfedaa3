"""`Signals`: a vehicle's motion and commands from a log of any kind, on a uniform time grid.

What a model of flight cannot explain is cut, and named: radio losses, contact with the ground, motors off.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gate_racer.common.files import reading
from gate_racer.link.logs.reader import read_log_signals
from gate_racer.link.logs.samples import LoggedSignals, Samples, SignalError, calibrated, fresh
from gate_racer.vehicle.dynamics import G_W, GRAVITY
from gate_racer.vehicle.rotation import Array, Mask, matrix

GAP_S, COMMAND_GAP_S = 0.1, 0.5  # s without samples of the motion, without commands, above which the log has a gap
FILLED = 4  # samples on one line that were filled in (chosen)
STRAIGHT = 1e-4  # -, relative error of its slope: no sensor is so even (chosen)
MOST_M_S2 = 16 * GRAVITY  # m/s^2, range of the accelerometers of racing vehicles
OUTSIDE = 0.02  # -, throttle beyond 0..1 that neither rounding nor a radio calibrated by hand explains (chosen)
PUSHED_M_S2 = 1.0  # m/s^2, deviation of the specific force from gravity that shows flight (chosen)
STANDING_M_S, RESTING_M_S = 0.3, 3.0  # m/s, speed that shows flight; estimated speed at which it may yet rest (chosen)
CARRIED = 0.8  # -, share of the throttle of hover below which force that equals gravity is the ground's (chosen)
LIFTING = 0.97  # -, that share up to which a vehicle that stands still has not taken off (chosen)
OFF = 0.02  # -, throttle of motors that are off (chosen)
AFTER_S = 0.3  # s for which a command may still act, and the body bounce: delay and lags (chosen)
STEP_S = 0.01  # s, grid spacing: finer than any lag of interest
SPIN_DOWN = 10  # samples for which a motor that was saturated differs from the others (chosen)
LOST, IMPOSSIBLE = "filled in where the radio lost data", "of impossible values"


@dataclass(frozen=True)
class Cut:
    """A reason, and the samples (N,) that it excludes."""

    reason: str
    mask: Mask

    @property
    def seconds(self) -> float:
        """Duration of what is cut, s."""
        return float(self.mask.sum()) * STEP_S


def averaged(x: Array, n: int) -> Array:
    """Return centred means (N,) over n samples, about."""
    half = n // 2
    return np.convolve(np.pad(x, half, mode="edge"), np.ones(2 * half + 1) / (2 * half + 1), "valid")


@dataclass(frozen=True)
class Motion:
    """Signals on the grid that show what is flight."""

    t: Array  # (N,) s
    throttle: Array  # (N,)
    force_b: Array  # (N, 3) m/s^2
    speed: Array | None  # (N,) m/s, as estimated
    landed: Mask  # (N,) as the autopilot detected
    voltage: Array  # (N,) V, NaN where unknown
    saturated: Mask  # (N,) a motor is at its limit though the throttle is not

    @property
    def lift(self) -> Array:
        """Throttle (N,) at equal voltage, which tells better what the motors carry."""
        share = self.voltage / np.median(self.voltage)
        return np.where(np.isfinite(share), share, 1.0) * self.throttle

    @property
    def weighs(self) -> Mask:
        """Where the force is that of rest or of hover."""
        smooth = np.column_stack([averaged(f, 5) for f in self.force_b.T])
        return np.asarray(np.abs(np.linalg.norm(smooth, axis=1) - GRAVITY) < PUSHED_M_S2)


def cuts_of(motion: Motion, lost: Sequence[tuple[float, float]], sampled: tuple[Samples, Samples]) -> list[Cut]:
    """Return all cuts. `lost` are the stretches that were filled in, `sampled` the samples of motion and of commands."""
    impossible = (np.linalg.norm(motion.force_b, axis=1) > MOST_M_S2) | (np.abs(motion.throttle - 0.5) > 0.5 + OUTSIDE)
    gap = _gaps(sampled[0], motion.t, GAP_S) | _gaps(sampled[1], motion.t, COMMAND_GAP_S)
    # Motors are off before the first and after the last throttle, with what they do until they stop.
    off, contact = ~_between(motion.throttle > OFF), _contact(motion)
    return [
        Cut(LOST, within(lost, motion.t)),
        Cut("without samples", gap),
        Cut(IMPOSSIBLE, around(impossible)),
        Cut("with a motor saturated", np.convolve(motion.saturated, np.ones(SPIN_DOWN))[: len(off)] > 0.5),
        Cut("with motors off", off),
        Cut("on the ground", around(contact) & ~off),
    ]


def within(stretches: Sequence[tuple[float, float]], t: Array) -> Mask:
    """Return which of the times (N,) lie in the stretches."""
    inside = np.zeros(len(t), bool)
    for begin, end in stretches:
        inside[np.searchsorted(t, begin) : np.searchsorted(t, end, side="right")] = True
    return inside


def filled(samples: Samples) -> list[tuple[float, float]]:
    """Return the stretches, s, in which all axes lie on one line through time and are not constant."""
    if len(samples) < FILLED + 1:
        return []
    steps = np.maximum(np.diff(samples.t), 1e-9)[:, None]
    slopes = np.diff(samples.values, axis=0) / steps
    turns, size = np.linalg.norm(np.diff(slopes, axis=0), axis=1), np.linalg.norm(slopes[1:], axis=1)
    straight = (turns < STRAIGHT * size) & (np.count_nonzero(slopes[1:], axis=1) > 1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], straight.astype(int), [0]])))
    return [(samples.t[a], samples.t[b + 1]) for a, b in edges.reshape(-1, 2) if b - a >= FILLED - 1]


def hover_throttle(motion: Motion) -> float:
    """Return the median throttle at which the force is that of hover, and something else shows flight; NaN if never."""
    flying = motion.speed > STANDING_M_S if motion.speed is not None else _between(~motion.weighs)
    carried = motion.lift[flying & ~motion.landed & motion.weighs & (motion.throttle > OFF)]
    return float(np.median(carried)) if len(carried) else float("nan")


def _contact(motion: Motion) -> Mask:
    """Return where (N,) the ground carries the vehicle: the force is gravity's though the throttle is not that of hover."""
    hover = hover_throttle(motion)
    tipped = motion.force_b[:, 2] > GRAVITY / 2  # on its back: no thrust pushes down
    if motion.speed is not None:  # or on its side: only the air of a fast flight pushes sideways
        tipped |= (np.hypot(*motion.force_b[:, :2].T) > GRAVITY / 2) & (motion.speed < RESTING_M_S)
    lying = motion.landed | _lasting(motion.weighs & tipped)
    if np.isnan(hover):
        return lying | (motion.weighs if motion.speed is None else motion.weighs & (motion.speed < STANDING_M_S))
    below = motion.lift < CARRIED * hover
    idle = _lasting(below)
    slow = motion.speed < RESTING_M_S if motion.speed is not None else True
    first = np.arange(len(motion.t)) < int(np.argmax(~(motion.weighs & below)))
    contact = np.asarray(lying | (motion.weighs & slow & (idle | first)))
    if motion.speed is None:
        return contact
    # Motors that run up on the ground, or down: no motion yet, or no longer.
    still = motion.weighs & (motion.speed < STANDING_M_S) & (motion.lift < LIFTING * hover)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (still | contact).astype(int), [0]])))
    for begin, end in edges.reshape(-1, 2):
        contact[begin:end] |= contact[begin:end].any()
    return contact


def _lasting(mask: Mask) -> Mask:
    """Return the samples (N,) at the ends of AFTER_S in which all are of a mask."""
    n = round(AFTER_S / STEP_S)
    return np.asarray(np.convolve(mask, np.ones(n))[: len(mask)] > n - 0.5)


def _between(shown: Mask) -> Mask:
    """Return the samples (N,) from the first to the last that is shown."""
    return np.logical_or.accumulate(shown) & np.logical_or.accumulate(shown[::-1])[::-1]


def around(mask: Mask) -> Mask:
    """Return the samples (N,) of a mask and those within AFTER_S of it."""
    n = round(AFTER_S / STEP_S)
    return np.convolve(mask, np.ones(2 * n + 1))[n:-n] > 0.5


def _gaps(samples: Samples, t: Array, longest_s: float) -> Mask:
    k = np.clip(np.searchsorted(samples.t, t), 1, len(samples) - 1)
    return samples.t[k] - samples.t[k - 1] > longest_s


LONGEST_S = 4 * 3600.0  # s, longest log for the grid
LEAST_HZ = 1 / GAP_S  # samples of the motion a second, below which the log consists of gaps
LEAST_SAMPLES = 20  # samples, least number of any signal (chosen)
# Share of the throttle's samples that may lie beyond 0..1 and are cut; else its unit is another (chosen).
OUTLIERS = 0.05
NO_VELOCITY = "holds no velocity: drag is that of --base, and thrust is best fitted to slow flights"
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])
FULL, NEARLY_FULL, ROUNDED = 0.995, 0.95, 1e-3  # -, of motors and throttle (chosen)
SAG_S = 0.5  # s, over which the voltage is averaged: its logs are slow, and thrust follows a sag late (chosen)


@dataclass(frozen=True)
class Signals:
    """N samples STEP_S apart, world NED and body FRD; `valid` is False where a cut says why, or the log has a gap."""

    source: str
    t: Array  # (N,) s
    throttle: Array  # (N,) 0..1, command at that time
    omega_cmd: Array  # (N, 3) rad/s, NaN where attitudes were commanded
    force_b: Array  # (N, 3) specific force, m/s^2
    omega_b: Array  # (N, 3) rad/s, NaN where unknown
    v_b: Array  # (N, 3) m/s
    R_wb: Array  # (N, 3, 3)
    voltage: Array  # (N,) V, NaN where unknown
    valid: Mask  # (N,)
    cuts: tuple[Cut, ...] = ()
    notes: tuple[str, ...] = ()  # damage, and what the log lacks
    velocity_unknown: bool = False  # v_b is 0 throughout
    velocity_only: bool = False  # forces are differences of velocities
    command_step_s: float = 0.0  # s, typical time between two logged commands

    @property
    def trusted(self) -> Mask:
        """Where (N,) the log holds what was measured, in flight or not."""
        return ~np.any([cut.mask for cut in self.cuts if cut.reason in (LOST, IMPOSSIBLE)], axis=0) | self.valid


def read_signals(path: Path) -> Signals:
    """Read one log. Raises UserError, with what is damaged, if it cannot be read, or lacks commands or motion."""
    log = read_log_signals(path)
    moved = () if log.signals.keys() & {"force", "true_v", "v"} else ("force", "v")
    try:
        log.require(path, ("throttle", *moved), "identify-vehicle")
        for samples, what in ((log.get("throttle"), "commanded throttle"), (log.get("true_v", "v"), "velocity")):
            if 0 < len(samples) < LEAST_SAMPLES:
                held = f"holds {len(samples)} samples of the {what}"
                raise SignalError(f"{path}: {held}, but at least {LEAST_SAMPLES} are needed")
        with reading(path):
            return _even(log, str(path))
    except SignalError as error:
        raise SignalError("; ".join((str(error), *log.notes))) from None


def _even(log: LoggedSignals, source: str) -> Signals:
    throttle, velocity, attitude = log.get("throttle"), fresh(log.get("true_v", "v")), log.get("true_q", "q")
    force = fresh(calibrated(log.get("force"), float(throttle.t[0])))
    moved = force if len(force) else velocity
    hz = (len(moved) - 1) / max(float(np.ptp(moved.t)), 1e-9)
    if hz < LEAST_HZ:
        raise SignalError(f"{source}: holds {hz:.1f} samples of the motion a second, but {LEAST_HZ:g} are needed")
    lost = [stretch for name in ("force", "omega", "motors") for stretch in filled(log.get(name))]
    _require_throttle(throttle.where(~within(lost, throttle.t)), source)
    t = _grid(throttle, moved, source)
    v_w = velocity.at(t) if len(velocity) else np.zeros((len(t), 3))
    q = attitude.at(t) if len(attitude) else np.tile(LEVEL, (len(t), 1))
    R = np.array([matrix(one) for one in q])
    smooth = np.column_stack([averaged(v, 5) for v in v_w.T])  # differences of a sampled velocity are noisy
    differenced = np.einsum("nji,nj->ni", R, np.gradient(smooth, STEP_S, axis=0) - G_W)
    force_b, u, voltage = force.at(t) if len(force) else differenced, throttle.held(t)[:, 0], _voltage(log, t)
    speed, saturated = np.linalg.norm(v_w, axis=1) if len(velocity) else None, _saturated(log, t, u)
    motion = Motion(t, u, force_b, speed, _landed(log, t), voltage, saturated)
    cuts = cuts_of(motion, lost, (moved, throttle))
    unknown, omega_cmd, omega = np.full((len(t), 3), np.nan), *map(log.get, ("omega_cmd", "omega"))
    return Signals(
        source=source,
        t=t,
        throttle=np.clip(u, 0.0, 1.0),
        omega_cmd=omega_cmd.held(t) if len(omega_cmd) else unknown,
        force_b=force_b,
        omega_b=omega.at(t) if len(omega) else unknown,
        v_b=np.einsum("nji,nj->ni", R, v_w),
        R_wb=R,
        voltage=voltage,
        valid=~np.any([cut.mask for cut in cuts], axis=0),
        cuts=tuple(cuts),
        notes=log.notes if len(velocity) else (*log.notes, NO_VELOCITY),
        velocity_unknown=not len(velocity),
        velocity_only=not len(force),
        command_step_s=float(np.median(np.diff(throttle.t))),
    )


def _voltage(log: LoggedSignals, t: Array) -> Array:
    """Return the voltage (N,), averaged; NaN where it is not logged."""
    voltage = log.get("voltage")
    voltage = voltage.where(voltage.values[:, 0] > 0)
    return averaged(voltage.at(t)[:, 0], round(SAG_S / STEP_S)) if len(voltage) else np.full(len(t), np.nan)


def _saturated(log: LoggedSignals, t: Array, throttle: Array) -> Mask:
    """Return where (N,) a motor is at its limit, so that the others do not give the throttle that was commanded."""
    motors = log.get("motors").held(t) if len(log.get("motors")) else np.zeros((len(t), 1))
    commanded = np.median(np.abs(motors.mean(axis=1) - throttle)) > ROUNDED  # and is not what the motors give
    return (motors.max(axis=1) > FULL) & (throttle < NEARLY_FULL) & commanded


def _landed(log: LoggedSignals, t: Array) -> Mask:
    """Return where (N,) the autopilot was landed; nowhere if it does not tell, or always the same."""
    landed = log.get("landed")
    tells = len(landed) and float(np.ptp(landed.values))
    return landed.held(t)[:, 0] > 0 if tells else np.zeros(len(t), bool)


def _grid(throttle: Samples, moved: Samples, source: str) -> Array:
    begin, end = max(throttle.t[0], moved.t[0]), min(throttle.t[-1], moved.t[-1])
    if end - begin > LONGEST_S:
        hours = (end - begin) / 3600
        raise SignalError(f"{source}: lasts {hours:.1f} h, but at most {LONGEST_S / 3600:g} h can be used")
    t = np.arange(begin, end, STEP_S)
    if len(t) < 100:
        raise SignalError(f"{source}: commands and motion overlap for {max(0.0, end - begin):.1f} s, but 1 s is needed")
    return t


UNITS = {  # throttle's range, and how it becomes 0..1
    "per cent": (0.0, 100.0, "divide it by 100"),
    "pulses in us": (900.0, 2100.0, "use (throttle - 1000) / 1000"),
    "DShot units": (0.0, 2048.0, "use (throttle - 48) / 1999"),
    "16-bit counts": (0.0, 65535.0, "divide it by 65535"),
}


def _require_throttle(throttle: Samples, source: str) -> None:
    """Raise SignalError for a throttle that is not 0..1, with the unit that its range suggests."""
    if not len(throttle) or np.mean((throttle.values < -OUTSIDE) | (throttle.values > 1.0 + OUTSIDE)) <= OUTLIERS:
        return
    low, high = float(throttle.values.min()), float(throttle.values.max())
    unit = next((f"; in {unit}? {cure}" for unit, (a, b, cure) in UNITS.items() if a <= low and 2.0 < high <= b), "")
    raise SignalError(f"{source}: the throttle lies between {low:g} and {high:g}, but 0..1 is expected{unit}")
