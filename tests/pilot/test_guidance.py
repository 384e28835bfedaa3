"""What guidance makes of doubt and of what it sees: its pace, gates off the map, frames in the way, and flight by a policy."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.estimation.estimator import State
from gate_racer.estimation.localisation import displaced
from gate_racer.mpc.policy.policy import load_policy, names
from gate_racer.mpc.registry import make_controller
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.pilot.flight import DetectedImage, EndReason, FlightOptions
from gate_racer.pilot.guidance.evasion import BEGIN_S, FrameEvasion, clear_places, crossing
from gate_racer.pilot.guidance.plan_follower import CIRCLING_S, LATE, SLOWEST, UNSEEN, Caution, GateFollower
from gate_racer.pilot.guidance.protocol import GateObserver
from gate_racer.pilot.pilot import PilotModels, build_free
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import bars, load_track
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import from_euler
from gate_racer.vehicle.vehicle import load_vehicle
from tests.estimation.flying import Flight
from tests.flights import SPEC, flown_by

PERIOD_S, RADIUS_M = 1 / 60, 0.3


def asked(gate, sigma_m, radius_m=RADIUS_M):
    """The pace allowed with one standard deviation in every direction."""
    return Caution(radius_m, PERIOD_S).pace(0.0, gate, np.diag([sigma_m**2] * 3))


def test_the_pace_falls_with_the_doubt_across_the_opening_and_never_to_rest(vq1):
    gate = vq1.gates[0]
    room = gate.half - RADIUS_M
    paces = [asked(gate, share * room) for share in (0.0, 0.49, 0.6, 0.8, 1.0, 5.0, math.inf)]
    assert paces[:2] == [math.inf, math.inf] and paces[-3:] == pytest.approx([SLOWEST] * 3)
    assert paces == sorted(paces, reverse=True) and SLOWEST < paces[3] < paces[2] < 1
    cov = np.diag([0.01, 0.4, 0.01]) ** 2
    assert Caution(RADIUS_M, PERIOD_S).pace(0.0, vq1.gates[0], cov) == pytest.approx(asked(vq1.gates[0], 0.4))
    gate, sure, caution = vq1.gates[0], 1e-6 * np.eye(3), Caution(RADIUS_M, PERIOD_S)
    along, *across = (0.4**2 * np.outer(axis, axis) for axis in gate.R_wg.T)
    assert caution.pace(0.0, gate, sure, along) == math.inf
    assert [caution.pace(0.0, gate, sure, cov) for cov in across] == pytest.approx([asked(gate, 0.4)] * 2)


@pytest.mark.parametrize(("cov", "radius_m"), [(None, RADIUS_M), (np.eye(3), 2.0)])
def test_without_doubt_or_without_room_nothing_is_slowed(cov, radius_m, vq1):
    assert Caution(radius_m, PERIOD_S).pace(0.0, vq1.gates[0], cov) == math.inf


def test_a_gate_is_looked_for_while_its_place_across_the_opening_is_in_doubt(vq1):
    gate, caution = vq1.gates[0], Caution(RADIUS_M, PERIOD_S)
    sigma = 1.1 * UNSEEN * (gate.half - RADIUS_M)
    along, *across = (sigma**2 * np.outer(axis, axis) for axis in gate.R_wg.T)
    assert not caution.looks(gate, along) and all(caution.looks(gate, cov) for cov in across)
    assert not caution.looks(gate, 0.5 * across[0]) and not caution.looks(gate, None)
    assert not Caution(2.0, PERIOD_S).looks(gate, across[0]), "nobody fits"


@pytest.mark.parametrize(("hz", "pace"), [(60.0, math.inf), (50.0, math.inf), (30.0, LATE * 0.5), (5.0, SLOWEST)])
def test_steered_less_often_it_flies_slower(hz, pace, vq1):
    caution, gate = Caution(RADIUS_M, PERIOD_S), vq1.gates[0]
    paces = [caution.pace(k / hz, gate, None) for k in range(round(5 * hz))]
    assert paces[-1] == pytest.approx(pace, rel=0.01)


# Gates that the camera shows from the pad are looked for where they stand, before anything flies.


STEP = np.array([-0.7, 1.8, 0.0])


@pytest.fixture
def pad(dcl):
    """Return observer, images and estimator at rest on VQ2's pad, with the first gate 2 m off the map."""
    track, rng = load_track("vq2"), np.random.default_rng(4)
    flight = Flight(track, dcl)
    p_wc, R_wc = dcl.camera.pose(track.start.p_wb, track.start.q_wb)
    px = dcl.camera.project((displaced(track.gates[0], STEP).corners() - p_wc) @ R_wc)
    images = [
        DetectedImage(k / 30, k, [Detection.whole(px + rng.normal(0, 0.2, (4, 2)), 0.2, 1.0)], b"") for k in range(20)
    ]
    return GateObserver(Associator(track.gates, dcl.camera), track.gates), images, flight.estimator


def test_a_gate_off_the_map_is_found_from_the_pad(pad):
    observer, images, estimator = pad
    observer.end_of_rest(images, estimator, {0})
    assert np.linalg.norm(observer.moved(0) - STEP) < 0.5
    error = STEP - observer.moved(0) - estimator.gate_offset(0, observer.moved(0))
    assert error @ np.linalg.solve(estimator.gate_covariance(0, np.zeros(3)), error) < 16.3, "its doubt is honest"


def test_nobody_looks_for_gates_that_are_not_asked_for(pad):
    observer, images, estimator = pad
    observer.end_of_rest(images, estimator, {1})
    observer.end_of_rest(images, estimator)
    assert not observer.moved(0).any() and not observer.moved(1).any()


# A frame in the way of a gate found too late is not hit: through the opening if it can be reached, else beside or above it.


BODY_M, FLOOR_M = 0.3, 1.5
P, Q, V = (RATES_X[name].at for name in "pqv")


@pytest.fixture
def gate(vq1):
    return vq1.gates[2]


def in_gate(gate, p_g, v_g):
    """A vehicle (14,) at p_g (3,) m with v_g (3,) m/s in the gate's axes, upright."""
    x = np.zeros(RATES_X.size)
    x[P], x[V] = gate.p_wg + gate.R_wg @ p_g, gate.R_wg @ v_g
    x[Q] = from_euler(0.0, 0.0, np.radians(gate.yaw_deg))
    return x


def test_where_the_plane_is_crossed_without_thrust(gate):
    seconds, place, slope = crossing(gate, in_gate(gate, [-8.0, 1.0, -0.5], [20.0, -2.0, 1.0]), ((0.0, 0.0, 0.0), 0.0))
    assert (seconds, *place, *slope) == pytest.approx((0.4, 0.2, -0.1, -0.1, 0.05))
    braked, same, _ = crossing(gate, in_gate(gate, [-8.0, 1.0, -0.5], [20.0, -2.0, 1.0]), ((0.0, 0.0, 0.0), 0.05))
    assert same == pytest.approx(place) and braked == pytest.approx((np.exp(0.05 * 8.09) - 1) / 0.05 / 20.1, rel=0.05)
    assert crossing(gate, in_gate(gate, [0.1, 0.0, 0.0], [20.0, 0.0, 0.0]), ((0.0, 0.0, 0.0), 0.0)) is None
    assert crossing(gate, in_gate(gate, [-8.0, 0.0, 0.0], [-20.0, 0.0, 0.0]), ((0.0, 0.0, 0.0), 0.0)) is None


@pytest.mark.parametrize("slope", [0.0, 0.8])
def test_places_are_clear_of_the_frame_and_those_outside_above_the_floor(gate, slope):
    rng, aside = np.random.default_rng(3), gate.outer_m / 2 + BODY_M
    for p0 in rng.uniform(-3, 3, (100, 2)):
        through, *beside = clear_places(gate, p0, np.array([slope, 0.0]), BODY_M, FLOOR_M)
        assert np.abs(through).max() <= gate.half - BODY_M
        assert all((abs(y) > aside or z < -aside) and z < FLOOR_M for y, z in beside)


def test_who_is_clear_of_the_frame_already_may_fly_on(gate):
    straight = np.zeros(2)
    for p0 in (np.array([0.1, -0.2]), np.array([2.5, 0.3]), np.array([0.3, -2.5])):
        assert any(place == pytest.approx(p0) for place in clear_places(gate, p0, straight, BODY_M, FLOOR_M))


@pytest.mark.parametrize("p0", [(1.0, 0.0), (-1.2, 0.3), (0.3, -1.1), (0.9, -0.9)])
@pytest.mark.parametrize("begin_s", [0.3, 0.36])
def test_the_vehicle_flies_clear_of_the_frame(p0, begin_s, gate, vq1, plan, dcl):
    controller = make_controller("mpcc", plan, dcl, vq1)
    evasion, v_g = FrameEvasion(controller, dcl, dcl.contact_radius_m, vq1.bounds), np.array([25.0, 2.0, -1.0])
    x, t, dt = in_gate(gate, np.array([0.0, *p0]) - begin_s * v_g, v_g), 0.0, 1 / 60
    model, predictor = controller.disturbance.parameters, controller.predictor
    path = []
    while gate.local(x[P])[0] < 0.5 and t < 2 * BEGIN_S:
        assert (evasion.step(gate, x, t, 0.0) is not None) == (gate.local(x[P])[0] <= 0)
        x[RATES_X["c"].at] = predictor.thrust_at(t)
        x, t = predictor.fly(x, t, t + dt, model), t + dt
        path.append(x[P].copy())
    assert gate.local(x[P])[0] >= 0.5
    a, b = np.array(path[:-1]), np.array(path[1:])
    fine = np.concatenate([a + s * (b - a) for s in np.linspace(0, 1, 8)])
    assert min(bar.distance(fine).min() for bar in bars(gate)) > dcl.half_diagonal


@pytest.mark.parametrize(("axis", "side"), [(2, "above"), (1, "beside")])
def test_nobody_evades_to_where_the_bounds_leave_no_room_to_stop(axis, side, gate, vq1, plan, dcl):
    controller, v_g = make_controller("mpcc", plan, dcl, vq1), np.array([20.0, 0.0, 0.0])
    p0 = np.array([0.0, 0.2, -1.4]) if side == "above" else np.array([0.0, 1.4, 0.2])
    x, clear = in_gate(gate, p0 - 0.25 * v_g, v_g), gate.outer_m / 2 + BODY_M

    def crossed(bounds):
        """Where the plane is crossed on the way first chosen, right and down."""
        evasion = FrameEvasion(controller, dcl, BODY_M, bounds)
        found = crossing(gate, x, (dcl.rates_parameters.drag_linear, dcl.rates_parameters.drag_quadratic))
        accel = gate.R_wg.T @ evasion._acceleration(gate, x, *found)
        return (p0 + accel * found[0] ** 2 / 2)[axis]

    low, high = np.array(vq1.bounds.low_m), np.array(vq1.bounds.high_m)
    assert abs(crossed(vq1.bounds)) > clear
    low[axis], high[axis] = gate.p_wg[axis] - 2.0, gate.p_wg[axis] + 2.0
    assert abs(crossed(replace(vq1.bounds, low_m=tuple(low), high_m=tuple(high)))) < clear


# Flight by a policy: gates count as they do with a plan, and the shipped one races.


LEVEL = np.array([1.0, 0, 0, 0])


class Map:
    """Stub of an estimator with the members that guidance uses: all gates have this offset from the map."""

    def __init__(self, offset_w=(0.0, 0.0, 0.0)):
        self.offset_w = np.array(offset_w)

    def gate_offset(self, gate, at_w):
        return self.offset_w


class Asked:
    """Stub of a controller that records the calls of guidance."""

    def step(self, t, x, gate):
        self.x, self.gate = x, gate


@pytest.fixture(scope="module")
def swift_course():
    return load_track("splits_swift")


@pytest.fixture
def guidance(swift_course):
    observer = SimpleNamespace(moved=lambda gate: np.zeros(3))
    return GateFollower(swift_course, 1, Asked(), observer)


def placed(t, p_w):
    return State(t, np.asarray(p_w, float), LEVEL, np.zeros(3), np.zeros(3), np.zeros((9, 9)), 0.0)


def through(guidance, gate, t, aside=0.0, offset=0.0, ground=None):
    """Steps before and behind a gate, `aside` m of its middle; ends of the second one."""
    ends = []
    for k, along in enumerate((-0.5, 0.5)):
        p = gate.p_wg + along * gate.R_wg[:, 0] + aside * gate.R_wg[:, 1] + offset
        ends.append(guidance.judge(placed(t + 0.1 * k, p), t + 0.1 * k, 0.0, ground or Map()))
    return ends[-1]


def test_gates_count_in_their_order_and_the_last_one_ends_the_flight(guidance, swift_course):
    for k, gate in enumerate(swift_course.gates):
        assert len(guidance.passages.times_s) == k
        other = swift_course.gates[(k + 2) % len(swift_course.gates)]
        assert through(guidance, other, k) is None and len(guidance.passages.times_s) == k, "not its turn"
        assert through(guidance, gate, k, aside=1.2) is None and len(guidance.passages.times_s) == k, "missed"
        end = through(guidance, gate, k + 0.5, aside=0.3)
        assert guidance.passages.times_s[-1] == pytest.approx(k + 0.55)
        assert guidance.passages.margins_m[-1] == pytest.approx(gate.half - 0.3)
    assert end is not None and end.reason is EndReason.FINISHED
    guidance.step(placed(10.0, (0, 0, -2)), 10.0, 0.0, Map())
    assert guidance._controller.gate == swift_course.gates[0], "a closed course goes on"


def test_a_gate_off_the_map_is_flown_at_and_counted_where_it_stands(guidance, swift_course):
    off = np.array([0.2, 2.0, -0.1])
    guidance.step(placed(0.0, swift_course.gates[0].p_wg + off), 0.0, 0.0, Map(off))
    assert guidance._controller.x[:3] == pytest.approx(swift_course.gates[0].p_wg), (
        "seen as if the gate stood on the map"
    )
    through(guidance, swift_course.gates[0], 0.0, offset=off, ground=Map(off))
    assert guidance.passages.margins_m == pytest.approx([swift_course.gates[0].half])


def test_one_that_circles_for_ever_is_ended(guidance):
    assert guidance.judge(placed(1.0, (0, 0, -2)), 1.0, 0.0, Map()) is None
    end = guidance.judge(placed(CIRCLING_S + 0.1, (0, 0, -2)), CIRCLING_S + 0.1, 0.0, Map())
    assert end is not None and end.reason is EndReason.TIME_LIMIT


@pytest.mark.parametrize("name", names())
def test_the_shipped_one_races_by_camera_and_imu(name):
    policy = load_policy(name)
    swift_course, vehicle = load_track(policy.about.track), load_vehicle(policy.about.vehicle)
    pilot = build_free(PilotModels.of(swift_course, vehicle, SPEC), name, FlightOptions())

    def status(pilot):
        if len(pilot.guidance.passages.times_s) == 3:
            pilot.abort(EndReason.INTERRUPTED, "that is enough")

    verdict = flown_by(pilot, as_believed(swift_course, vehicle), vehicle, SPEC, 0, status)
    assert pilot.cause == "that is enough" and len(verdict.gate_times_s) == 3 and min(verdict.gate_margins_m) > 0
    assert verdict.gate_times_s == pytest.approx(pilot.guidance.passages.times_s, abs=0.1)
