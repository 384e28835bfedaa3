"""Events of foreign logs: ordered by time, with the vehicle at rest until its first acceleration or rotation."""

from collections.abc import Iterator

import numpy as np

from gate_racer.link.record_reader import Record
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

PUSHED_M_S2, TURNED_RAD_S = 1.0, 0.1  # deviation from gravity and from rest: a late detection of the start costs little
EARLIER_S = 0.2  # s before that, when it is still at rest

Event = tuple[float, str, Record]  # s, topic, record


def released_at(force_t: Array, force: Array, omega_t: Array, omega: Array) -> float:
    """Return the time (s) shortly before the first acceleration, force (N, 3) m/s^2, or rotation, omega (M, 3) rad/s."""
    off_m_s2 = np.abs(np.linalg.norm(force, axis=1) - GRAVITY)
    pushed = force_t[off_m_s2 > PUSHED_M_S2]
    turned = omega_t[np.linalg.norm(omega, axis=1) > TURNED_RAD_S]
    first = min([*pushed[:1], *turned[:1], force_t[-1]])
    return max(float(first) - EARLIER_S, float(force_t[0]))


def imu_events(t: Array, force: Array, omega: Array) -> list[Event]:
    """Return samples at times (N,) s of specific forces (N, 3) m/s^2 and rates (N, 3) rad/s."""
    rows = zip(t.tolist(), force.tolist(), omega.tolist(), strict=True)
    return [(stamp, "/imu", {"t": stamp, "accel": f, "gyro": w}) for stamp, f, w in rows]


def in_order(events: list[Event]) -> Iterator[tuple[str, Record]]:
    """Yield topics and records by time; those of one time in the order given."""
    for _, topic, record in sorted(events, key=lambda event: event[0]):
        yield topic, record
