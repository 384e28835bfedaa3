"""The batch as a public interface: the same flights as one by one, whole resets, threads, and shapes that are refused."""

import numpy as np
import pytest

from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics.batch import FEW, Batch
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.lanes import LANES
from gate_racer.sim.physics.plant import make_plant
from gate_racer.sim.physics.registry import SETTINGS
from gate_racer.vehicle.vehicle import load_vehicle

N, DT = LANES + 5, 1 / 120
KINDS = [("dcl", 1), ("kolibri", 3)]


def flown(vehicle, setting, colliders=None, steps=12, batch=None, **options):
    """Random vehicles about the first gate of VQ1, some of which hit it."""
    rng = np.random.default_rng(1)
    batch = batch or Batch(vehicle, SETTINGS[setting], N, colliders, **options)
    x = np.zeros((N, 13))
    x[:, :3] = rng.uniform([-25, -2, -3], [-21, 2, 1], (N, 3))
    x[:, 3], x[:, 7:10] = 1.0, rng.normal(0, 8, (N, 3))
    batch.reset(x=x)
    hits = np.zeros_like(batch.impulses)
    for _ in range(steps):
        batch.step(rng.normal(0, 4, (N, 3)), rng.uniform(-0.2, 1.2, N), DT, rng.normal(0, 3, (N, 3)))
        hits += batch.impulses
    return batch, hits


@pytest.mark.parametrize(("name", "setting"), KINDS)
def test_contacts_change_only_the_vehicles_that_hit(vq1, name, setting):
    vehicle, world = load_vehicle(name), Colliders(vq1)
    free, _ = flown(vehicle, setting)
    batch, hits = flown(vehicle, setting, world)
    hit = hits.any(1)
    assert 2 <= hit.sum() < N, "some hit, some do not"
    assert np.array_equal(batch.state[~hit], free.state[~hit])
    assert not np.allclose(batch.state[hit], free.state[hit])
    three, again = flown(vehicle, setting, world, threads=3)
    three.close()
    assert np.array_equal(batch.state, three.state) and np.array_equal(hits, again), "threads change nothing"


@pytest.mark.parametrize(("name", "setting"), KINDS)
@pytest.mark.parametrize("n", [FEW, LANES, LANES + FEW])
def test_a_batch_is_bit_identical_to_its_vehicles_one_by_one(name, setting, n):
    vehicle, rng = load_vehicle(name), np.random.default_rng(2)
    side_by_side = Batch(vehicle, SETTINGS[setting], n)
    alone = [Batch(vehicle, SETTINGS[setting], 1) for _ in range(n)]
    side_by_side.x[:, 3:] = rng.normal(0, 3, (n, 10))
    side_by_side.x[:, 3:7] /= np.linalg.norm(side_by_side.x[:, 3:7], axis=1)[:, None]
    for i in range(n):
        alone[i].state[:] = side_by_side.state[i]
    for _ in range(5):
        omega, throttle, residual = rng.normal(0, 5, (n, 3)), rng.uniform(-0.1, 1.1, n), rng.normal(0, 1, (n, 3))
        side_by_side.step(omega, throttle, DT, residual)
        for i in range(n):
            alone[i].step(omega[i : i + 1], throttle[i : i + 1], DT, residual[i : i + 1])
    assert np.array_equal(side_by_side.state, [batch.state[0] for batch in alone])


@pytest.mark.parametrize(("name", "setting"), KINDS)
def test_a_reset_leaves_nothing_of_the_flight_before(name, setting):
    batch, _ = flown(load_vehicle(name), setting)
    before = batch.state.copy()
    batch.reset([1, 3])
    fresh = Batch(load_vehicle(name), SETTINGS[setting], 1).state[0]
    assert np.array_equal(batch.state[1], fresh) and np.array_equal(batch.state[3], fresh)
    assert np.array_equal(np.delete(batch.state, [1, 3], 0), np.delete(before, [1, 3], 0))
    again, _ = flown(load_vehicle(name), setting, batch=batch)
    assert np.array_equal(again.state, before), "motors, controller and battery began anew"


@pytest.mark.parametrize(
    ("omega", "throttle", "dt"),
    [((N, 2), N, DT), ((N, 3), N + 1, DT), ((1, 3), N, DT), ((N, 3), N, 0.0), ((N, 3), N, np.nan)],
)
def test_arrays_of_another_shape_are_refused(dcl, omega, throttle, dt):
    with pytest.raises(ValueError, match=f"\\({N}, 3\\)"):
        Batch(dcl, SETTINGS[1], N).step(np.zeros(omega), np.zeros(throttle), dt)


@pytest.mark.parametrize(("name", "setting"), KINDS)
def test_a_batch_flies_as_its_plants_would_alone(name, setting, vq1):
    vehicle, rng, world = load_vehicle(name), np.random.default_rng(0), Colliders(vq1)
    batch = Batch(vehicle, SETTINGS[setting], 4, world)
    batch.x[:, :3], batch.x[:, 7:10] = vq1.gates[0].p_wg, rng.normal(0, 3, (4, 3))
    omega, throttle = rng.normal(0, 2, (4, 3)), rng.uniform(0.3, 0.6, 4)
    alone = []
    for i in range(4):
        plant = make_plant(vehicle, vq1.start, SETTINGS[setting], world)
        plant.place(batch.x[i, :3], batch.x[i, 3:7], batch.x[i, 7:10])
        plant.command(
            -vehicle.command_delay_s, AttitudeTarget((1.0, 0, 0, 0), tuple(omega[i]), float(throttle[i]), True)
        )
        alone.append(plant)
    for k in range(60):
        batch.step(omega, throttle, 1 / 120)
        for plant in alone:
            plant.advance((k + 1) / 120)
    assert batch.x == pytest.approx(np.array([plant.x[:13] for plant in alone]), abs=1e-9)
