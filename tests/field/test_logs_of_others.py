"""Logs that PX4 and Betaflight have written tell of a vehicle what the simulator's own record of the same flight tells."""

import re
from bisect import bisect_right
from dataclasses import replace

import numpy as np
import pytest

from gate_racer.commands import COMMANDS
from gate_racer.field.identify.fit import identify
from gate_racer.field.identify.signals import read_signals
from gate_racer.link.logs.reader import record_signals
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from tests.link import blackbox_writer as blackbox
from tests.link.log_writers import ULogWriter
from tests.pilot import ratm_folder
from tests.processes import run_here

COUNTS_PER_G = 2048
ARRAYS = ("t", "throttle", "omega_cmd", "force_b", "omega_b", "v_b", "R_wb", "voltage", "valid")


@pytest.fixture(scope="module")
def rows(log_of_unknown):
    log = record_signals(log_of_unknown)
    return {name: list(zip(one.t, one.values, strict=True)) for name, one in log.signals.items()}


def held(samples, t):
    """The value (n,) last given at t."""
    return samples[max(bisect_right(samples, t, key=lambda sample: sample[0]) - 1, 0)][1]


@pytest.fixture(scope="module")
def blackbox_log(rows, tmp_path_factory):
    """The flight at the rate of its record, as Betaflight's whole numbers."""
    path, frames = tmp_path_factory.mktemp("blackbox") / "flight.bbl", []
    for k, (t, force) in enumerate(rows["force"]):
        if t < rows["throttle"][0][0]:
            continue
        gyro, wanted = np.degrees(held(rows["omega"], t)), np.degrees(held(rows["omega_cmd"], t))
        accel = force / GRAVITY * COUNTS_PER_G
        fields = {"setpoint[3]": round(1000 * held(rows["throttle"], t)[0])}
        for i, sign in enumerate((1, -1, -1)):
            fields[f"gyroADC[{i}]"] = round(10 * sign * gyro[i])
            fields[f"setpoint[{i}]"] = round(10 * sign * wanted[i])
            fields[f"accSmooth[{i}]"] = round(sign * accel[i])
        frames.append(blackbox.row_of(round(t * 1e6), k, **fields))
    head = blackbox.header(blackbox_high_resolution=1, acc_1G=COUNTS_PER_G)
    path.write_bytes(head + b"".join(blackbox.frames(frames)) + blackbox.END)
    return path


@pytest.fixture(scope="module")
def ulog(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("ulog") / "flight.ulg"
    writer = ULogWriter({
        "sensor_combined": "float[3] gyro_rad;float[3] accelerometer_m_s2",
        "vehicle_attitude": "float[4] q",
        "vehicle_local_position": "float x;float y;float z;float vx;float vy;float vz",
        "vehicle_rates_setpoint": "float roll;float pitch;float yaw;float[3] thrust_body",
    })  # fmt: skip
    for t, force in rows["force"]:
        writer.write("sensor_combined", t, *held(rows["omega"], t), *force)
        writer.write("vehicle_attitude", t, *held(rows["q"], t))
        writer.write("vehicle_local_position", t, *held(rows["p"], t), *held(rows["v"], t))
    for (t, throttle), (_, rates) in zip(rows["throttle"], rows["omega_cmd"], strict=True):
        writer.write("vehicle_rates_setpoint", t, *rates, 0.0, 0.0, -throttle[0])
    path.write_bytes(writer.bytes())
    return path


def same(one, other, names, tolerance):
    """Whether signals agree where both logs are."""
    at = np.isin(np.round(one.t, 6), np.round(other.t, 6))
    assert at.sum() > 500
    also = np.isin(np.round(other.t, 6), np.round(one.t, 6))
    for name in names:
        gap = np.abs(getattr(one, name)[at] - getattr(other, name)[also])
        assert np.nanmedian(gap) < tolerance, name


def test_a_ulog_holds_the_motion_and_the_commands_that_the_record_holds(ulog, log_of_unknown):
    log, record = read_signals(ulog), read_signals(log_of_unknown)
    same(log, record, ("throttle", "omega_cmd", "omega_b", "v_b"), 1e-4)
    same(log, record, ("force_b",), 0.05)  # its own rest is longer or shorter by a sample
    assert log.notes == () and log.valid.mean() > 0.9


def test_a_blackbox_log_holds_rates_and_forces_and_says_that_it_tells_no_drag(blackbox_log, log_of_unknown, unknown):
    log, record = read_signals(blackbox_log), read_signals(log_of_unknown)
    assert "holds no velocity" in "; ".join(log.notes) and (log.v_b == 0).all()
    same(log, record, ("omega_cmd", "omega_b", "throttle"), 2e-3)
    same(log, record, ("force_b",), 0.05)
    part = replace(log, cuts=(), **{name: getattr(log, name)[:900] for name in ARRAYS})
    fit = identify([part])
    assert fit.drag_quadratic_1_m is None
    for u, estimate in zip(fit.throttle, fit.thrust_m_s2, strict=True):  # the drag on the way is taken for thrust
        assert estimate.value == pytest.approx(unknown.throttle.thrust(u), rel=0.15, abs=3.0)
    late = [fit.timing.delay.value + lag for lag in (axis.lag_s.value for axis in fit.rates)]
    assert late == pytest.approx([unknown.command_delay_s + lag for lag in unknown.rate_lag_s], abs=0.01)


def test_fly_report_draws_what_logs_of_others_hold(ulog, blackbox_log, tmp_path):
    for log in (ulog, blackbox_log):
        done = run_here(COMMANDS["fly-report"], log, "--out", tmp_path / "page.html")
        assert done.returncode == 0, done.stderr
        drawn = re.findall(r"<h3>([^<]+?) <output></output>", (tmp_path / "page.html").read_text())
        assert {"Throttle, 0 to 1", "Body rate"} <= {*drawn} and ("Speed" in drawn) == (log is ulog)


def test_gates_of_a_flight_of_ratm_are_mapped_from_its_labelled_corners(tmp_path):
    folder = ratm_folder.write(tmp_path, image_hz=10)
    options = "--gates", 2, "--set", f"opening_m={ratm_folder.SIDE_M}", "outer_m=2.1", "depth_m=0.0"
    done = run_here(COMMANDS["map-track"], folder, *options, "--out", tmp_path / "found.yaml")
    assert done.returncode == 0, done.stderr
    first, second = (gate.p_wg for gate in load_track(tmp_path / "found.yaml").gates)
    centres = ratm_folder.gates().mean(axis=1)
    assert np.linalg.norm(first - second) == pytest.approx(np.linalg.norm(centres[0] - centres[1]), abs=0.1)
    assert first[2] == pytest.approx(-ratm_folder.HEIGHT_M, abs=0.1)


def test_map_track_refuses_logs_without_images_in_a_line(ulog, tmp_path):
    done = run_here(COMMANDS["map-track"], ulog, "--gates", 2, "--out", tmp_path / "found.yaml")
    assert done.returncode == 2 and done.stderr.endswith("holds no images; map-track needs gates in images\n")
