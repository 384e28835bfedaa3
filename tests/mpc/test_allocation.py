"""A command that the rotors can follow."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.mpc.model import Allocation
from gate_racer.sim.physics.plant import MixedRates, mixed
from gate_racer.vehicle.vehicle import load_vehicle


def commands(vehicle, count=2000):
    """Body rates (3,) and commands (4,), within the vehicle's limits."""
    rng, most = np.random.default_rng(0), np.array(vehicle.rate_max_rad_s)
    for _ in range(count):
        calm = rng.uniform(0, 1) ** 2
        w = rng.uniform(-most, most)
        yield (
            w,
            np.append(np.clip(w + calm * rng.uniform(-most, most), -most, most), rng.uniform(0, vehicle.thrust_max)),
        )


def followed(vehicle, w, u):
    """Return the inputs that the plant's rotors realise at body rates w, with the thrust as commanded."""
    return np.array(mixed(np.array([*np.zeros(10), *w, u[3]]), u, MixedRates.of(vehicle)))


def test_roll_and_pitch_are_followed_where_rotors_can(dcl):
    allocation, reach = Allocation(dcl), np.array(dcl.rate_lag_s) * dcl.slew_max
    followable = 0
    for w, u in commands(dcl):
        within = allocation.within(u, w)
        assert within[:2] == pytest.approx(u[:2]) and within[3] <= u[3] + 1e-9
        tilting = np.sum(np.abs(u[:2] - w[:2]) / reach[:2])
        if tilting <= min(1.0, 2 * (1 - within[3] / dcl.thrust_max)) + 1e-9:
            followable += 1
            assert followed(dcl, w, within)[:3] == pytest.approx(within[:3], abs=1e-6)
    assert followable > 1000


def test_allocated_commands_keep_thrust_in_a_yielding_mixer():
    archer = load_vehicle("archer")
    allocation, half, lowered, withheld = Allocation(archer), archer.thrust_max / 2, 0, 0
    for w, u in commands(archer):
        within = allocation.within(u, w)
        if u[3] > half:
            assert followed(archer, w, within)[3] == pytest.approx(within[3])
            lowered += followed(archer, w, u)[3] < u[3] - 1.0
            # No thrust is withheld that the mixer would give beside the turn.
            assert followed(archer, w, np.append(within[:3], u[3]))[3] == pytest.approx(within[3])
            withheld += within[3] < u[3]
    assert lowered > 100 and withheld > 100


def test_yaw_takes_no_roll_or_pitch_torque_in_a_yielding_mixer():
    archer = load_vehicle("archer")
    for w, u in commands(archer):
        roll, pitch, yaw, _ = Allocation(archer).within(u, w)
        turned, alone = (followed(archer, w, np.array([roll, pitch, r, u[3]])) for r in (yaw, w[2]))
        assert turned[:2] == pytest.approx(alone[:2])


def test_a_command_that_is_followed_anyway_is_left_alone(dcl):
    allocation, free, left = Allocation(dcl), Allocation(replace(dcl, mixer=None)), 0
    for w, u in commands(dcl):
        assert np.array_equal(free.within(u, w), u), "where the rotors' range is not known"
        if np.allclose(followed(dcl, w, u)[:3], u[:3]):
            left += 1
            assert np.array_equal(allocation.within(u, w), u)
    assert left > 300
    archer = load_vehicle("archer")  # whose mixer yields
    w, u = np.zeros(3), np.array([7.0, 0.0, 0.0, 0.9 * archer.thrust_max])
    assert np.array_equal(Allocation(archer).within(u, w), u)


def test_yaw_gives_way_before_the_thrust_does(dcl):
    w, u = np.zeros(3), np.array([0.5, 0.0, 5.0, 0.8 * dcl.thrust_max])
    within = Allocation(dcl).within(u, w)
    assert within[3] == u[3] and 0 < within[2] < u[2]
