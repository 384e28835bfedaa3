"""Contact response: impulse laws, and the consequences for a run."""

import numpy as np
import pytest

from gate_racer.link.messages import Arm, AttitudeTarget
from gate_racer.link.profile import load_profile
from gate_racer.sim.physics.contact import Colliders, body_of, strike
from gate_racer.sim.physics.jit import record
from gate_racer.sim.physics.plant import RatesPlant
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Obstacle, Start, Track
from gate_racer.vehicle.rotation import from_euler, matrix
from gate_racer.vehicle.vehicle import load_vehicle

BOX = Obstacle((20.0, -2.0, -4.0), (21.0, 2.0, 2.0))
GATE = Gate((5.0, 0.0, -2.0), 0.0, 0.0, 1.5, 2.7, 0.26)
TRACK = Track("test", Start((0, 0, 0), 0.0), Bounds((-5, -20, -20), (50, 20, 0.1)), (GATE,), False, None, "", (BOX,))
LEVEL = (1.0, 0.0, 0.0, 0.0)


def state(p, v=(0.0, 0.0, 0.0), q=LEVEL, w=(0.0, 0.0, 0.0)):
    return np.array([*p, *q, *v, *w])


def parts(dcl):
    world = Colliders(TRACK)
    return world, record(body_of(dcl)), np.zeros(len(world.things))


def momenta(x, body):
    R, J = matrix(x[3:7]), np.array(body.inertia)
    linear = body.mass * x[7:10]
    return linear, np.cross(x[:3], linear) + R @ (J * x[10:13])


def energy(x, body):
    return 0.5 * body.mass * x[7:10] @ x[7:10] + 0.5 * x[10:13] @ (np.array(body.inertia) * x[10:13])


@pytest.mark.parametrize("seed", range(3))
def test_an_impulse_obeys_newton_and_coulomb_and_adds_no_energy(seed):
    body = record(body_of(load_vehicle("kolibri")))
    rng = np.random.default_rng(seed)
    q = rng.normal(size=4)
    x = state(rng.normal(size=3), rng.normal(0, 5, 3), q / np.linalg.norm(q), rng.normal(0, 3, 3))
    point = x[:3] + rng.uniform(-0.06, 0.06, 3)
    normal = rng.normal(size=3)
    normal /= np.linalg.norm(normal)

    def slip(y):
        return y[7:10] + matrix(y[3:7]) @ np.cross(y[10:13], matrix(y[3:7]).T @ (point - y[:3]))

    if slip(x) @ normal > 0:
        normal = -normal
    before = x.copy()
    size = strike(x, normal, point, body)
    change = body.mass * (x[7:10] - before[7:10])
    assert size == pytest.approx(np.linalg.norm(change)) and size > 0
    turned = momenta(x, body)[1] - momenta(before, body)[1]
    assert turned == pytest.approx(np.cross(point, change))  # the impulse acts at the point
    along = change @ normal
    assert np.linalg.norm(change - along * normal) <= body.friction * along + 1e-9
    assert energy(x, body) <= energy(before, body) + 1e-9


def test_a_central_blow_rebounds_by_the_restitution(dcl):
    _, body, _ = parts(dcl)
    x = state((0, 0, 0), (8.0, 0, 0))
    impulse = strike(x, np.array([-1.0, 0, 0]), np.array([0.14, 0, 0]), body)
    assert x[7:13] == pytest.approx([-8.0 * dcl.contact.restitution, 0, 0, 0, 0, 0])
    assert impulse == pytest.approx(8.0 * (1 + dcl.contact.restitution))  # per mass: dcl's is not known
    x = state((0, 0, 0), (-1.0, 0, 0))  # and one that parts already is left alone
    assert strike(x, np.array([-1.0, 0, 0]), np.array([0.14, 0, 0]), body) == 0 and x[7] == -1


@pytest.mark.parametrize(
    ("what", "p", "q", "thing"),
    [
        ("free air", (0, 0, -2), LEVEL, []),
        ("the middle of the opening", (5, 0, -2), LEVEL, []),
        ("a side bar, astride the frame", (5, 0.65, -2), LEVEL, [("gate", 0)]),
        ("the upper bar from the front", (4.75, 0, -3.0), LEVEL, [("gate", 0)]),
        ("just before the upper bar", (4.72, 0, -3.0), LEVEL, []),
        ("beside the outer edge", (5, 1.5, -2), LEVEL, []),
        ("a corner of the frame", (5, 1.3, -3.3), LEVEL, [("gate", 0)]),
        ("an obstacle", (19.9, 1.0, -1.0), LEVEL, [("obstacle", 0)]),
        ("over the obstacle", (20.5, 0.0, -4.09), LEVEL, []),
        ("over the obstacle, tilted", (20.5, 0.0, -4.09), tuple(from_euler(0, 0.5, 0)), [("obstacle", 0)]),
        ("the floor", (0, 5, 0.05), LEVEL, [("bounds", 2)]),
        ("a wall and the floor", (-4.9, 5, 0.05), LEVEL, [("bounds", 0), ("bounds", 2)]),
    ],
)
def test_it_touches(dcl, what, p, q, thing):
    world, body, _ = parts(dcl)
    assert world.touched(body, np.array(p, float), np.array(q)) == thing, what


@pytest.mark.parametrize("name", ["dcl", "kolibri"])
def test_nothing_tunnels_through_a_thin_frame_at_top_speed(name):
    thin = Gate((5.0, 0.0, -2.0), 0.0, 0.0, 1.45, 2.0, 0.05)
    world = Colliders(Track("thin", TRACK.start, TRACK.bounds, (thin,), False, None))
    vehicle = load_vehicle(name)
    for k in range(12):
        plant = RatesPlant(vehicle, TRACK.start, world)
        plant.place(np.array([3.0 + 0.02 * k, 0.86, -2.0]), np.array(LEVEL), np.array([30.0, 0, 0]))
        hits = [c for n in range(30) for c in plant.advance((n + 1) / 120)]
        assert hits and hits[0].kind == "gate" and plant.x[0] < 5.0


def test_it_comes_to_rest_on_the_floor(dcl):
    plant = RatesPlant(dcl, TRACK.start, Colliders(TRACK))
    plant.place(np.array([0.0, 5.0, -2.0]), from_euler(0.3, 0.4, 1.0), np.array([1.0, 0, 0]))
    for n in range(120 * 6):
        plant.advance((n + 1) / 120)
    assert (
        plant.x[2] == pytest.approx(0.1 - 0.08, abs=2e-3) and abs(plant.x[9]) < 0.3 and np.abs(plant.x[7:9]).max() < 0.1
    )


def test_a_vehicle_sinking_back_before_lift_off_rests_on_its_pad(dcl):
    simulator = Simulator(as_believed(TRACK, dcl), load_profile("spec"), 0)
    simulator.command(Arm(True))
    simulator.command(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.3, True))
    lifted = False
    for n in range(240):
        if n == 9:
            simulator.command(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.0, True))
        simulator.tick()
        lifted = lifted or simulator.truth.p_wb[2] < 0
    assert lifted and simulator.truth.p_wb == pytest.approx(TRACK.start.p_wb)
    assert simulator.referee.race.status is RunStatus.RUNNING


def test_a_hit_ends_the_run_and_the_vehicle_bounces_on(dcl):
    track = Track("one", Start((0, 0, 0), 0.0), TRACK.bounds, (Gate((6, 0, -8), 0, 0, 1.5, 2.7, 0.26),), False, None)
    simulator = Simulator(as_believed(track, dcl), load_profile("spec"), 0)
    simulator.command(Arm(True))
    simulator.command(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.4, True))
    contacts = []
    for n in range(120 * 4):
        if n == 60:  # tip over forward: it falls
            simulator.command(AttitudeTarget(LEVEL, (0.0, -3.0, 0.0), 0.0, True))
        contacts += simulator.tick().contacts
    race = simulator.referee.race
    assert race.status is RunStatus.CRASHED and race.cause == "left the bounds along z"
    assert contacts[0].kind == "bounds" and contacts[0].impulse > 1.0
    assert not simulator.armed and simulator.truth.p_wb[2] < 0.1  # the floor holds
