"""`replay-flight` on logs that others have written."""

import csv
import json
import re

import numpy as np
import pytest

from gate_racer.link.logs.ratm import read_ratm
from gate_racer.link.logs.samples import clock_offset, rigid
from gate_racer.pilot.replay import verdict
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler, from_matrix, matrix
from tests.link.log_writers import imu, odometry, write_bag
from tests.pilot import ratm_folder
from tests.processes import run_here

REPLAY, FLIGHT = "gate_racer.pilot.replay_flight", "data/piloted/flight-01p-ellipse"


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Replays without their plots, which `test_flight.py` looks at."""
    monkeypatch.setattr("gate_racer.pilot.replay.draw", lambda *_: None)


@pytest.fixture(scope="module")
def ratm(tmp_path_factory):
    return ratm_folder.write(tmp_path_factory.mktemp("ratm"))


def replayed(log, *keys, out=None):
    """The figures of a replay, beside its log unless told, of which `said` is its stdout."""
    done = run_here(REPLAY, log, *keys, *(["--out", out] if out else []))
    assert done.returncode == 0, done.stderr
    written = (out or log.with_name(f"{log.stem}-replay")).with_suffix(".json")
    return json.loads(written.read_text()) | {"said": done.stdout}


def require_refused(words, *arguments):
    done = run_here(REPLAY, *arguments)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and re.search(words, done.stderr), done.stderr


def test_a_flight_of_ratm_is_localised_by_its_labelled_corners_and_judged_by_its_motion_capture(ratm, tmp_path):
    figures = replayed(ratm, out=tmp_path / "again")
    assert figures["gates_used"] > 65 and figures["error_rms_m"] < 0.05 and "m rms" in figures["said"]
    assert "from_logged_rms_m" not in figures


def test_a_recording_that_begins_in_the_air_is_localised_too(tmp_path):
    folder = ratm_folder.write(tmp_path, seconds=6.0, skip_s=2.5)
    assert replayed(folder, out=tmp_path / "again")["error_rms_m"] < 0.1


def test_axes_of_the_imu_are_found_whatever_their_signs(tmp_path, ratm):
    *_, force, omega = ratm_folder.flight(4.0)
    other = read_ratm(ratm_folder.write(tmp_path, seconds=4.1, gyro_signs=(-1, 1, 1), image_hz=5))
    for read in (read_ratm(ratm), other):
        n = len(omega)
        assert np.abs(read.omega_b[:n] - omega * ratm_folder.D).max() < 0.1
        assert np.abs(read.force_b[:n] - force * ratm_folder.D).max() < 1.5


@pytest.mark.parametrize(
    ("without", "removed", "words"),
    [
        (("gyro_y",), "", "column gyro_y is missing"),
        ((), "camera_calibration/drone_to_camera.json", "drone_to_camera.json: cannot be read"),
        ((), f"{FLIGHT}/flight-01p-ellipse_cam_ts_sync.csv", "0 files \\*_cam_ts_sync.csv"),
    ],
)
def test_a_missing_file_of_a_folder_is_reported_in_one_line(without, removed, words, tmp_path):
    folder = ratm_folder.write(tmp_path, seconds=2.5, without=without, image_hz=5)
    if removed:
        (tmp_path / removed).unlink()
    require_refused(words, folder)


def swaying(seconds=5.0, hz=125):
    """Times, forces, rates (body FRD), attitudes and places of a body that rolls to and fro after a second of rest."""
    t = np.arange(0, seconds, 1 / hz)
    roll = 0.3 * (1 - np.cos(1.5 * np.clip(t - 1, 0, None)))
    rate = np.gradient(roll, t)
    zero, y = 0 * t, np.cumsum(np.cumsum(GRAVITY * np.tan(roll))) / hz**2
    force = np.column_stack([zero, zero, -GRAVITY / np.cos(roll)])
    q = np.column_stack([np.cos(roll / 2), np.sin(roll / 2), zero, zero])
    return t, force, np.column_stack([rate, zero, zero]), q, np.column_stack([zero, y, zero])


Z_UP = np.array([1.0, -1.0, -1.0])


def euroc(folder):
    """The swaying flight in ASL's layout: times in ns, axes of the IMU x up, y right, z forward."""
    imu, truth = folder / "mav0/imu0/data.csv", folder / "mav0/state_groundtruth_estimate0/data.csv"
    R_sb = np.array([[0.0, 0.0, -1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    rows, poses = ["#timestamp [ns],w_RS_S_x [rad s^-1],...,a_RS_S_z [m s^-2]"], ["#timestamp, p_RS_R_x [m], ..."]
    for t, force, rate, q, p in zip(*swaying(), strict=True):
        stamp, R_rs = 1_403_636_579_000_000_000 + round(1e9 * t), Z_UP[:, None] * matrix(q) @ R_sb.T
        rows.append(",".join(map(str, [stamp, *R_sb @ rate, *R_sb @ force])))
        poses.append(",".join(map(str, [stamp, *Z_UP * p, *from_matrix(R_rs), *[0.0] * 9])))
    return {imu: rows, truth: poses}


def uzh_fpv(folder):
    """The swaying flight in the text files of UZH-FPV: x forward, y left, z up, rows of the IMU numbered."""
    rows, poses = ["# timestamp ang_vel_x ang_vel_y ang_vel_z lin_acc_x lin_acc_y lin_acc_z"], ["# timestamp tx ty tz"]
    for k, (t, force, rate, q, p) in enumerate(zip(*swaying(), strict=True)):
        rows.append(" ".join(map(str, [k, 1_540_821_844.0 + t, *Z_UP * rate, *Z_UP * force])))
        w, x, y, z = from_matrix(Z_UP[:, None] * matrix(q) * Z_UP)
        poses.append(" ".join(map(str, [1_540_821_844.0 + t, *Z_UP * p, x, y, z, w])))
    return {folder / "imu.txt": rows, folder / "groundtruth.txt": poses}


@pytest.mark.parametrize("layout", [euroc, uzh_fpv])
def test_flights_of_data_sets_are_held_against_their_truth_and_exported_for_evo(layout, tmp_path):
    for file, lines in layout(tmp_path / "flight").items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines))
    assert replayed(tmp_path / "flight", "--set", "tum=true", out=tmp_path / "again")["error_rms_m"] < 1.0
    estimate, truth = (np.loadtxt(tmp_path / name) for name in ("again.tum", "again-truth.tum"))
    *_, q, p = swaying()
    np.testing.assert_allclose(truth[:, 1:4], p, atol=1e-6)
    np.testing.assert_allclose(np.abs((truth[:, [7, 4, 5, 6]] * q).sum(axis=1)), 1.0, atol=1e-6)
    at_true = np.searchsorted(truth[:, 0], estimate[:, 0] - 1e-4)
    assert np.abs((estimate[:, 4:] * truth[at_true, 4:]).sum(axis=1)).min() > np.cos(np.radians(1.0))


def as_csv(path, t, force, rate, q, p, v=None):
    """Write a table of the motion, NED and FRD; rows are of one time each."""
    vectors = "awp" if v is None else "awpv"
    names = ["t", *(f"q_{axis}" for axis in "wxyz"), *(f"{name}_{axis}" for name in vectors for axis in "xyz")]
    rows = np.column_stack([t, q, force, rate, p, *([] if v is None else [v])])
    path.write_text("\n".join([",".join(names), *(",".join(map(repr, row.tolist())) for row in rows)]))
    return path


@pytest.mark.parametrize(("v_w", "logged"), [((5.0, -3.0, 2.0), False), ((0.0, 0.0, -2.0), True)])
def test_a_steady_flight_is_no_rest(v_w, logged, tmp_path):
    t = np.arange(0, 4, 0.01)
    level = np.tile([1.0, 0, 0, 0], (len(t), 1)), t[:, None] * v_w, np.tile(v_w, (len(t), 1)) if logged else None
    path = as_csv(tmp_path / "a.csv", 60 + t, np.tile([0, 0, -GRAVITY], (len(t), 1)), np.zeros((len(t), 3)), *level)
    assert replayed(path)["from_logged_rms_m"] < 0.3


@pytest.mark.parametrize("estimator", ["eskf", "drift"])
def test_a_log_that_turns_at_its_first_sample_is_replayed_from_there(estimator, tmp_path):
    moving = slice(200, None)
    t, force, rate, q, p = (part[moving] for part in swaying())
    v = np.gradient(p, t, axis=0)
    path = as_csv(tmp_path / "a.csv", 1_700_000_000 + t, force, rate, q, p, v)
    figures = replayed(path, "--set", f"estimator={estimator}")
    assert figures["attitude_deg"] < 1.0 and figures["from_logged_rms_m"] < (0.5 if estimator == "eskf" else 20.0)


def as_bag(made):
    """Return a writer of a bag of the motion, with odometry and IMU on topics of their own, x forward, y left, z up."""

    def write(path, t, force, rate, q, p):
        v, flip = np.gradient(p, t, axis=0), np.array([1.0, *Z_UP])

        def at(store, k):
            v_b = Z_UP * (matrix(q[k]).T @ v[k])
            return imu(store, k, Z_UP * force[k], Z_UP * rate[k]), odometry(store, k, Z_UP * p[k], flip * q[k], v_b)

        topics = {"/imu": "sensor_msgs/msg/Imu", "/odom": "nav_msgs/msg/Odometry"}
        return write_bag(path.parent, made, topics, at, len(t))

    return write


@pytest.mark.parametrize("write", [as_csv, as_bag("MCAP"), as_bag("ROS 1")], ids=["CSV", "MCAP", "ROS 1"])
def test_a_log_with_the_odometry_of_a_vio_is_replayed_along_it(write, tmp_path):
    """Whose accelerometer errs after its rest, so that it integrates to metres."""
    t, force, rate, q, p = swaying(hz=100)
    force[t > 1.2] += [1.0, 0.0, 0.0]
    path = write(tmp_path / "a.csv", t, force, rate, q, p)
    off = {}
    for estimator in ("drift", "drift-vio"):
        figures = replayed(path, "--set", f"estimator={estimator}", out=tmp_path / estimator)
        off[estimator] = figures["from_logged_rms_m"]
    assert off["drift-vio"] < 0.05 and off["drift"] > 1.0


def yawing():
    """The motion of a level body that turns slowly from its first sample, and fast after two seconds."""
    t = np.arange(0, 8, 0.008)
    yaw = 0.03 * t + np.clip(t - 2, 0, None)
    zero = 0 * t
    rate = np.column_stack([zero, zero, np.gradient(yaw, t)])
    level, q = np.tile([0, 0, -GRAVITY], (len(t), 1)), np.array([from_euler(0, 0, one) for one in yaw])
    return t, level, rate, q, np.zeros((len(t), 3))


def biased():
    """A body that rests for three seconds and then sways; its gyro errs, and its attitudes are rounded."""
    t, force, rate, q, p = swaying(8.0)
    rest = np.full(250, 0)
    still, t = [np.concatenate([one[rest], one]) for one in (force, rate, q, p)], np.arange(len(t) + 250) * 0.008
    return t, still[0], still[1] + [0.01, 0.01, -0.01], np.round(still[2], 4), still[3]


@pytest.mark.parametrize(("motion", "unknown"), [(yawing, 0), (swaying, 250), (biased, 0), (biased, 250)])
def test_a_slow_turn_is_no_bias_and_a_replay_begins_with_the_first_attitude(motion, unknown, tmp_path):
    t, force, rate, q, p = motion()
    q[:unknown] = np.nan
    assert replayed(as_csv(tmp_path / "a.csv", t, force, rate, q, p))["attitude_deg"] < 1.0


def test_what_cannot_be_integrated_or_compared_is_refused_in_a_line(tmp_path):
    t, *motion = (part[::30] for part in swaying(20.0))
    slow = as_csv(tmp_path / "a.csv", t, *motion, 0 * motion[-1])
    require_refused(r"^error: \S+: holds 4\.\d IMU samples a second, but 20 are needed", slow)
    for file, lines in euroc(tmp_path / "flight").items():
        file.parent.mkdir(parents=True, exist_ok=True)
        late = file.parent.name != "imu0"
        file.write_text("\n".join(line.replace("1403636", "1403639", late) for line in lines))
    require_refused("the truth lasts from", tmp_path / "flight")


def test_a_detector_is_refused_where_no_images_are(ratm):
    require_refused("holds no images", ratm, "--set", "detector=classical")


def test_a_motion_capture_with_a_clock_of_its_own_is_put_on_the_imu_s(ratm, tmp_path):
    folder = ratm_folder.write(tmp_path)
    (table,) = folder.glob("*freq_sync.csv")
    head, *rows = list(csv.reader(table.read_text().splitlines()))
    truth = [k for k, name in enumerate(head) if name.startswith("drone_")]
    for k in range(len(rows) - 1, -1, -1):
        for column in truth:
            rows[k][column] = rows[max(0, k - ratm_folder.HZ // 10)][column]
    with table.open("w") as file:
        csv.writer(file).writerows([head, *rows])
    figures = replayed(folder, out=tmp_path / "again")
    assert figures["truth_offset_s"] == pytest.approx(0.1, abs=3e-3) and "ms late and is corrected" in figures["said"]
    assert figures["ate_m"] <= figures["error_rms_m"] < 0.05 and figures["rpe_1s_m"] < 0.05


def test_a_path_in_axes_of_its_own_is_laid_on_the_truth():
    rng = np.random.default_rng(0)
    p, R = rng.normal(size=(50, 3)), matrix(from_euler(0.3, -0.2, 2.0))
    found, shift = rigid(p, p @ R.T + [1.0, -2.0, 3.0])
    assert found == pytest.approx(R) and shift == pytest.approx([1.0, -2.0, 3.0])


@pytest.mark.parametrize("late_s", [-0.2, 0.0, 0.099])
def test_the_offset_of_a_clock_is_found_by_rotation_whatever_the_axes(late_s):
    t, _, rate, q, _ = swaying(8.0)
    offset = clock_offset(t, rate @ matrix(from_euler(0.3, 0.2, 0.1)), t + late_s, q)
    assert offset == pytest.approx(late_s, abs=2e-3)
    assert np.isnan(clock_offset(t, np.random.default_rng(0).normal(size=rate.shape), t, q))


@pytest.mark.parametrize("compared", [{}, {"attitude_deg": 1.0}, {"error_rms_m": 0.1}])
def test_a_verdict_without_a_figure_says_why(compared):
    """Of a log of accelerometer and gyro alone, as of a phone."""
    assert ("no pose" in verdict({"gates_used": 0, "frames": 0, **compared}, "imu.csv")) == (not compared)
