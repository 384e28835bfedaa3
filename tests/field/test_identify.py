"""A vehicle that nobody has told of is recovered from its logs."""

from dataclasses import replace

import numpy as np
import pytest

from field.files import identified, write_vehicle
from field.identify import hats, identify, lagged
from field.identify_cli import main
from field.signals import STEP_S, read_signals
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.vehicle import load_vehicle


@pytest.fixture(scope="module")
def fit(log_of_unknown):
    return identify([read_signals(log_of_unknown)])


def test_thrust_is_recovered_within_two_per_cent_and_drag_within_five(fit, unknown):
    for u, estimate in zip(fit.throttle, fit.thrust_m_s2, strict=True):
        assert estimate.value == pytest.approx(unknown.throttle.thrust(u), rel=0.02, abs=0.05)
    assert fit.drag_quadratic_1_m.value == pytest.approx(unknown.drag_quadratic_1_m, rel=0.05)
    assert fit.delay_s == pytest.approx(unknown.command_delay_s, abs=0.005)
    assert fit.thrust_lag_s == pytest.approx(unknown.thrust_lag_s, abs=0.005)
    assert [gain.value for gain in fit.rate_gain] == pytest.approx([1, 1, 1], abs=0.03)
    assert fit.rate_lag_s == pytest.approx(unknown.rate_lag_s, rel=0.1)
    assert fit.hold_out_m_s2 < 0.05


def test_the_file_is_read_back_and_hovers_where_the_vehicle_does(fit, unknown, tmp_path):
    base = load_vehicle("dcl")
    write_vehicle(tmp_path / "found.yaml", identified(fit, base, "found", "a test"))
    found = load_vehicle(str(tmp_path / "found.yaml"))
    assert found.throttle.throttle(GRAVITY) == pytest.approx(unknown.throttle.throttle(GRAVITY), rel=0.02)
    assert found.camera == base.camera and found.name == "found"
    assert replace(found, throttle=base.throttle, source=base.source).body_m == base.body_m


def test_vertical_steps_in_a_csv_give_the_published_thrust_points(tmp_path):
    """Steps of the throttle at the published points (builds 3364 to 3391), with the published drag and nothing but v_z."""
    command, thrust, drag = (0.1, 0.265, 0.4, 0.6, 0.665, 0.8), (2.6, 9.75, 17.8, 33.8, 39.1, 49.1), 0.047
    rng, v, rows = np.random.default_rng(5), 0.0, ["t,throttle,v_z"]
    u = np.repeat(rng.permutation(np.tile(command, 6)), 80)
    late = lagged(hats(u, np.array(command)) @ np.array(thrust), 0.04, 0.03)
    for k, c in enumerate(late):
        rows.append(f"{k * STEP_S:.3f},{u[k]},{v:.5f}")
        v += STEP_S * (GRAVITY - c - drag * abs(v) * v)
    (tmp_path / "steps.csv").write_text("\n".join(rows))
    fit = identify([read_signals(tmp_path / "steps.csv")])
    told = dict(zip(fit.throttle, fit.thrust_m_s2, strict=True))
    for point, value in zip(command, thrust, strict=True):
        if point in told:
            assert told[point].value == pytest.approx(value, rel=0.03, abs=0.2)
    assert fit.drag_quadratic_1_m.value == pytest.approx(drag, rel=0.05)
    assert fit.rate_gain == (None, None, None) and "roll rate pulses" in fit.wanted


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes(log_of_unknown, tmp_path):
    whole = log_of_unknown.read_bytes()
    (tmp_path / "cut.mcap").write_bytes(whole[: len(whole) // 2])
    assert 0 < len(read_signals(tmp_path / "cut.mcap").t) < len(read_signals(log_of_unknown).t)


def test_of_a_log_whose_clock_was_set_the_longest_part_is_used_and_the_rest_told(tmp_path):
    """As the real simulator's is during its start-up: 2 s, then 5 s that begin at 0 again."""
    stamps = [*np.arange(0, 2, 0.02), *np.arange(0, 5, 0.02)]
    rows = [f"{t:.3f},{0.2 + 0.1 * (k % 40 < 20)},{k % 7}" for k, t in enumerate(stamps)]
    (tmp_path / "set.csv").write_text("\n".join(["t,throttle,v_z", *rows]))
    log = read_signals(tmp_path / "set.csv")
    assert log.t[-1] - log.t[0] == pytest.approx(5.0, abs=0.05) and (np.diff(log.t) > 0).all()
    assert log.note == "its clock was set 1 times: 5.0 s of 7.0 s are used"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "t,throttle\n0,1\n", "column v_z is missing"),
        ("a.csv", "t,throttle,v_z\n0,1,x\n", "malformed"),
        ("a.csv", "t,throttle,v_z\n0,1,0\n", "1 samples of the commanded throttle"),
        ("a.mcap", "nothing", "is no MCAP file"),
        ("a.txt", "", "logs end in .mcap, .csv, .tlog, .bin"),
        ("a.mcap", None, "no such file"),
    ],
)
def test_a_log_without_what_is_needed_is_one_clear_line(name, text, words, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words) as error:
        read_signals(tmp_path / name)
    assert "\n" not in str(error.value)


def test_the_command_writes_vehicle_and_picture(log_of_unknown, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["identify-vehicle", str(log_of_unknown), "--out", str(tmp_path / "v.yaml")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0 and (tmp_path / "v.png").stat().st_size > 10_000
    assert "drag" in capsys.readouterr().out
