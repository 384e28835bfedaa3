"""A vehicle that nobody has told of is recovered from its logs, within bounds that hold."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.field.files import identified, write_vehicle
from gate_racer.field.identify.fit import identify
from gate_racer.field.identify.regression import Interval, fit_rate, half_widths, lagged
from gate_racer.field.identify.signals import STEP_S, Signals, read_signals
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import refused


@pytest.fixture(scope="module")
def fit(log_of_unknown):
    return identify([read_signals(log_of_unknown)])


def test_thrust_is_recovered_within_two_per_cent_and_drag_within_five(fit, unknown):
    for u, estimate in zip(fit.throttle, fit.thrust_m_s2, strict=True):
        assert estimate.value == pytest.approx(unknown.throttle.thrust(u), rel=0.02, abs=0.05)
    assert fit.drag_quadratic_1_m.value == pytest.approx(unknown.drag_quadratic_1_m, rel=0.05)
    assert fit.timing.delay.value == pytest.approx(unknown.command_delay_s, abs=0.005)
    assert fit.timing.lag.value == pytest.approx(unknown.thrust_lag_s, abs=0.005)
    assert [axis.gain.value for axis in fit.rates] == pytest.approx([1, 1, 1], abs=0.03)
    assert [axis.lag_s.value for axis in fit.rates] == pytest.approx(unknown.rate_lag_s, rel=0.1)
    assert fit.predicted.velocity_m_s < 0.02 * fit.predicted.steady_velocity_m_s


def test_bounds_contain_the_truth_and_say_no_more_than_sensors_allow(fit, unknown):
    drag, thrusts = fit.drag_quadratic_1_m, zip(fit.throttle, fit.thrust_m_s2, strict=True)
    true = [unknown.throttle.thrust(u) for u in fit.throttle]
    errors = [abs(one.value - c) / one.half_width for (_, one), c in zip(thrusts, true, strict=True)]
    assert np.mean(np.array(errors) < 1) >= 0.9 and max(errors) < 2
    assert abs(drag.value - unknown.drag_quadratic_1_m) < drag.half_width < 0.05 * drag.value
    for axis, lag_s in zip(fit.rates, unknown.rate_lag_s, strict=True):
        assert abs(axis.gain.value - 1) < axis.gain.half_width < 0.03
        assert abs(axis.lag_s.value - lag_s) < axis.lag_s.half_width < 0.012
    for interval, true in ((fit.timing.delay, unknown.command_delay_s), (fit.timing.lag, unknown.thrust_lag_s)):
        assert interval.known and interval.low <= true <= interval.high and interval.high - interval.low < 0.03


def test_the_file_is_read_back_and_hovers_where_the_vehicle_does(fit, unknown, tmp_path):
    base = load_vehicle("dcl")
    write_vehicle(tmp_path / "found.yaml", identified(fit, base, "found", "a test"))
    found = load_vehicle(str(tmp_path / "found.yaml"))
    assert found.throttle.throttle(GRAVITY) == pytest.approx(unknown.throttle.throttle(GRAVITY), rel=0.02)
    assert found.camera == base.camera and found.name == "found"
    assert replace(found, throttle=base.throttle, source=base.source).body_m == base.body_m


PUBLISHED = {0.1: 2.6, 0.265: 9.75, 0.4: 17.8, 0.6: 33.8, 0.665: 39.1, 0.8: 49.1, 1.0: 59.5}  # builds 3364 to 3391
RMS, TOP, DRAG = 0.15, (58.8, 60.2), (0.043, 0.053)  # as published: of the fits, of full throttle, of the drag


def public_steps(path, seed):
    """Vertical steps of the throttle as public teams log them: their columns, 95 rows a second, of which a third repeat."""
    rng, v, z, row = np.random.default_rng(seed), 0.0, 0.0, (0.0, 0.0)
    u = np.repeat(rng.permutation(np.tile(list(PUBLISHED), 4)), 80)
    thrust = lagged(np.interp(u, list(PUBLISHED), list(PUBLISHED.values())), 0.04, 0.03)
    columns = "t_s,u_b,v_b,w_b,p,q_raw,r,phi,theta,psi,x_ned,y_ned,z_ned,cmd_p,cmd_q,cmd_r,cmd_thrust"
    rows = [columns]
    for k, c in enumerate(thrust):
        row = row if rng.random() < 0.3 else (v, z)
        if k % 20:  # of 100 Hz
            rows.append(f"{k * STEP_S:.6f},0,0,{row[0]:.6f},0,0,0,0,0,-3.1405,0,0,{row[1]:.4f},0,0,0,{u[k]:.6f}")
        z += STEP_S * v
        v += STEP_S * (GRAVITY - c - 0.047 * abs(v) * v)
    path.write_text("\n".join(rows))
    return path


def test_vertical_steps_in_public_logs_give_the_published_thrust_points(tmp_path):
    fit = identify([read_signals(public_steps(tmp_path / f"steps{seed}.csv", seed)) for seed in (5, 6)])
    curve = identified(fit, load_vehicle("dcl"), "public", "a test").throttle
    for u, thrust in PUBLISHED.items():
        assert curve.thrust(u) == pytest.approx(thrust, abs=RMS)
    assert TOP[0] < curve.thrust(1.0) < TOP[1] and DRAG[0] < fit.drag_quadratic_1_m.value < DRAG[1]
    assert [axis.gain for axis in fit.rates] == [None] * 3 and "roll rate pulses" in fit.wanted


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes(log_of_unknown, tmp_path):
    whole = log_of_unknown.read_bytes()
    (tmp_path / "cut.mcap").write_bytes(whole[: len(whole) // 2])
    part, log = read_signals(tmp_path / "cut.mcap"), read_signals(log_of_unknown)
    assert 0 < len(part.t) < len(log.t) and log.notes == ()
    assert re.search(r"it is truncated after \d+\.\d kB, at \d+\.\d\d s; the undamaged part is used", part.notes[0])
    (tmp_path / "cut.mcap").write_bytes(whole[:1000])
    with pytest.raises(UserError, match=r"no commanded throttle.*it is truncated after 1\.0 kB"):
        read_signals(tmp_path / "cut.mcap")


def test_the_longest_part_of_a_log_whose_clock_was_set_is_used_and_the_rest_reported(tmp_path):
    """Set the clock back after 2 s, as the real simulator does during start-up, and continue for 5 s from 0."""
    stamps = [*np.arange(0, 2, 0.02), *np.arange(0, 5, 0.02)]
    rows = [f"{t:.3f},{0.2 + 0.1 * (k % 40 < 20)},{k % 7}" for k, t in enumerate(stamps)]
    (tmp_path / "set.csv").write_text("\n".join(["t,throttle,v_z", *rows]))
    log = read_signals(tmp_path / "set.csv")
    assert log.t[-1] - log.t[0] == pytest.approx(5.0, abs=0.05) and (np.diff(log.t) > 0).all()
    assert log.notes == ("its clock was set 1 times: 5.0 s of 7.0 s are used",)


def rows(step_s, head="t,throttle,v_z"):
    """Five seconds, backwards if the step is negative."""
    stamps = np.arange(0, 5, step_s) if step_s > 0 else np.arange(5, 0, step_s)
    return head + "\n" + "".join(f"{t:.3f},0.2,{k % 7}\n" for k, t in enumerate(stamps))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "t,throttle\n0,1\n", "no velocity (.*v_z)"),
        ("a.csv", rows(0.02, "t,throttle [%,v_z"), "column throttle .%: expected a unit in brackets"),
        ("a.csv", rows(0.02, "t,throttle,v_z [m/s)"), "column v_z .m/s.: expected a unit in brackets"),
        ("a.csv", rows(-0.02), "its clock runs backwards"),
        ("a.csv", rows(-0.1), "its clock runs backwards"),
        ("a.csv", "t,throttle,v_z\n0,1,x\n", "column v_z, row 1: x is no number"),
        ("a.csv", "t,throttle,v_z\n0,1,0\n", "1 samples of the commanded throttle"),
        ("a.mcap", "nothing", "is not an MCAP file"),
        ("a.txt", "", "is empty"),
        ("a.txt", "some text", "is no log that is read"),
        ("a.mcap", None, "cannot be read"),
    ],
)
def test_a_log_without_what_is_needed_is_one_clear_line(name, text, words, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with refused(words):
        read_signals(tmp_path / name)


def csv_of_steps(path, throttle=lambda u: u, v_z=lambda v: v, thrust=lambda u: 9.81 * u / 0.3):
    """Vertical steps of the throttle about hover, as a team logs them; the arguments are its mistakes."""
    u = np.repeat([0.3, 0.5, 0.2, 0.6, 0.25, 0.7, 0.15, 0.4, 0.3, 0.55], 80)
    v = np.cumsum(GRAVITY - lagged(thrust(u), 0.04, 0.03)) * STEP_S
    rows = np.column_stack([np.arange(len(u)) * STEP_S, throttle(u), v_z(v)])
    path.write_text("t,throttle,v_z\n" + "\n".join(",".join(f"{x:.6f}" for x in row) for row in rows))
    return path


MISTAKES = [
    ("v_z positive upwards", {"v_z": lambda v: -v}, "thrust falls .* v_z must be positive downwards"),
    ("throttle in per cent", {"throttle": lambda u: 100 * u}, "between 15 and 70, but 0..1 is expected; in per cent"),
    ("throttle as pulses", {"throttle": lambda u: 1000 + 1000 * u}, "in pulses in us"),
    ("throttle as DShot", {"throttle": lambda u: 48 + 1999 * u}, "but 0..1 is expected; in "),
    ("throttle as 16-bit counts", {"throttle": lambda u: 65535 * u}, "in 16-bit counts"),
    ("throttle -1..1", {"throttle": lambda u: 2 * u - 1}, "between -0.7 and 0.4, but 0..1 is expected"),
    ("a throttle without effect", {"thrust": lambda u: 12.0 + 0.0 * u}, "hardly rises .* only hovers"),
    (
        "a throttle of another flight",
        {"thrust": lambda u: 12.0 + 3 * np.sin(0.1 * np.arange(len(u)))},
        "the throttle must be what",
    ),
    (
        "wings that carry",
        {"thrust": lambda u: GRAVITY + 40 * np.clip(u - 0.55, 0, None)},
        "from 9.* at throttle 0.1.* at 0.[456]",
    ),
    ("a throttle that is reversed", {"throttle": lambda u: 1.0 - u}, "falls .* not reversed"),
]


@pytest.mark.parametrize(("made", "words"), [mistake[1:] for mistake in MISTAKES], ids=[name for name, *_ in MISTAKES])
def test_a_log_with_a_mistake_is_refused_with_its_cause(tmp_path, made, words):
    with refused(words):
        identify([read_signals(csv_of_steps(tmp_path / "steps.csv", **made))])


CURVES = {
    "an offset": (3.0, 22.0, 0.0),
    "a bend": (2.0, 0.0, 100.0),
    "a line": (0.0, 33.0, 0.0),
    "idling": (-4.0, 40.0, 0.0),
}


@pytest.mark.parametrize(("at_rest", "slope", "bend"), CURVES.values(), ids=CURVES)
def test_a_curve_of_any_form_is_no_mistake_and_written_as_it_is_printed(at_rest, slope, bend, tmp_path):
    log = csv_of_steps(tmp_path / "steps.csv", thrust=lambda u: at_rest + slope * u + bend * u**2)
    found = identify([read_signals(log)])
    written = identified(found, load_vehicle("dcl"), "found", "a test").throttle
    for u, printed in zip(found.throttle, found.thrust_m_s2, strict=True):
        assert written.thrust(u) == pytest.approx(printed.value, abs=1e-3)


def steps_of_rotors(inflow_s_m):
    """Short steps from hover, with rotors that lose `inflow_s_m` of their thrust per m/s of climb; commands are stamped late."""
    rng, n, every = np.random.default_rng(3), 4000, 100
    u, v = np.full(n, GRAVITY / 60.0), np.zeros(n)
    for k, step in enumerate(np.tile([0.05, 0.45, 0.6, 0.8, 1.0], 8)):
        u[every * k + 20 : every * k + 40] = step
    thrust, force = lagged(60.0 * u, 0.05, 0.01), np.zeros((n, 3))
    for k in range(n - 1):
        force[k, 2] = -thrust[k] * (1 + inflow_s_m * v[k])
        v[k + 1] = v[k] + (GRAVITY + force[k, 2]) * STEP_S if (k + 1) % every else 0.0
    force += rng.normal(0, 0.05, (n, 3))
    unknown, v_b, R_wb = np.full((n, 3), np.nan), np.column_stack([np.zeros((n, 2)), v]), np.tile(np.eye(3), (n, 1, 1))
    known = np.full(n, np.nan), np.ones(n, bool)
    return Signals("rotors", np.arange(n) * STEP_S, np.roll(u, 1), unknown, force, unknown, v_b, R_wb, *known)


def test_thrust_that_changes_with_the_climb_is_taken_for_no_impact():
    """Else a curve ends below the throttles of which there are short steps only."""
    found = identify([steps_of_rotors(0.03)])
    assert found.throttle[-1] == pytest.approx(1.0) and found.thrust_m_s2[-1].value == pytest.approx(60.0, rel=0.15)


# Bounds of fits contain the truth about as often as they promise, whatever the residuals are correlated over.


SECONDS, SAMPLE_S, RUNS = 60.0, 0.02, 100


def correlated(rng, n, tau_s):
    """Return a unit first-order Markov process of n samples; white for tau_s 0."""
    a = np.exp(-SAMPLE_S / tau_s) if tau_s else 0.0
    x, white = np.zeros(n), rng.normal(0, np.sqrt(1 - a * a), n)
    x[0] = rng.normal()
    for k in range(1, n):
        x[k] = a * x[k - 1] + white[k]
    return x


@pytest.mark.parametrize(("tau_s", "share"), [(0.0, 0.0), (0.2, 1.0), (1.0, 1.0), (1.0, 0.2)])
def test_bounds_hold_in_95_of_100_fits(tau_s, share):
    """Fit an offset and a slowly varying effect, as thrust and drag are; a fifth of the error is correlated at least."""
    t = np.arange(0.0, SECONDS, SAMPLE_S)
    A, true, held = np.column_stack([np.ones(len(t)), np.sin(0.7 * t) + np.sin(2.9 * t)]), np.array([2.0, 0.3]), 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        error = share * correlated(rng, len(t), tau_s) + (1 - share) * rng.normal(0, 1, len(t))
        x = np.linalg.lstsq(A, A @ true + error, rcond=None)[0]
        held += np.count_nonzero(np.abs(x - true) < half_widths(A, A @ x - A @ true - error, t))
    assert 0.92 < held / (2 * RUNS) <= 0.995


def test_a_log_of_seconds_has_no_bound():
    t = np.arange(0.0, 1.5, SAMPLE_S)
    assert half_widths(np.ones((len(t), 1)), np.ones(len(t)), t) == [np.inf]


@pytest.mark.parametrize(
    ("follows", "gain", "fault"), [(1.0, 1.0, False), (-1.0, None, True), (0.2, None, False), (-0.2, None, False)]
)
def test_rates_that_their_commands_hardly_explain_tell_neither_gain_nor_sign(follows, gain, fault):
    """In a hover the commands answer noise, and what follows them drowns in it."""
    rng = np.random.default_rng(0)
    command = 0.1 * correlated(rng, 3000, 0.1)
    measured = follows * command + 0.03 * correlated(rng, 3000, 0.1)
    log = SimpleNamespace(t=STEP_S * np.arange(3000), valid=np.ones(3000, bool))
    log.omega_cmd, log.omega_b = (np.column_stack([one] * 3) for one in (command, measured))
    rate = fit_rate([log], 0, Interval(0.0, 0.0, 0.01))
    assert (rate.gain and rate.gain.value) == (gain and pytest.approx(gain, abs=0.05)) and bool(rate.fault) == fault
