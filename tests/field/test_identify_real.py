"""Logs of real flights: what is no flight is cut and named, what is not known is said, and logs are held against each other.

The data of others stand beside the repository (`../shared`), or not: then their tests are skipped.
"""

import json
import re

import numpy as np
import pytest

from gate_racer.commands import COMMANDS
from gate_racer.field.identify.fit import identify
from gate_racer.field.identify.regression import lagged
from gate_racer.field.identify.run import draw_fit
from gate_racer.field.identify.signals import STEP_S, read_signals
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT, refused
from tests.link.log_writers import ULogWriter
from tests.processes import run_here

SHARED = ROOT.parent / "shared"
NANOBENCH, CASES = SHARED / "data/nanobench", SHARED / "cases"
NAMES = [
    *("t", "px", "py", "pz", "qx", "qy", "qz", "qw", "vx", "vy", "vz"),
    *(f"imu_{kind}_{axis}" for kind in ("acc", "gyro") for axis in "xyz"),
    *(f"motor_motor_m{k}" for k in range(1, 5)),
    "pwr_pm_vbat",
]
COLUMN = {name: k for k, name in enumerate(NAMES)}
MOTORS = [COLUMN[f"motor_motor_m{k}"] for k in range(1, 5)]
NOMINAL_V, DELAY_S, LAG_S = 3.7, 0.02, 0.04


def thrust(u):
    """Of a vehicle that hovers at 0.7 of its throttle, m/s^2, at nominal voltage."""
    return GRAVITY * (u / 0.7) ** 2


def nano(seed, seconds=20.0, volts=(4.0, 3.6), scale=1.0, active=True):
    """A vertical flight as NanoBench logs it, (N, 22): rest, flight, rest with motors off; the voltage is an input."""
    rng = np.random.default_rng(seed)
    n, ground = round(seconds / STEP_S), 200
    t, v_bat = np.arange(n) * STEP_S, np.linspace(*volts, n)
    flying = (np.arange(n) >= ground) & (np.arange(n) < n - ground)
    seen = np.zeros(n)
    seen[flying] = 0.7 + (np.repeat(rng.uniform(-0.12, 0.12, n // 25 + 1), 25)[:n][flying] if active else 0.0)
    seen[flying] -= np.mean(thrust(seen[flying]) - GRAVITY) / (2 * GRAVITY / 0.7)
    c = np.where(flying, scale * thrust(lagged(seen, DELAY_S, LAG_S)), GRAVITY)
    rising = flying & (lagged(1.0 * flying, 0.2, LAG_S) > 0.99)
    c[flying & ~rising] = GRAVITY  # the ground carries it until the motors do
    v_z = np.cumsum((c - GRAVITY) * STEP_S)
    table = np.zeros((n, len(NAMES)))
    table[:, COLUMN["t"]], table[:, COLUMN["qw"]] = 1.77e9 + t, 1.0
    table[:, COLUMN["vz"]] = np.where(flying, v_z + rng.normal(0, 0.002, n), 0.0)
    table[:, COLUMN["imu_acc_z"]] = (c + rng.normal(0, 0.05, n)) / GRAVITY
    table[:, COLUMN["imu_acc_x"]] = rng.normal(0, 0.005, n)
    table[:, COLUMN["imu_gyro_x"]] = rng.normal(0, 0.005, n)
    table[:, MOTORS] = (65535 * seen * NOMINAL_V / v_bat)[:, None]
    table[:, COLUMN["pwr_pm_vbat"]] = v_bat
    return table


def logged(path, table):
    """The log of a table, as read back."""
    np.savetxt(path, table, delimiter=",", header=",".join(NAMES), comments="", fmt="%.9f")
    return read_signals(path)


def require_thrust_within_bounds(fit, beside=0.0):
    for u, found in zip(fit.throttle, fit.thrust_m_s2, strict=True):
        assert abs(found.value - thrust(u)) < found.half_width + beside


def varied(table, share):
    """The table with throttles off by shares (N,) of them, and the forces in flight that these make."""
    table[:, MOTORS] *= share[:, None]
    table[200:-200, COLUMN["imu_acc_z"]] *= share[200:-200] ** 2
    return table


def lose(table, begin, end, on=False):
    """Fill the columns that came by radio in along a line between two rows, or extrapolate it from the first two."""
    for name in NAMES:
        if name.startswith(("imu", "motor")):
            column = table[:, COLUMN[name]]
            last = column[begin] + (column[begin + 1] - column[begin]) * (end - begin) if on else column[end]
            column[begin : end + 1] = np.linspace(column[begin], last, end - begin + 1)
    return table


def seconds_cut(log, word):
    return sum(cut.seconds for cut in log.cuts if word in cut.reason)


def test_a_voltage_that_falls_is_an_input_and_delay_and_lag_are_within_their_bounds(tmp_path):
    fit = identify([logged(tmp_path / "a.csv", nano(0))])
    require_thrust_within_bounds(fit, 0.1)
    assert max(found.half_width for found in fit.thrust_m_s2) < 3.0
    assert fit.battery.reference_v == pytest.approx(NOMINAL_V)
    for interval, true in ((fit.timing.delay, DELAY_S), (fit.timing.lag, LAG_S), (fit.timing.total, DELAY_S + LAG_S)):
        assert interval.known and interval.low <= true <= interval.high
    assert fit.predicted.velocity_m_s < 0.3 * fit.predicted.steady_velocity_m_s


@pytest.mark.parametrize(("compensated", "low", "high"), [(False, 0.85, 1.15), (True, 0.0, 0.2)])
def test_how_the_voltage_acts_is_found(compensated, low, high, tmp_path):
    table = nano(0, 60.0, (4.2, 3.3))
    if compensated:
        table[:, MOTORS] *= table[:, [COLUMN["pwr_pm_vbat"]]] / NOMINAL_V
    battery = identify([logged(tmp_path / "a.csv", table)]).battery
    assert low <= battery.exponent <= high and not (battery.assumed and compensated)


def test_a_few_samples_far_from_the_others_tell_nothing_of_the_thrust_there(tmp_path):
    table = nano(0)
    for begin in (700, 1100, 1500):
        table[begin : begin + 8, MOTORS] = 0.93 * 65535
    fit = identify([logged(tmp_path / "a.csv", table)])
    assert fit.throttle[-1] < 0.9
    require_thrust_within_bounds(fit, 0.15)


@pytest.mark.parametrize("force_g", [(0.0, -1.0), (-0.8, 0.6)])
def test_a_vehicle_on_its_back_or_its_side_does_not_fly(force_g, tmp_path):
    table = nano(2)
    fallen = slice(1200, 1800)
    for axis, force in zip("yz", force_g, strict=True):
        table[fallen, COLUMN[f"imu_acc_{axis}"]] = force
    table[fallen, COLUMN["vz"]] = 0.0
    log = logged(tmp_path / "a.csv", table)
    assert seconds_cut(log, "on the ground") > 5.0 and not log.valid[1250:1750].any()


def test_a_model_that_predicts_worse_than_a_constant_velocity_is_doubted(tmp_path):
    """The accelerometer feels the throttle, but the velocity stays."""
    table = nano(3, active=False)
    varied(table, 1 + 0.02 * np.sin(0.8 * np.arange(len(table)) * STEP_S))
    table[200:-200, COLUMN["vx"]] = 2.0
    fit = identify([logged(tmp_path / "a.csv", table)])
    assert any("a constant velocity predicts what was held out better" in note for note in fit.notes)


def test_stretches_that_a_radio_lost_are_cut_whether_they_were_bridged_or_extrapolated(tmp_path):
    sound = nano(1)
    bridged, beyond = lose(sound.copy(), 600, 700), lose(sound.copy(), 1000, 1300, on=True)
    whole = identify([logged(tmp_path / "a.csv", sound)])
    for name, table, lost_s in (("b.csv", bridged, 1.0), ("c.csv", beyond, 3.0)):
        log = logged(tmp_path / name, table)
        assert seconds_cut(log, "radio") == pytest.approx(lost_s, abs=0.1)
        fit = identify([log])
        for u, found in zip(fit.throttle, fit.thrust_m_s2, strict=True):
            known = dict(zip(whole.throttle, whole.thrust_m_s2, strict=True)).get(u)
            assert known is None or abs(found.value - known.value) < found.half_width + known.half_width


def test_rest_motors_off_and_impacts_are_cut_and_named(tmp_path):
    table = nano(2)
    log = logged(tmp_path / "a.csv", table)
    assert seconds_cut(log, "motors off") == pytest.approx(4.0, abs=0.1)
    assert 0.1 < seconds_cut(log, "on the ground") < 1.0
    table[1500:1504, COLUMN["imu_acc_z"]] += [3.0, 8.0, 5.0, 2.0]
    fit = identify([logged(tmp_path / "b.csv", table)])
    assert any("impacts" in note for note in fit.notes)


def test_a_calm_hover_tells_no_delay_and_what_to_fly_instead(tmp_path, capsys):
    rng, table = np.random.default_rng(0), nano(3, active=False)
    varied(table, 1 + 0.02 * np.sin(0.1 * np.arange(len(table)) * STEP_S))
    table[:, COLUMN["vz"]] += rng.normal(0, 0.5, len(table))
    fit = identify([logged(tmp_path / "a.csv", table)])
    assert not fit.timing.delay.known and "not identifiable" in str(fit.timing.delay)
    assert any("throttle steps" in wanted for wanted in fit.wanted)


def test_logs_that_disagree_are_told_and_widen_the_bounds(tmp_path):
    logs = [logged(tmp_path / f"{k}.csv", nano(k, 12.0, scale=1.0 + 0.02 * k)) for k in range(3)]
    fit, one = identify(logs), identify(logs[1:2])
    scales = [found.scale.value for found in fit.scales]
    assert np.diff(scales) == pytest.approx(0.02, abs=0.006) and 0.01 < fit.spread < 0.04
    assert np.median([c.half_width for c in fit.thrust_m_s2]) > np.median([c.half_width for c in one.thrust_m_s2])
    alike = identify([logs[0], logged(tmp_path / "alike.csv", nano(1, 12.0))])
    assert alike.spread < 0.005 and all(abs(found.scale.value - 1) < 0.01 for found in alike.scales)


def test_a_log_that_never_flies_is_one_line(tmp_path):
    table = nano(4)
    table[:, COLUMN["imu_acc_z"]] = 1.0 + np.random.default_rng(0).normal(0, 0.005, len(table))
    table[:, COLUMN["vz"]] = 0.0
    with refused(r"holds 0\.0 s of flight that can be used"):
        identify([logged(tmp_path / "a.csv", table)])


def landing(path, saturated=()):
    """A hop of PX4 whose estimated sink rate outlives the touch-down by seconds, while the throttle runs down on the ground."""
    writer = ULogWriter({
        "sensor_combined": "float[3] gyro_rad;float[3] accelerometer_m_s2",
        "vehicle_local_position": "float x;float y;float z;float vx;float vy;float vz",
        "vehicle_thrust_setpoint": "float[3] xyz",
        "actuator_motors": "float[4] control",
    })  # fmt: skip
    rng, v = np.random.default_rng(0), 0.0
    u = np.concatenate(
        [np.zeros(200), np.repeat([0.5, 0.44, 0.5, 0.46, 0.42, 0.5, 0.44, 0.5], 100), np.repeat([0.12, 0.05], 200)]
    )
    c = GRAVITY * lagged(u, 0.02, 0.04) / 0.47
    for k, (throttle, force) in enumerate(zip(u, c, strict=True)):
        t, air = 1 + STEP_S * k, 210 < k < 1000
        v = v + STEP_S * (GRAVITY - force) if air else 0.97 * v + 0.03 * 0.4 * (k >= 1000) * (k < 1300)
        noise = rng.normal(0, 0.05, 3)
        writer.write("sensor_combined", t, 0, 0, 0, noise[0], noise[1], noise[2] - (force if air else GRAVITY))
        writer.write("vehicle_local_position", t, 0, 0, 0, 0, 0, v)
        writer.write("vehicle_thrust_setpoint", t, 0, 0, -throttle)
        writer.write("actuator_motors", t, *([1.0, 0.1, 0.5, 0.5] if k in saturated else [0.9 * throttle] * 4))
    path.write_bytes(writer.bytes())
    return path


def test_contact_with_the_ground_is_not_thrust(tmp_path):
    code, said, _ = run(landing(tmp_path / "a.ulg"), tmp_path)
    assert code == 0
    assert float(re.search(r"hover at throttle (\S+)", said)[1]) == pytest.approx(0.47, rel=0.02)
    assert (tmp_path / "v.png").stat().st_size > 10_000, "it is drawn"


def test_a_motor_at_its_limit_is_cut_but_not_where_the_throttle_is_what_the_motors_give(tmp_path):
    log = read_signals(landing(tmp_path / "a.ulg", range(500, 600)))
    assert seconds_cut(log, "saturated") == pytest.approx(1.1, abs=0.05)
    table = nano(5)
    table[800:900, COLUMN["motor_motor_m1"]], table[800:900, COLUMN["motor_motor_m2"]] = 65535, 30000
    assert seconds_cut(logged(tmp_path / "b.csv", table), "saturated") == 0


def run(log, folder):
    """Exit code, and what identify-vehicle said on stdout and stderr."""
    done = run_here(COMMANDS["identify-vehicle"], log, "--out", folder / "v.yaml", "--json", folder / "v.json")
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def flights():
    """Logs of one vehicle, by their paths."""
    if not NANOBENCH.is_dir():
        pytest.skip("needs ../shared/data/nanobench")
    return {path: read_signals(path) for path in sorted(NANOBENCH.glob("*.csv.gz"))}


def test_flights_of_nanobench_bring_no_traceback_and_one_vehicle_has_one_delay(flights, tmp_path, undrawn, monkeypatch):
    monkeypatch.setattr("gate_racer.field.identify.run.read_signals", flights.get)  # each is read once
    bounds = []
    for path in flights:
        code, said, error = run(path, tmp_path)
        assert code == 0 or (code == 2 and "s of flight that can be used" in error), (path, error)
        assert "s are used; cut are" in error
        if code == 0:
            fit = json.loads((tmp_path / "v.json").read_text())
            bounds.append([fit["timing"][name] for name in ("delay", "lag", "total")])
            hover = float(re.search(r"hover at throttle (\S+)", said)[1])
            assert hover == pytest.approx(0.79, abs=0.03), path
    assert len(bounds) >= 7
    for found in zip(*bounds, strict=True):  # a value that all logs allow
        assert max(one["low"] for one in found) < min(one["high"] for one in found)


def test_nanobench_s_thrust_agrees_between_flights_at_equal_battery(flights, tmp_path):
    fit = identify([log for log in flights.values() if log.valid.any()])
    scales = np.array([one.scale.value for one in fit.scales])
    assert len(scales) == 7 and np.abs(scales - 1).max() < 0.05 and np.abs(np.median(scales) - 1) < 0.01
    assert fit.timing.delay.known and fit.timing.lag.known and 0.03 < fit.timing.total.value < 0.07
    assert fit.predicted.velocity_m_s < 0.6 * fit.predicted.steady_velocity_m_s
    draw_fit(tmp_path / "fit.png", fit, load_vehicle("dcl"))
    assert (tmp_path / "fit.png").stat().st_size > 10_000


def run_case(name, folder):
    if not (CASES / name).exists():
        pytest.skip("needs ../shared/cases")
    return run(CASES / name, folder)


CASE_FILES = (
    "ulog_landing/landing.ulg", "ulog_landing/clean.ulg", "tlog_two_vehicles/two.tlog", "tlog_sources/ardupilot.tlog",
    "dataflash_plane/plane.bin", "ulog_zero_sample_stamp/zero.ulg", "ulog_zero_sample_stamp/set.ulg",
)  # fmt: skip


@pytest.mark.parametrize("name", CASE_FILES)
def test_recorded_cases_hover_where_the_vehicle_does(name, tmp_path, undrawn):
    code, said, _ = run_case(f"field/{name}", tmp_path)
    assert code == 0 and float(re.search(r"hover at throttle (\S+)", said)[1]) == pytest.approx(0.47, rel=0.02)
