"""The camera's process draws what it can in time, sends each image when it is due, and tells when that were too few."""

import contextlib
import socket
import time
from functools import partial

import numpy as np

from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.feed import FeedProcess

IMAGES, PERIOD_S = 14, 0.03


class Outlet:
    """Outlet that renders for a while, and sends the image's number."""

    def __init__(self, drawing_s, port):
        self._drawing_s, self._target = drawing_s, ("127.0.0.1", port)

    def datagrams(self, exposure):
        time.sleep(self._drawing_s)
        return [(bytes([exposure.id]), self._target)]

    def close(self):
        pass


def exposed(drawing_s, late_s):
    """The numbers of the images that arrive, and what the process has to say of them."""
    still = np.zeros(3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.bind(("127.0.0.1", 0))
        wire.settimeout(2.0)
        outlet = partial(Outlet, drawing_s, wire.getsockname()[1])
        with contextlib.closing(FeedProcess(outlet)) as feed:
            for k in range(IMAGES):
                assert feed.expose(Exposure(k, 0.0, still, np.array([1.0, 0, 0, 0]), still, still, 0.0, late_s))
                time.sleep(PERIOD_S)
            arrived = []
            with contextlib.suppress(TimeoutError):
                while True:
                    arrived.append(wire.recv(10)[0])
                    wire.settimeout(2.0 if arrived[-1] < IMAGES - 1 else 0.3)
            return arrived, feed.trouble


def test_images_that_arrive_late_hold_up_none_behind_them():
    """Delay images by seven periods: if they were sent one by one, only three would be rendered."""
    arrived, trouble = exposed(0.0, 7 * PERIOD_S)
    assert len(arrived) > IMAGES / 2 and arrived == sorted(set(arrived)) and arrived[-1] == IMAGES - 1
    assert len(arrived) < 0.8 * IMAGES or not trouble


def test_a_slow_renderer_draws_the_newest_image_and_reports_it():
    arrived, trouble = exposed(7 * PERIOD_S, 0.0)
    assert len(arrived) <= 5 and arrived == sorted(set(arrived)) and arrived[-1] == IMAGES - 1
    assert trouble.startswith(f"only {len(arrived)} of {IMAGES} images were rendered") and "--lockstep" in trouble
