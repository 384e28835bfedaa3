"""Laws of the predicted covariance: it is the spread of flights of its model, grows without sight, mirrors with its course."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.model.states import B_A, B_G, S_A, S_G, THETA, P, V
from gate_racer.planner.certificate.certificate import certify
from gate_racer.planner.plan import read_plan
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.planner.uncertainty import covariance, prediction
from gate_racer.planner.uncertainty.risk import ACTIVE_M, reallocated, stated
from gate_racer.tracks.gate import CLEAR_M
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import G_W
from gate_racer.vehicle.rotation import conjugate, exp, from_matrix, log, product, rotate
from gate_racer.vehicle.uncertainty import Doubt
from gate_racer.vehicle.vehicle import load_vehicle
from tests.planner.test_planner import SOLVED, gate, mirrored, straight

ONE = PlanOptions(guesses=1)
DOUBT = Doubt()


@pytest.fixture(scope="module")
def task(vq1, dcl):
    return Task(vq1, dcl, ONE)


@pytest.fixture(scope="module")
def path(plan, dcl):
    return covariance.motion(plan, dcl, covariance.IMU_HZ)


@pytest.fixture(scope="module")
def images(path, task):
    return covariance.in_view(path, task)


def flown_to(path, plan):
    passed = plan.gate_times_s
    return np.minimum(passed.searchsorted(path.t), len(passed) - 1)


def least(cov):
    """The least eigenvalue of each (M, n, n), over the greatest."""
    values = np.linalg.eigvalsh(cov)
    return values[..., 0] / values[..., -1]


def integrated(path, off):
    """The end of a strap-down integration that begins with errors (SIZE,) and has the sensors' own all the way."""
    q, p, v = product(from_matrix(path.R_wb[0]), exp(off[THETA])), path.p_w[0] + off[P], path.v_w[0] + off[V]
    for k, dt in enumerate(np.diff(path.t)):
        f, w = path.force_b[k], path.omega_b[k]
        a = rotate(q, f - off[B_A] - f * off[S_A]) + G_W
        p, v = p + dt * v + dt**2 / 2 * a, v + dt * a
        q = product(q, exp(dt * (w - off[B_G] - w * off[S_G])))
    return p, v, q


def drifted(path, off):
    """Errors (9,) at the end of an integration."""
    (p, v, q), (ideal_p, ideal_v, ideal_q) = integrated(path, off), integrated(path, np.zeros(covariance.SIZE))
    return np.concatenate([p - ideal_p, v - ideal_v, log(product(conjugate(ideal_q), q))])


def test_errors_grow_as_an_integration_with_wrong_sensors_drifts(path):
    part = covariance.Motion(*(values[60:110] for values in vars(path).values()))
    F = np.eye(22)
    for step in covariance.transitions(part):
        F[:9] = step @ F
    rng = np.random.default_rng(0)
    for block, size in ((P, 0.1), (V, 0.1), (THETA, 1e-3), (B_A, 0.05), (B_G, 1e-3), (S_A, 2e-3), (S_G, 1e-3)):
        off = np.zeros(covariance.SIZE)
        off[block] = size * rng.standard_normal(3)
        found, linear = drifted(part, off), F[:9] @ off[:22]
        for error in (P, V, THETA):
            assert np.linalg.norm(found[error] - linear[error]) <= 0.05 * np.linalg.norm(found) + 1e-6


def test_an_edge_seen_elsewhere_on_the_wall_moves_its_corner(task, path):
    """The depth is along the gate's axis; all other columns are those of `model.reprojection`."""
    gate, camera, k = task.track.gates[1], task.vehicle.camera, 130
    H = covariance.Sights(task.track, camera).jacobian(covariance.Sighting(1, np.ones(4, bool), 20.0), 2, path, k)

    def seen(depth_m):
        p_b = (gate.corners() + depth_m * gate.R_wg[:, 0] - path.p_w[k]) @ path.R_wb[k]
        return camera.project((p_b - camera.p_bc) @ camera.R_bc).ravel()

    assert (seen(1e-5) - seen(-1e-5)) / 2e-5 == pytest.approx(H[:, covariance.DEPTH.start + 2], rel=1e-3, abs=1e-3)
    assert not H[:, covariance.DEPTH.start : covariance.DEPTH.start + 2].any()


def test_more_is_never_more_doubt(task, path, plan, images):
    """Sharper corners, gates recognised sooner, or at all, leave less; what is left is a covariance all along."""
    to = flown_to(path, plan)
    sharp = covariance.estimate_covariance(path, images, to, task, DOUBT)
    wide = replace(DOUBT, corner_px=3 * DOUBT.corner_px, cut_px=3 * DOUBT.cut_px)
    blurred = covariance.estimate_covariance(path, images, to, task, wide)
    track = replace(task.track, gates=tuple(replace(gate, visible=False) for gate in task.track.gates))
    unseen = covariance.in_view(path, replace(task, track=track))
    blind = covariance.estimate_covariance(path, unseen, to, task, DOUBT)
    late = covariance.estimate_covariance(path, covariance.recognised(images, 3), to, task, DOUBT)
    assert not any(unseen)
    assert (least(sharp.cov) > 0).all() and (least(blind.cov) > 0).all()
    assert (least(blurred.cov - sharp.cov) > -1e-9).all() and (least(blind.cov - blurred.cov) > -1e-9).all()
    assert (least(late.cov - sharp.cov) > -1e-9).all() and (late.across_m >= sharp.across_m - 1e-9).all()
    assert not blind.moved.any() and (np.linalg.eigvalsh(sharp.moved)[:, 0] > -1e-9).all()
    assert blind.cov[-1, 0, 0] > 100 * sharp.cov[-1, 0, 0]


def test_a_loop_spreads_as_many_of_its_flights_do(task, path, plan, images):
    estimate = covariance.estimate_covariance(path, images, flown_to(path, plan), task, DOUBT)
    cov = prediction.tracking_covariance(path, estimate, task, DOUBT)
    rng, count, n = np.random.default_rng(2), 2000, prediction.LOOP.size
    off = np.zeros((n, count))
    sigma = np.array([DOUBT.thrust, DOUBT.drag, DOUBT.response_s, 0.0, DOUBT.wind_m_s, DOUBT.wind_m_s, 0.0])
    off[12:] = sigma[:, None] * rng.standard_normal((7, count))
    for k, step in enumerate([np.eye(n), *prediction.transitions(path, task.vehicle)]):
        off = step @ off
        values, turn = np.linalg.eigh(estimate.moved[k])
        off[:6] += turn @ (np.sqrt(np.maximum(values, 0.0))[:, None] * rng.standard_normal((6, count)))
    assert np.sqrt((off[:6] ** 2).mean(axis=1)) == pytest.approx(np.sqrt(cov[-1].diagonal()), rel=0.08)


def test_a_mirrored_flight_has_mirrored_doubt(task, plan, dcl):
    """East for west: right and left change places, up and down do not. The camera is half a pixel off its middle."""
    x = plan.x * [1, -1, 1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1]  # p, q, v, w, c
    other, there = replace(plan, x=x, u=plan.u * [-1, 1, -1, 1]), replace(task, track=mirrored(task.track))
    there = prediction.predict(other, there, DOUBT)
    for one, two in zip(prediction.predict(plan, task, DOUBT).crossings, there.crossings, strict=True):
        assert two.tails.spread_m == pytest.approx(one.tails.spread_m[[0, 3, 2, 1]], rel=0.03)
        assert two.drawn_m == pytest.approx(one.drawn_m * [-1, 1], abs=0.003)
        assert two.distances_m == pytest.approx(one.distances_m[[0, 3, 2, 1]], abs=1e-9)


@pytest.mark.parametrize("total", [1e-5, 1e-3, 0.1])
def test_a_risk_is_shared_out_whole(total):
    rng = np.random.default_rng(3)
    tails, shares = prediction.Tails.normal(rng.uniform(0.01, 0.1, 24)), np.full(24, total / 24)
    room = tails.rooms(shares) * np.where(rng.random(24) < 0.3, 1.0, rng.uniform(1.5, 4.0, 24))
    for _ in range(5):
        after = reallocated(shares, room, tails)
        active = room <= tails.rooms(shares) + ACTIVE_M
        assert after.sum() == pytest.approx(total, rel=1e-12) and (after > 0).all()
        assert (after[active] >= shares[active]).all() and (after[~active] <= shares[~active]).all()
        shares = after
    assert tails.risks(tails.rooms(shares)) == pytest.approx(shares, rel=1e-9)


def test_a_mixture_has_the_shares_of_its_samples():
    rng, count = np.random.default_rng(4), 200_000
    weights = np.array([0.6, 0.3, 0.1])
    means_m, sigmas_m = rng.normal(0.0, 0.1, (2, 3)), rng.uniform(0.02, 0.1, (2, 3))
    tails = prediction.Tails(weights, means_m, sigmas_m)
    case = rng.choice(3, count, p=weights)
    samples = means_m[:, case] + sigmas_m[:, case] * rng.standard_normal((2, count))
    room = tails.rooms(np.array([0.01, 0.2]))
    assert (samples > room[:, None]).mean(axis=1) == pytest.approx([0.01, 0.2], rel=0.1)
    assert samples.std(axis=1) == pytest.approx(tails.spread_m, rel=0.02)
    joined = prediction.Tails.joined([tails]).and_normal(np.array([0.05]))
    assert joined.risks(np.append(room, 0.05)) == pytest.approx([0.01, 0.2, 0.15866], rel=1e-3)


def test_one_sided_laws_have_the_moments_of_their_samples():
    x = np.random.default_rng(6).standard_normal(400_000)
    weights, means, sigmas = np.array(prediction.FALLS_SHORT).T
    short = np.maximum(x, 0.0)
    assert weights.sum() == 1.0 and weights @ means == pytest.approx(short.mean(), rel=0.01)
    assert weights @ (means**2 + sigmas**2) == pytest.approx((short**2).mean(), rel=0.01)
    for limit in (0.0, 0.3, 1.0, 5.0):
        cut = np.minimum(short, limit)
        assert prediction.limited(np.array(1.0), np.array(limit)) == pytest.approx(
            np.sqrt(2 * (cut**2).mean()), rel=0.01, abs=1e-9
        )


def test_a_longer_corridor_draws_more_to_the_middle():
    t, planned = np.linspace(0.0, 0.8, 97), np.array([0.3, -0.1])
    wide, narrow = np.full(97, 0.35), np.full(97, 0.1)
    assert not prediction.displacement(planned, t, wide).any()
    opened = [prediction.displacement(planned, t, np.where(t < at, narrow, wide))[0] for at in (0.2, 0.5, 0.7)]
    always = prediction.displacement(planned, t, narrow)
    assert 0 > opened[0] > opened[1] > opened[2] > always[0] > -0.22 and always[1] == 0.0


def test_frames_and_obstacles_hide_gates_and_openings_do_not(dcl):
    track = straight(gate(12.0), gate(24.0, 2.0), gate(30.0))
    camera = load_vehicle("dcl").camera
    sights, eye_w = covariance.Sights(track, camera), np.array([0.0, 0.0, track.gates[0].p_wg[2]])
    before, beside, last = (one.corners() for one in track.gates)
    assert not sights.hides(eye_w, before) and sights.hides(eye_w, beside) and not sights.hides(eye_w, last)
    pillars = load_track("pillars")
    box = pillars.obstacles[0]
    middle = (np.array(box.low_m) + box.high_m) / 2
    square = middle + 0.1 * np.array([[0, -1, -1], [0, 1, -1], [0, 1, 1], [0, -1, 1]])
    among = covariance.Sights(pillars, camera)
    assert among.hides(middle - [20.0, 0.0, 0.0], square + [5.0, 0.0, 0.0])
    assert not among.hides(middle + [5.0, 0.0, 30.0], square + [0.0, 0.0, 29.0])


def test_a_gate_is_recognised_after_some_images_without_a_gap():
    one, other = covariance.Sighting(0, np.ones(4, bool), 9.0), covariance.Sighting(1, np.ones(4, bool), 12.0)
    images = [[one], [one, other], [one], [one, other], [other], [other]]
    assert covariance.recognised(images, 0) == images
    later = covariance.recognised(images, 2)
    assert [[one.landmark for one in found] for found in later] == [[], [], [0], [0], [], [1]]
    assert sum(probability for _, probability in covariance.RECOGNISED) == pytest.approx(1.0)


def test_more_risk_is_no_slower_and_is_certified(dcl):
    """And views are bought even where none is asked."""
    track, times = straight(gate(12.0), gate(30.0, 3.0, yaw=20.0)), []
    for risk in (1e-3, 1e-2):
        plan, certificate = make_plan(track, dcl, replace(ONE, see=0.0, risk=risk, fast=True))
        assert certificate.ok and certificate.risk.total <= risk
        assert min(certificate.gate_margins_m) > dcl.contact_radius_m + CLEAR_M - 0.01  # inside the corridors
        times.append(plan.total_time)
    assert times[1] <= times[0] + 1e-4
    assert max(certificate.options["see_by_gate"]) > 0
    options = replace(ONE, margin_m=0.0, risk=1e-6, edge_margins_m=((0.0,) * 4,) * 2)
    refused = certify(plan, Task(track, dcl, options), SOLVED)
    assert not refused.ok and "its risk is" in refused.status


@pytest.mark.parametrize("views", [(), (0.3,), (0.3, 0.9), (-0.1, 0.2), (0.1, 0.2, 0.3)])
def test_views_of_another_course_are_refused_in_a_line(dcl, views):
    with pytest.raises(UserError, match=r"see_by_gate: must be a share from 0 to 0.8 for each of 2 gates"):
        Task(straight(gate(12.0), gate(30.0)), dcl, replace(ONE, see_by_gate=views))


def test_the_optimum_at_a_risk_is_certified_and_too_small_an_opening_is_one_line_with_what_would_fit(dcl):
    _, certificate = make_plan(straight(gate(20.0, 5.0, yaw=20.0)), dcl, replace(ONE, see=0.5, risk=1e-2))
    assert certificate.ok and certificate.risk.total <= 1e-2
    track = straight(gate(12.0, opening=0.95))
    with pytest.raises(UserError, match=r"gates\[0\]: the opening of 0.95 m is too small for risk 1e-06: .* would fit"):
        make_plan(track, dcl, replace(ONE, see=0.5, risk=1e-6, margin_m=0.1, fast=True))


def test_a_solid_near_the_path_is_counted_by_its_name(pillars_folder, dcl):
    task = Task(load_track("pillars"), dcl, ONE)
    risk = stated(prediction.predict(read_plan(pillars_folder / "pillars.csv"), task, DOUBT), task)
    assert any(name.startswith("obstacles[") for name in risk.solids) and 0 < risk.total < 1


@pytest.mark.parametrize(
    ("options", "words"),
    [({"risk": 0.0}, "risk 0"), ({"risk": 1e-3, "flying_lap": True}, "from rest on the pad")],
)
def test_a_risk_that_makes_no_sense_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        PlanOptions(**options)
