"""Flights of visual-inertial data sets: folders with an IMU and a ground truth, in which the body's axes are the IMU's.

| data set | layout | axes of the IMU |
|---|---|---|
| EuRoC (Burri et al., IJRR 2016) | ASL's folders below `mav0/` | x up, y right, z forward |
| UZH-FPV (Delmerico et al., ICRA 2019), Snapdragon | `imu.txt`, `groundtruth.txt` | x forward, y left, z up |

Both worlds have z up. Columns are counted from the last, since a number precedes each row in some releases of UZH-FPV. Times are
in another unit where only that gives the steps of an IMU, as in flights that others publish in these layouts.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gate_racer.common.files import read_text, reading
from gate_racer.link.logs.samples import FRD, IMU_STEPS_S, LoggedSignals, Source, found, turned, xyz
from gate_racer.vehicle.rotation import Array, from_matrix, matrix

IMU, TRUTH = "imu", "truth"
TICKS_S = 1.0, 1e-3, 1e-6, 1e-9  # s, units of times
SPOILT = 0.01  # share of lines that may be damaged, besides the last one, as of a file that was cut (chosen)
SCALAR_FIRST, SCALAR_LAST = "wxyz", "xyzw"
OMEGA, FORCE, POSITION, VELOCITY = (xyz(f"{name}_{{}}") for name in "wapv")
QUATERNION = xyz("q_{}", SCALAR_FIRST)
IMU_COLUMNS = ("t", *OMEGA, *FORCE)


@dataclass(frozen=True)
class Layout:
    """Files of a flight, relative to its folder; the last columns of each by name, and the IMU's axes."""

    imu: str
    truth: str
    truth_columns: tuple[str, ...]  # those of the IMU are IMU_COLUMNS
    separator: str | None  # None: blanks
    tick_s: float  # s, unit of the times
    R_bs: Array  # (3, 3), from the IMU's axes to FRD

    def sources(self) -> tuple[Source, ...]:
        def to_body(values: Array) -> Array:
            return values @ self.R_bs.T

        def attitudes(q: Array) -> Array:
            return np.array([from_matrix(FRD[:, None] * matrix(one) @ self.R_bs.T) for one in q]).reshape(-1, 4)

        return (
            Source("omega", IMU, OMEGA, to_body),
            Source("force", IMU, FORCE, to_body),
            Source("true_p", TRUTH, POSITION, turned),
            Source("true_v", TRUTH, VELOCITY, turned),
            Source("true_q", TRUTH, QUATERNION, attitudes),
        )


LAYOUTS = (
    Layout(
        imu="mav0/imu0/data.csv",
        truth="mav0/state_groundtruth_estimate0/data.csv",
        truth_columns=("t", *POSITION, *QUATERNION, *VELOCITY, *xyz("gyro_bias_{}"), *xyz("accel_bias_{}")),
        separator=",",
        tick_s=1e-9,
        R_bs=np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]),
    ),
    Layout(
        imu="imu.txt",
        truth="groundtruth.txt",
        truth_columns=("t", *POSITION, *xyz("q_{}", SCALAR_LAST)),
        separator=None,
        tick_s=1.0,
        R_bs=np.diag(FRD),
    ),
)


def layout_of(folder: Path) -> Layout | None:
    return next((one for one in LAYOUTS if (folder / one.imu).is_file()), None)


def inertial_signals(folder: Path) -> LoggedSignals:
    """Return the signals of a folder; its ground truth may be missing, as in held-back flights of UZH-FPV. Raises FileError."""
    layout = layout_of(folder)
    assert layout is not None, "the reader has recognised its files"
    tables, notes = dict[str, dict[str, Array]](), list[str]()
    for name, file, columns in ((IMU, layout.imu, IMU_COLUMNS), (TRUTH, layout.truth, layout.truth_columns)):
        if name == IMU or (folder / file).is_file():
            tables[name], spoilt = _table(folder / file, columns, layout.separator)
            told = f"{file}: {spoilt} lines that do not end in {len(columns)} numbers are left out"
            notes += [told] if spoilt else []
    t, units = tables[IMU]["t"], (layout.tick_s, *TICKS_S)
    step = float(np.median(np.diff(t))) if len(t) > 1 else 0.0
    # The layout's unit, unless only another one gives the steps of an IMU.
    tick_s = next((unit for unit in units if IMU_STEPS_S[0] <= step * unit <= IMU_STEPS_S[1]), layout.tick_s)
    return found({name: {**one, "t": tick_s * one["t"]} for name, one in tables.items()}, layout.sources(), notes)


def _table(path: Path, names: tuple[str, ...], separator: str | None) -> tuple[dict[str, Array], int]:
    """Return the columns of a file, and how many of its lines are damaged."""
    rows, spoilt = list[Array](), list[int]()
    with reading(path):
        lines = [(k, line) for k, line in enumerate(read_text(path).splitlines(), 1) if line.strip() and line[0] != "#"]
        for k, line in lines:
            try:
                rows.append(np.array(line.split(separator)[-len(names) :], float).reshape(len(names)))
            except ValueError:
                spoilt.append(k)
        inside = [k for k in spoilt if k != lines[-1][0]]
        if len(inside) > SPOILT * len(rows):
            raise ValueError(f"line {inside[0]} does not end in {len(names)} numbers")
        return dict(zip(names, np.reshape(rows, (-1, len(names))).T, strict=True)), len(spoilt)
