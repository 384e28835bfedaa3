"""Gates are mapped by a flight without a map, and the map is raced on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gate_racer.bootcamp.scenario import generate_track
from gate_racer.commands import COMMANDS
from gate_racer.field.mapping import flight as flights
from gate_racer.field.mapping.bundle import BLOCK, COMMON, Bundle, map_gates, passed_in_order
from gate_racer.field.mapping.flight import SHARED, ChainNormal, M, MapError, N, read_flight, specified
from gate_racer.field.mapping.run import known
from gate_racer.link.profile import load_profile
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import LEAN
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.tracks.track import VADR_FRAME
from gate_racer.vehicle.rotation import exp, from_euler, product
from tests.exploring import explored
from tests.pilot.test_explorer import LESS
from tests.processes import run_here

SEED, GATES, TILT_DEG = 21, 2, 1.3
TRACK = generate_track(SEED, GATES)


@pytest.fixture(scope="module")
def log(tmp_path_factory, dcl) -> Path:
    """An exploration with a camera that is tilted more than its file says."""
    tilted = replace(dcl, camera=replace(dcl.camera, tilt_deg=dcl.camera.tilt_deg + TILT_DEG))
    profile = replace(load_profile("dcl"), video_hz=6.0, attitude_hz=60.0, **LESS)
    _, _, verdict, path = explored(TRACK, dcl, profile, SEED, tmp_path_factory.mktemp("logs"), flown=tilted)
    assert verdict.status == "finished", verdict.cause
    return path


def flight_of(log):
    """The flight with a third of its images, since the work grows with their number."""
    flight = read_flight(log, None)
    left_out = {id(image) for image in flight.images} - {id(image) for image in flight.images[::3]}
    flight.events = [one for one in flight.events if id(one) not in left_out]
    return flight


def mapped(*flights, vehicle):
    return map_gates(flights, vehicle, VADR_FRAME, GateAppearance())


@pytest.fixture(scope="module")
def found(log, dcl):
    return mapped(flight_of(log), vehicle=dcl)


def test_gates_are_placed_within_ten_centimetres_and_the_camera_is_found_out(found, dcl):
    gates = passed_in_order(found, VADR_FRAME)
    assert len(gates) == GATES
    for got, gate in zip(gates, TRACK.gates, strict=True):
        off = got.p_w - (gate.p_wg - TRACK.start.p_wb)
        assert np.linalg.norm(off) < 0.1
        assert off @ np.linalg.solve(got.cov[:3, :3], off) < 16.27  # chi-square, once in a thousand
        assert abs(np.degrees(got.yaw) - gate.yaw_deg) < 1.5
    assert found.tilt_deg == pytest.approx(dcl.camera.tilt_deg + TILT_DEG, abs=0.1)
    assert abs(found.delay_s) < 0.004
    assert not found.calibrated, "tilt and clock are never taken for known; all else is as the file says"


def test_the_banded_solution_and_covariances_are_those_of_the_dense_system():
    rng, K = np.random.default_rng(1), 4
    root = np.kron(np.eye(K), np.ones((N, N))) + np.kron(np.eye(K, k=-1), np.ones((N, N)))
    J = rng.standard_normal((K * N, K * N)) * root
    dense, right = J.T @ J + np.eye(K * N), rng.standard_normal((K * N, 3))

    def blocks(matrix, below=0):
        at = [slice(N * k, N * (k + 1)) for k in range(K)]
        return np.array([matrix[row, column] for row, column in zip(at[below:], at, strict=False)])

    rest = (np.zeros(0) for _ in range(4))
    normal = ChainNormal(blocks(dense), blocks(dense, 1), *rest)
    assert normal.solve(right) == pytest.approx(np.linalg.solve(dense, right))
    assert normal.covariances() == pytest.approx(blocks(np.linalg.inv(dense)))


def test_the_gradient_by_the_scale_is_that_of_the_trajectories_share_of_the_posterior(found, dcl):
    """Scale gates and positions about the pad, and differentiate -1/2 log |B| with the images' weights kept."""
    K = 40
    whole = found.chains[0]
    chain = replace(whole, states=whole.states[:K], at=whole.at[:K], between=(*whole.between[: K - 1], ()))
    doubt = specified(dcl)

    def bundle(scale: float) -> Bundle:
        states = tuple(x.having(p=scale * x.p_wb) for x in chain.states)
        gates = [replace(gate, p_w=scale * gate.p_w) for gate in found.gates]
        return Bundle([replace(chain, states=states)], gates, dcl.camera, VADR_FRAME, GateAppearance(), doubt)

    def normal(scale: float):
        at, equations = bundle(scale), chain.normal(doubt, GateAppearance())
        for sight in sights:
            J = sight.white @ at.residual(sight)[1].reshape(8, N)
            equations.D[sight.state] += as_found.whitened(sight)[0] * J.T @ J
        return equations

    def log_determinant(scale: float) -> float:
        equations = normal(scale)
        pivot, total = equations.D[0], 0.0
        for below, diagonal in zip(equations.L, equations.D[1:], strict=True):
            total += np.linalg.slogdet(pivot)[1]
            pivot = diagonal - below @ np.linalg.solve(pivot, below.T)
        return float(total + np.linalg.slogdet(pivot)[1])

    as_found = bundle(1.0)
    everywhere = Bundle([whole], found.gates, dcl.camera, VADR_FRAME, GateAppearance(), doubt)
    sights = [sight for sight in everywhere.recognised(1.0) if sight.state < K]
    rows = [as_found.whitened(sight) for sight in sights]
    by_scale = as_found.growth(sights, rows, [normal(1.0)])[:-COMMON].reshape(-1, BLOCK)[:, :3]
    along = float((by_scale * np.array([gate.p_w for gate in found.gates])).sum())
    step = 1e-3
    numeric = -0.5 * (log_determinant(1 + step) - log_determinant(1 - step)) / (2 * step)
    assert along > 5.0 and along == pytest.approx(numeric, rel=0.1)


def test_residuals_change_with_gate_size_and_camera_as_their_jacobian_says(found, dcl):
    """Linearise where the estimated edge errors are zero, so that their own change is neglected."""
    start = found
    chains = [replace(chain, states=tuple(x.having(edge_px=0.0) for x in chain.states)) for chain in found.chains]
    bundle = Bundle(list(chains), start.gates, dcl.camera, VADR_FRAME, GateAppearance(), specified(dcl))
    sight = bundle.recognised(1.0)[0]
    r, _, G = bundle.residual(sight)
    step = 1e-6
    for i in range(BLOCK + COMMON):
        gate = start.gates[sight.gate]
        bundle.gates, bundle.chains = list(start.gates), list(chains)
        bundle.edge_offset_m, bundle.extra_depth_m = step * (i == BLOCK), step * (i == BLOCK + 1)
        bundle.gates[sight.gate] = (
            replace(gate, p_w=gate.p_w + step * np.eye(3)[i])
            if i < 3
            else replace(gate, yaw=gate.yaw + step * (i == 3), pitch=gate.pitch + step * (i == 4))
        )
        if i > BLOCK + 1:
            chain = chains[sight.chain]
            bundle.chains[sight.chain] = chain.moved(np.zeros((len(chain.states), N)), step * np.eye(M)[i - BLOCK - 2])
        assert (r - bundle.residual(sight)[0]) / step == pytest.approx(G[..., i], rel=1e-3, abs=1e-2)


def by_attitudes(flight, changed):
    """Change the attitude quaternions of a flight."""
    other = {id(one): replace(one, q_wb=changed(one.q_wb)) for one in flight.attitudes}
    flight.attitudes = [other[id(one)] for one in flight.attitudes]
    flight.events = [other.get(id(one), one) for one in flight.events]
    return flight


LEAN_RAD = (0.008, -0.006, 0.004)  # half a degree


def test_attitudes_that_lean_from_the_true_ones_turn_and_bend_no_map(log, dcl):
    """Tilt the attitudes, as an autopilot's own filter or a misaligned IMU does."""
    found = mapped(by_attitudes(flight_of(log), lambda q_wb: product(q_wb, exp(LEAN_RAD))), vehicle=dcl)
    assert found.calibrated and found.chains[0].states[-1][LEAN] == pytest.approx(LEAN_RAD, abs=0.002)
    for got, gate in zip(passed_in_order(found, VADR_FRAME), TRACK.gates, strict=True):
        assert np.linalg.norm(got.p_w - (gate.p_wg - TRACK.start.p_wb)) < 0.2


def test_camera_and_imu_are_estimated_if_they_differ_from_the_file_by_more_than_their_covariance():
    rng = np.random.default_rng(3)
    root = rng.standard_normal((M, M)) / M + np.eye(M)
    cov = root @ root.T
    assert not any(flights.differs(root @ rng.standard_normal(M), cov) for _ in range(200))
    assert all(flights.differs(15.0 * root[:, k], cov) for k in range(M)) and len(set(SHARED.tolist())) == M


def test_flights_that_share_no_gate_make_no_map(log, dcl):
    quarter = from_euler(0.0, 0.0, np.pi / 2)
    other = by_attitudes(flight_of(log), lambda q_wb: product(quarter, q_wb))
    with pytest.raises(MapError, match="another course, pad or north"):
        mapped(flight_of(log), other, vehicle=dcl)


COMMAND = {"q": [1, 0, 0, 0], "w": [0, 0, 0], "throttle": 0.0, "source": "", "status": 0, "solve_ms": 0.0}


def test_a_log_without_the_needed_data_is_refused_in_one_line(log, dcl, tmp_path):
    out = ("--out", tmp_path / "no.yaml")
    empty = FlightLog(tmp_path / "empty.mcap")
    empty.write("command", 1.0, **COMMAND)
    empty.close()
    for arguments, words in (
        ((tmp_path / "empty.mcap", "--gates", 1), "holds 0 IMU samples in flight"),
        ((Path(__file__), "--gates", 1), "is no log that is read"),
        ((log, "--gates", 0), "gates 0: must be at least 1"),
        ((log, "--gates", 1, "--set", "start=here"), "expected X,Y,Z"),
    ):
        done = run_here(COMMANDS["map-track"], *arguments, *out)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and words in done.stderr
    assert not (tmp_path / "no.yaml").exists()


def test_a_gate_that_was_flown_through_both_ways_is_one_gate_of_the_first_way(found):
    """Fly back along the states of the flight, the last of which lies before the last gate."""
    there = found.chains[0]
    states, at = there.states + there.states[::-1], there.at + there.at[::-1]
    back = replace(there, states=states, at=at, between=((),) * len(states))
    gates, once = passed_in_order(replace(found, chains=[back]), VADR_FRAME), passed_in_order(found, VADR_FRAME)
    assert [(gate.p_w.tolist(), gate.yaw) for gate in gates] == [(gate.p_w.tolist(), gate.yaw) for gate in once[:-1]]


def test_gates_that_were_not_flown_through_or_are_too_doubtful_are_refused(found):
    passed = passed_in_order(found, VADR_FRAME)
    lost = [replace(passed[0], cov=4.0 * np.eye(4)), *passed[1:]]
    for gates, count, words in (
        (passed, GATES + 1, f"--gates {GATES + 1}: only {GATES} gates were seen at least 4 times"),
        (passed[:1], GATES, f"only 1 of {GATES} gates were flown through"),
        (lost, GATES, "gate 0: standard deviations of 2.00 m and 114.6 deg"),
    ):
        with pytest.raises(MapError, match=words):
            known(found, gates, count)


def test_a_log_that_was_cut_off_or_whose_clock_jumps_is_used_as_far_as_it_goes(log, tmp_path):
    whole = read_flight(log, None)
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(log.read_bytes()[: int(0.7 * log.stat().st_size)])
    part = read_flight(cut, None)
    assert 0 < len(part.readings) < len(whole.readings) and part.images
    assert "it is truncated" in part.cut and not whole.cut
    jump = FlightLog(tmp_path / "jump.mcap")
    jump.write("command", 0.0, **COMMAND)
    seen = {"frame": 1, "corners_px": np.eye(4, 2), "cov_px": np.ones((4, 3)), "visible": [1] * 4, "score": 1.0}
    for k in range(600):
        jump.write("imu", 0.01 * (k + 1) + 100.0 * (k > 500), accel=(0, 0, -9.8), gyro=(0, 0, 0.001 * k))
        if k == 300:
            jump.write("detection", 2.9, **seen)
    jump.close()
    assert "clock jumps or stops at 5.01 s" in read_flight(jump.path, None).cut
