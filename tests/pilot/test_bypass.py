"""A gate found elsewhere too late is passed beside its frame, and not where it would be hit."""

import numpy as np
import pytest

from estimation.relocation import displaced
from pilot.guidance.bypass import aim_beside


@pytest.fixture
def gate(vq1):
    return displaced(vq1.gates[2], np.array([0.3, -1.0, 0.5]))


def aimed(gate, y, z, radius_m=0.3):
    """Return the aim, in gate axes, of a vehicle whose slanted path would pierce the gate's plane at (y, z)."""
    way_g = np.array([[-4.0, y + 1.0, z - 0.5], [-1.0, y + 0.25, z - 0.125], [2.0, y - 0.5, z + 0.25]])
    return gate.R_wg.T @ aim_beside(gate, gate.p_wg + way_g @ gate.R_wg.T, radius_m)


@pytest.mark.parametrize("y", [-1.0, -0.4, 0.0, 0.4, 1.0])
def test_who_is_nearer_to_the_opening_flies_through_it(gate, y):
    assert not aimed(gate, y, 0.1).any()


@pytest.mark.parametrize(("y", "z"), [(1.3, 0.0), (-1.3, 0.4), (0.2, -1.5), (2.5, 0.0), (-1.9, -2.2)])
def test_who_is_nearer_to_a_place_beside_the_frame_is_led_clear_of_it(gate, y, z):
    x, right, down = aimed(gate, y, z)
    assert x == pytest.approx(0.0)
    assert max(abs(right), abs(down)) > gate.outer_m / 2 + 0.3, "a body of 0.3 m has room"
    assert np.sign(right) == np.sign(y)
    led_m, through_m = np.hypot(right - y, down - z), np.hypot(max(abs(y) - 0.45, 0), max(abs(z) - 0.45, 0))
    assert led_m < through_m


def test_nobody_is_led_below_a_gate(gate):
    _, right, down = aimed(gate, 0.9, 1.7)
    assert abs(right) > gate.outer_m / 2 + 0.3 and down == pytest.approx(1.7)


def test_who_flies_beside_it_already_is_left_alone(gate):
    assert aimed(gate, 2.5, 0.3)[1:] == pytest.approx([2.5, 0.3])


def test_without_a_way_that_pierces_its_plane_nothing_is_said(gate):
    behind = gate.p_wg + np.array([[1.0, 2.0, 0.0], [4.0, 2.0, 0.0]]) @ gate.R_wg.T
    assert not aim_beside(gate, behind, 0.3).any() and not aim_beside(gate, np.empty((0, 3)), 0.3).any()
