"""A vehicle on the pad: what its IMU's noise explains is no motion, a push or a turn is."""

import numpy as np
import pytest

from gate_racer.link.messages import Imu
from gate_racer.pilot.handshake import SAMPLES, RestWatch


def samples(seed, accel_noise, gyro_noise, push=0.0, turn=0.0, n=240, hz=60.0):
    """Return samples at rest for the first half, then with a force (m/s^2) along x and a body rate (rad/s) about z."""
    rng = np.random.default_rng(seed)
    for k in range(n):
        late = k >= n // 2
        accel = np.array([push * late, 0.0, -9.81]) + rng.normal(0.0, accel_noise, 3)
        gyro = np.array([0.0, 0.0, turn * late]) + rng.normal(0.0, gyro_noise, 3)
        yield Imu(k / hz, tuple(accel), tuple(gyro))


def first_moved(watch, stream):
    """Number of the first sample that shows a motion; None without."""
    return next((k for k, sample in enumerate(stream) if watch.moved(sample)), None)


@pytest.mark.parametrize(
    ("accel_noise", "gyro_noise"), [(0.0, 0.0), (0.1, 0.01), (1.5, 0.06)], ids=["silent", "quiet", "loud"]
)
@pytest.mark.parametrize("seed", range(7))
def test_noise_alone_is_no_motion(accel_noise, gyro_noise, seed):
    assert first_moved(RestWatch(), samples(seed, accel_noise, gyro_noise)) is None


@pytest.mark.parametrize(
    ("motion", "accel_noise"),
    [({"push": 3.0}, 0.1), ({"push": -8.0}, 1.5), ({"turn": 0.6}, 0.1), ({"turn": -0.6}, 1.5)],
    ids=["a push", "a harder one, with a loud IMU", "a turn", "a turn, with a loud IMU"],
)
def test_a_motion_is_seen_within_a_window_of_samples(motion, accel_noise):
    first = first_moved(RestWatch(), samples(3, accel_noise, 0.01, **motion))
    assert first is not None and 120 <= first < 120 + SAMPLES
