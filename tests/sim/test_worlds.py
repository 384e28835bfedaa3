"""Worlds: the default is what is believed to the bit, every factor does what it says, and what was drawn can be flown again."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.stats import kurtosis, skew, spearmanr

from gate_racer.common.errors import UserError
from gate_racer.link.messages import Imu
from gate_racer.link.profile import load_profile
from gate_racer.pilot.records.result import world_name
from gate_racer.sim.physics.plant import Q, SwiftPlant, Truth, V
from gate_racer.sim.simulator import Sensors, Simulator
from gate_racer.sim.worlds.distribution import Factor, WorldFile, load_worlds, resolve
from gate_racer.sim.worlds.forces import Dryden, Forces, forces_of
from gate_racer.sim.worlds.world import (
    AS_BELIEVED,
    NAMES,
    AirDeviation,
    Deviations,
    LinkDeviation,
    MarkovChain,
    PlantDeviation,
    VideoTransport,
    World,
    as_believed,
)
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT

UNKNOWN = load_worlds("unknown")
ALONE = [(factor.of, sign) for factor in UNKNOWN.factors for sign in factor.signs]
SPEC = load_profile("spec")


def world(track, vehicle, **sections):
    return World.of("test", Deviations(**sections), track, vehicle)


def ticks(simulator, count=60):
    return [message for _ in range(count) for message in simulator.tick().telemetry]


@pytest.mark.parametrize("name", ["cpc", "dcl", "kolibri", "swift"])
def test_without_deviations_all_is_as_believed_to_the_bit(name, vq1):
    vehicle = load_vehicle(name)
    made = World.of("none", AS_BELIEVED, vq1, vehicle)
    assert (made.track, made.vehicle) == (vq1, vehicle) and forces_of(made, 0) is None
    assert made.nominal == (name in ("cpc", "dcl"))  # the others' plants are more than the model
    assert (world_name(as_believed(vq1, vehicle).as_dict()) == "as_believed") == made.nominal, "which the result tells"
    assert resolve("as_believed", vq1, vehicle) == as_believed(vq1, vehicle)
    assert ticks(Simulator(made, SPEC, 3)) == ticks(Simulator(as_believed(vq1, vehicle), SPEC, 3))


def test_a_seed_is_a_world_and_a_saved_one_is_the_same(vq1, dcl, tmp_path):
    drawn = resolve("unknown:7", vq1, dcl)
    drawn.save(tmp_path / "drawn.yaml")
    again = resolve(str(tmp_path / "drawn.yaml"), vq1, dcl)
    assert again == drawn == resolve("unknown:7", vq1, dcl) != resolve("unknown:8", vq1, dcl)
    assert again.deviations != AS_BELIEVED


def test_every_deviation_can_be_drawn():
    """Every field can be drawn except those that another factor determines, and the north, which a simulator has once."""
    fixed = {"camera.dropout_frames", "link.video_jitter_tau_s", "link.frame_loss_frames", "air.gust_height_m"}
    fixed |= {"imu.north_deg"}
    assert {factor.of for factor in UNKNOWN.factors} == set(NAMES) - fixed


@pytest.mark.parametrize(("name", "sign"), ALONE, ids=[name + sign for name, sign in ALONE])
def test_a_factor_alone_changes_its_own_field_and_nothing_else(name, sign, vq1, dcl):
    off = resolve(f"unknown:1:{name}{sign}", vq1, dcl).deviations
    section, one = name.split(".")
    changed = {(s, f) for s, part in asdict(off).items() for f, x in part.items() if x != asdict(UNKNOWN.world)[s][f]}
    assert changed == {(section, one)}


def test_a_vector_alone_is_two_sigma_long_by_the_seed(vq1, dcl):
    steps = [
        np.array(resolve(f"unknown:{seed}:course.gate_moved_m{sign}", vq1, dcl).deviations.course.gate_moved_m)
        for seed, sign in ((1, "+"), (1, "-"), (2, "+"))
    ]
    assert np.linalg.norm(steps[0], axis=1) == pytest.approx(0.2) and (steps[0] == -steps[1]).all()
    assert not np.allclose(steps[0], steps[2])


def test_draws_have_the_stated_widths(vq1):
    drawn = [UNKNOWN.jointly(vq1, seed) for seed in range(200)]
    thrust, loss = np.array([(d.plant.thrust_scale, d.link.frame_loss) for d in drawn]).T
    gates = np.array([d.course.gate_moved_m for d in drawn])
    assert thrust.mean() == pytest.approx(1.0, abs=0.01) and thrust.std() == pytest.approx(0.05, rel=0.1)
    assert loss.min() >= 0 and loss.max() <= 0.1 and loss.mean() == pytest.approx(0.05, abs=0.005)
    assert gates.shape == (200, 6, 3) and gates.std() == pytest.approx(0.1, rel=0.05)


def test_wider_worlds_are_as_far_in_the_same_direction(vq1, dcl):
    one, two = (resolve(f"unknown{times}:3", vq1, dcl).deviations for times in ("", "@2"))
    for off, twice in ((one.camera.yaw_deg, two.camera.yaw_deg), (one.link.frame_loss, two.link.frame_loss)):
        assert twice == pytest.approx(2 * off)
    assert two.plant.slew_scale - 1 == pytest.approx(2 * (one.plant.slew_scale - 1)), "a range about the model's value"
    assert resolve("unknown@1:3", vq1, dcl).deviations == one
    wide = load_worlds("unknown@10")
    alone = replace(wide, factors=tuple(factor for factor in wide.factors if factor.of == "plant.drag_scale"))
    scales = [alone.jointly(vq1, seed).plant.drag_scale for seed in range(50)]
    assert min(scales) > 0 and max(scales) > 3, "no scale below zero"


def test_a_factor_less_leaves_the_other_draws_as_they_are(vq1):
    less = replace(UNKNOWN, factors=UNKNOWN.factors[1:])
    a, b = UNKNOWN.jointly(vq1, 5), less.jointly(vq1, 5)
    assert b.plant.thrust_scale == 1.0 and a.plant.drag_scale == b.plant.drag_scale and a.camera == b.camera


def test_a_gate_that_the_course_uses_twice_moves_once(vq1, dcl):
    twice = replace(vq1, gates=(*vq1.gates, vq1.gates[0]))
    moved = resolve("unknown:2", twice, dcl).deviations.course.gate_moved_m
    assert moved[6] == moved[0] != moved[1]


def drawn(vq1, count, **form):
    """Deviations of two factors from the model, as numbers (count, 1 + 6 gates x 3)."""
    names = "camera.yaw_deg", "course.gate_moved_m"
    file = WorldFile("w", factors=tuple(Factor(of, "x", 1.0, **form) for of in names))
    worlds = [file.jointly(vq1, seed) for seed in range(count)]
    return np.array([[w.camera.yaw_deg, *np.ravel(w.course.gate_moved_m)] for w in worlds])


def test_a_factor_has_the_tails_the_skew_and_the_correlation_that_it_asks_for(vq1):
    plain, heavy = drawn(vq1, 1500), drawn(vq1, 1500, tails=5.0)
    assert kurtosis(plain[:, 0]) == pytest.approx(0, abs=0.5) and kurtosis(heavy[:, 0]) > 2
    assert skew(plain[:, 0]) == pytest.approx(0, abs=0.2) and skew(drawn(vq1, 1500, skew=-1.0)[:, 0]) < -0.8
    alike = np.corrcoef(drawn(vq1, 1500, cause="knock", share=0.8).T)
    assert alike[0, 1] == pytest.approx(0.64, abs=0.06) and alike[1, 4] == pytest.approx(0.64, abs=0.06)
    assert abs(alike[1, 2]) < 0.1 and abs(np.corrcoef(plain.T)[0, 1]) < 0.1  # each axis has its own part of the cause
    within = drawn(vq1, 300, tails=1.0, range=(-0.5, 2.0))
    assert within.min() == -0.5 and within.max() == 2.0


def test_an_adverse_world_can_always_be_and_is_no_prior_of_the_filter(vq1, dcl):
    adverse = load_worlds("adverse")
    off = [World.of("adverse", adverse.jointly(vq1, seed), vq1, dcl).deviations for seed in range(300)]
    assert skew([d.plant.thrust_scale for d in off]) < -1 and kurtosis([d.camera.tilt_deg for d in off]) > 2
    weak, slow = np.array([(d.plant.thrust_scale, d.plant.battery_sag_1_s) for d in off]).T
    assert spearmanr(weak, slow).statistic < -0.2
    assert {factor.of for factor in adverse.factors if factor.tails is None} == set()


WRONG = [
    ("unknwon", "no world 'unknwon'; did you mean unknown? known: adverse, as_believed, known, unknown"),
    ("unknown@0", "more than 0 times as wide"),
    ("unknown:x", "expected FILE[:SEED[:FACTOR+]]"),
    ("unknown:1:camera.yaw_deg", "no factor 'camera.yaw_deg'; known: plant.thrust_scale+"),
    ("unknown:1:camera.dropout-", "no factor 'camera.dropout-'"),
    ("{world: {plant: {thrust_scale: 0.1}}}", "thrust-to-weight"),
    ("{world: {course: {gate_moved_m: [[0, 0, 1]]}}}", "has 1 entries, the track vq1 has 6 gates"),
    ("{world: {link: {frame_loss: 1.5}}}", "world.link: frame_loss needs"),
    ("{world: {camera: {k1: -3.0}}}", "folds the picture"),
    ("{world: {air: {gust_m_s: 1.0, gust_height_m: 1.0e+300}}}", "gust_height_m: 1e+300 must lie between 0 and 100000"),
    ("{factors: [{of: camera.yaw, sigma: 1, why: x}]}", "unknown deviation 'camera.yaw'"),
    ("{factors: [{of: camera.yaw_deg, why: x}]}", "needs sigma, or range alone"),
    ("{factors: [{of: camera.yaw_deg, sigma: 1, skew: 2, why: x}]}", "must lie between -1 and 1"),
    ("{factors: [{of: camera.yaw_deg, sigma: 1, cause: knock, why: x}]}", "cause and share belong together"),
    ("{factors: [{of: plant.drag_scale, sigma: 90, skew: -1, why: x}]}", "`range` bounds a factor"),
]


@pytest.mark.parametrize(("asked", "words"), WRONG, ids=[w[0] for w in WRONG])
def test_a_wrong_world_is_one_clear_line(asked, words, vq1, dcl, tmp_path):
    if asked.startswith("{"):
        (tmp_path / "w.yaml").write_text("{name: w, " + asked[1:])
        asked = str(tmp_path / "w.yaml")
    with pytest.raises(UserError) as refused:
        resolve(asked, vq1, dcl)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_gates_stand_where_the_world_says(vq1, dcl):
    moved, turned = ((0.0, 0.0, 0.3),) * 6, ((5.0, 0.0),) * 6
    course = replace(AS_BELIEVED.course, scale=1.01, gate_moved_m=moved, gate_turned_deg=turned)
    made = world(vq1, dcl, course=course)
    assert made.published == vq1, "the map that a simulator sends is not corrected"
    for a, b in zip(made.track.gates, vq1.gates, strict=True):
        from_pad = (a.p_wg - [0, 0, 0.3]) - vq1.start.p_wb
        assert from_pad == pytest.approx(1.01 * (b.p_wg - vq1.start.p_wb)) and a.yaw_deg == b.yaw_deg + 5


def imu(simulator, count=240):
    return [m for m in ticks(simulator, count) if isinstance(m, Imu)]


@pytest.fixture
def quiet(dcl):
    return replace(dcl, imu=replace(dcl.imu, accel_noise_m_s2=0.0, accel_bias_m_s2=0.0))


def test_the_imu_errs_as_its_section_says(vq1, quiet):
    off = replace(AS_BELIEVED.imu, accel_bias_m_s2=(0.1, 0.2, 0.3), accel_scale=(0.01, 0.0, 0.0))
    off = replace(off, misalignment_deg=(0.0, 0.0, 90.0))
    (sample, *_), (true, *_) = (
        imu(Simulator(made, SPEC, 0)) for made in (world(vq1, quiet, imu=off), as_believed(vq1, quiet))
    )
    x, y, z = true.accel  # the sensor's x is the body's y, its y the body's -x
    assert sample.accel == pytest.approx((1.01 * y + 0.1, -x + 0.2, z + 0.3))


def test_a_drifting_clock_runs_ahead_and_telemetry_comes_late(vq1, dcl):
    link = LinkDeviation(imu_drift_ppm=100.0, telemetry_delay_s=0.017)
    simulator = Simulator(world(vq1, dcl, link=link), SPEC, 0)
    assert not simulator.tick().telemetry and not simulator.tick().telemetry
    late = imu(simulator, 120)
    assert late[0].t == pytest.approx((1 + 1e-4) / 120, rel=1e-12) and simulator.t == pytest.approx(122 / 120)


def test_a_force_as_old_as_a_tick_is_the_one_of_the_tick_before(quiet):
    sensors = Sensors(quiet, np.random.default_rng(0), replace(AS_BELIEVED.imu, accel_age_s=0.01))
    x = np.zeros(14)
    x[3] = 1.0
    felt = []
    for k in range(4):
        truth = Truth(0.01 * k, x, np.array([float(k), 0.0, 0.0]))
        sensors.follow(truth)
        felt.append(sensors.imu(truth).accel[0])
    assert felt == pytest.approx([0.0, 0.0, 1.0, 2.0])


@pytest.mark.parametrize("name", ["dcl", "swift"])
def test_a_vehicle_that_drifts_with_the_wind_feels_none(name, vq1):
    """The wind's force at rest is that of flying against it, and with the air's own speed there is no drag left."""
    vehicle = load_vehicle(name)
    forces = Forces(world(vq1, vehicle, air=AirDeviation(wind_north_m_s=3.0, wind_east_m_s=4.0)), 0)
    x = np.zeros(14)
    x[3] = 1.0
    still = forces(0.0, x, 0.0)
    assert still @ [3.0, 4.0, 0.0] > 0 and abs(np.cross(still, [3.0, 4.0, 0.0])[2]) < 0.1 * np.linalg.norm(still) * 5
    x[V] = [3.0, 4.0, 0.0]
    assert forces(0.1, x, 0.0) == pytest.approx(-forces._aero(x, x[V])), "no drag is left"


def test_battery_sag_and_ground_effect_change_the_thrust(vq1, dcl):
    x = np.zeros(14)
    x[3], x[13] = 1.0, GRAVITY
    sag = Forces(world(vq1, dcl, plant=PlantDeviation(battery_sag_1_s=0.01)), 0)
    assert sag(10.0, x, 0.0) == pytest.approx([0.0, 0.0, 0.1 * GRAVITY])  # hover power for ten seconds
    x[13] = -0.1  # of rotors that hardly turn
    assert np.isfinite(sag(20.0, x, 0.0)).all()
    x[13] = GRAVITY
    near = Forces(world(vq1, dcl, plant=PlantDeviation(ground_effect_radius_m=0.2)), 0)
    x[2] = vq1.bounds.high_m[2] - 0.2
    assert near(0.0, x, 0.0)[2] == pytest.approx(-GRAVITY * (1 / (1 - 1 / 16) - 1))


def test_grey_box_and_simple_plants_take_the_same_thrust_scale(vq1):
    swift = load_vehicle("swift")
    stronger = world(vq1, swift, plant=PlantDeviation(thrust_scale=1.1)).vehicle

    def thrust(vehicle):
        plant = SwiftPlant(vehicle, vq1.start)
        plant.x[13:17] = 1000.0
        return plant.thrust

    assert thrust(stronger) / thrust(swift) == pytest.approx(1.1)
    assert stronger.throttle.thrust(0.5) / swift.throttle.thrust(0.5) == pytest.approx(1.1)


def test_gusts_have_their_strength_and_memory_at_any_step(dcl):
    """Stationary standard deviations, and the autocorrelation of u, exp(-V t / L)."""
    for dt, n in ((0.05, 10000), (0.2, 5000)):
        gusts, rows = Dryden(1.5, 6.0, np.random.default_rng(1)), []
        for _ in range(n):
            gusts.advance(dt, 20.0)
            rows.append(gusts.gust)
        u = np.array(rows)
        rough = 0.177 + 0.000823 * 6.0 / 0.3048
        assert u.std(0) == pytest.approx(1.5 * np.array([1, 1, rough**0.4]), rel=0.2)
        length = 6.0 / rough**1.2
        k = round(0.4 / dt)
        together = np.corrcoef(u[:-k, 0], u[k:, 0])[0, 1]
        assert together == pytest.approx(math.exp(-20.0 * 0.4 / length), abs=0.1)


def test_losses_come_in_bursts_of_the_stated_share_and_length():
    chain = MarkovChain(0.1, 4.0, (200,), np.random.default_rng(0))
    lost = np.array([chain.step() for _ in range(2000)])
    begins = (lost[1:] & ~lost[:-1]).sum()
    assert lost.mean() == pytest.approx(0.1, rel=0.05) and lost[1:].sum() / begins == pytest.approx(4.0, rel=0.05)


def test_the_latency_of_frames_is_correlated_and_not_negative():
    link = LinkDeviation(
        video_latency_s=0.01, video_jitter_s=0.005, video_jitter_tau_s=1.0, video_offset_s=0.1, video_drift_ppm=50
    )
    path = VideoTransport(link, 30.0, np.random.default_rng(0))
    ways = [path(k / 30) for k in range(20000)]
    _, latency = np.array(ways).T
    assert latency.min() == 0.0 and latency.mean() == pytest.approx(0.01, abs=0.001)
    inner = latency - latency.mean()
    assert (inner[:-1] @ inner[1:]) / (inner @ inner) == pytest.approx(math.exp(-1 / 30), abs=0.03)
    assert ways[-1][0] == pytest.approx(19999 / 30 * (1 + 5e-5) + 0.1, abs=1e-9)


def test_the_pad_stands_as_the_world_says(vq1, dcl):
    pad = replace(AS_BELIEVED.pad, moved_m=(0.1, 0.0, 0.0), roll_deg=10.0, pitch_deg=17.8, yaw_deg=180.0)
    truth = Simulator(world(vq1, dcl, pad=pad), SPEC, 0).truth
    assert truth.p_wb == pytest.approx(vq1.start.p_wb + [0.1, 0, 0])
    ten, five = math.radians(10), math.radians(5)
    assert truth.accel_b == pytest.approx([0, -GRAVITY * math.sin(ten), -GRAVITY * math.cos(ten)])
    assert np.abs(truth.x[Q]) == pytest.approx(np.array([math.cos(five), math.sin(five), 0, 0]), abs=1e-9)


@pytest.mark.parametrize("path", sorted((ROOT / "tracks").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_track_has_unknown_worlds(path):
    for vehicle in ("dcl", "swift"):
        assert not resolve("unknown:0", load_track(path), load_vehicle(vehicle)).nominal
