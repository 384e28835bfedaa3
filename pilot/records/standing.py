"""Events of logs that others have written: in the order of time, standing until the vehicle is first pushed or turned."""

from collections.abc import Iterator

import numpy as np

from link.record_reader import Record
from vehicle.dynamics import GRAVITY
from vehicle.rotation import Array

PUSHED_M_S2, TURNED_RAD_S = 1.0, 0.1  # off gravity and off rest: a vehicle that is released too early loses little
EARLIER_S = 0.2  # before that it still stands

Event = tuple[float, str, Record]  # s, topic, record


def released_at(force_t: Array, force: Array, omega_t: Array, omega: Array) -> float:
    """s, a little before the vehicle was first pushed (N, 3) m/s^2 or turned (M, 3) rad/s."""
    off_m_s2 = np.abs(np.linalg.norm(force, axis=1) - GRAVITY)
    pushed = force_t[off_m_s2 > PUSHED_M_S2]
    turned = omega_t[np.linalg.norm(omega, axis=1) > TURNED_RAD_S]
    first = min([*pushed[:1], *turned[:1], force_t[-1]])
    return max(float(first) - EARLIER_S, float(force_t[0]))


def imu_events(t: Array, force: Array, omega: Array) -> list[Event]:
    """Samples at times (N,) s of forces (N, 3) m/s^2 and rates (N, 3) rad/s."""
    rows = zip(t.tolist(), force.tolist(), omega.tolist(), strict=True)
    return [(stamp, "/imu", {"t": stamp, "accel": f, "gyro": w}) for stamp, f, w in rows]


def in_order(events: list[Event]) -> Iterator[tuple[str, Record]]:
    """Topics and records by time; of one time in the order given."""
    for _, topic, record in sorted(events, key=lambda event: event[0]):
        yield topic, record
