"""Tables are read as others write them, and refused in a line where they would be misread."""

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.field.identify.signals import read_signals
from gate_racer.link.logs.reader import log_kind, read_log_signals
from gate_racer.vehicle.dynamics import GRAVITY


def test_a_column_s_own_name_counts_more_than_another_and_one_that_comes_twice_is_refused(tmp_path):
    rows = "".join(f"{0.01 * k},{0.3},{7.0},0,0,-9.8\n" for k in range(200))
    (tmp_path / "alias.csv").write_text("t,throttle,thrust,a_x,a_y,a_z\n" + rows)
    assert read_log_signals(tmp_path / "alias.csv").get("throttle").values.max() == pytest.approx(0.3)
    (tmp_path / "twice.csv").write_text("t,throttle,a_z,a_x,a_y,a_z\n" + rows)
    with pytest.raises(UserError, match="column a_z comes twice; leave one"):
        read_log_signals(tmp_path / "twice.csv")


def test_columns_of_a_table_may_have_units(tmp_path):
    rows = ["time [ms],throttle (%),a_x [g],a_y [g],a_z [g],w_x [deg/s],w_y [deg/s],w_z [deg/s]"]
    rows += [f"{10 * k},{k},0,0,-1,180,0,{k}" for k in range(50)]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    log = read_log_signals(tmp_path / "a.csv")
    force, throttle = log.get("force").values[9], log.get("throttle")
    assert force == pytest.approx([0, 0, -GRAVITY])
    assert (throttle.t[9], *throttle.values[9]) == pytest.approx((0.09, 0.09))
    assert log.get("omega").values[9, 0] == pytest.approx(np.pi)
    (tmp_path / "b.csv").write_text(rows[0].replace("[deg/s]", "[furlong]") + "\n" + rows[1])
    with pytest.raises(UserError, match="unit furlong is not known"):
        read_log_signals(tmp_path / "b.csv")


ROWS = [(0.01 * k, 0.3, 0.5, 0.0, -9.81) for k in range(60)]  # t, throttle, specific force


def as_table(path, head, values=lambda *row: row):
    """Write a table of `values` of ROWS, separated as the header is; with `;` decimals have commas."""
    separator = next((one for one in ";\t" if one in head.splitlines()[-1]), ",")
    lines = [separator.join(map(str, values(*row))) for row in ROWS]
    path.write_text("\n".join([head, *(line.replace(".", ",") if separator == ";" else line for line in lines)]))
    return path


HEAD = "t,throttle,a_x,a_y,a_z"
WRITTEN = [
    (f"{HEAD},mode", lambda *row: (*row, "OFFBOARD"), ""),
    (f"{HEAD},T", lambda *row: (*row, 21.5), ""),
    ("Time,Throttle,a_x,a_y,a_z", lambda *row: row, ""),
    (f"# {HEAD}", lambda *row: row, ""),
    (f"# time, then; the; rest; in; SI\n{HEAD}", lambda *row: row, ""),
    (f"\ufeff{HEAD}", lambda *row: row, ""),
    ("t,throttle,ax,ay,az", lambda *row: row, ""),
    ("t,throttle,ax_b,ay_b,az_b", lambda *row: row, ""),
    (HEAD.replace(",", ";"), lambda *row: row, ""),
    (HEAD.replace(",", "\t"), lambda *row: row, ""),
    (HEAD.replace("t,", "timestamp,time_us,"), lambda t, *row: (int(1e3 * t), 1e6 * t, *row), ""),  # its unit is known
    (f"{HEAD},w_x,w_y,w_z", lambda t, *row: (t, *row, 0.3 if t else 500.0, 0, 0), ""),  # a glitch is no other unit
    (HEAD, lambda t, *row: (round(1e3 * t), *row), "column t is taken in ms, by its steps"),
    (HEAD, lambda t, *row: (round(1e6 * t), *row), "column t is taken in us, by its steps"),
    (HEAD, lambda t, *row: (round(1e9 * t), *row), "column t is taken in ns, by its steps"),
]


@pytest.mark.parametrize(("head", "values", "noted"), WRITTEN)
def test_tables_are_read_as_others_write_them(head, values, noted, tmp_path):
    log = read_log_signals(as_table(tmp_path / "a.csv", head, values))
    assert log_kind(as_table(tmp_path / "b", head, values)) == "table"
    force = log.get("force")
    assert force.t == pytest.approx([row[0] for row in ROWS]) and force.values[9] == pytest.approx([0.5, 0, -9.81])
    assert len(log.get("throttle")) == len(ROWS) and "; ".join(log.notes) == noted


MISREAD = [
    (f"{HEAD},roll,pitch,yaw", lambda *row: (*row[:4], 9.81, 3.1, 0, 0), "z is up by a_z, but the other way"),
    (HEAD, lambda *row: (*row[:4], 0.3), "is 0.583 m/s.2 for most of the log: is gravity subtracted"),
    (HEAD, lambda *row: (*row[:4], -1.0), r"force is 1.12 for most .* in g\? multiply it by 9.81"),
    (HEAD, lambda *row: (*row[:4], -1000.0), r"force is 1e.03 for most .* in mg\? multiply it by 0.00981"),
    (HEAD, lambda *row: (*row[:4], "none"), "column a_z, row 1: none is no number"),
    (HEAD, lambda t, *row: (1e4 * t, *row), r"no unit and steps of 100: name it, as in t \[ms\]"),
    (
        f"{HEAD},w_x,w_y,w_z",
        lambda t, *row: (t, *row, 400 * np.sin(30 * t), 0, 0),
        r"column w_x has no unit and exceeds 35 rad/s in 9\d % .* name it, as in w_x \[deg/s\] or \[rad/s\]",
    ),
    (HEAD.replace("t,", "time_us [ms],"), lambda *row: row, "is the time in us or in ms"),
    ("loopIteration,time (us)", lambda *row: (0, 0), "made by blackbox_decode from a .bbl or .bfl, which is read"),
    ("timestamp,q[0]", lambda *row: (0, 0), "made by ulog2csv from a .ulg, which is read itself"),
    ("timestamp,timestamp_sample,x", lambda *row: (0, 0, 0), "made by ulog2csv from a .ulg, which is read itself"),
]


@pytest.mark.parametrize(("head", "values", "words"), MISREAD)
def test_tables_that_would_be_misread_are_refused(head, values, words, tmp_path):
    with pytest.raises(UserError, match=words):
        read_log_signals(as_table(tmp_path / "a.csv", head, values))


Z_UP = {
    "p_x": 1, "p_y": -2, "p_z": -3, "vel x": 4, "vel y": -5, "vel z": -6, "quat w": 0.9, "quat x": 0.1, "quat y": -0.2,
    "quat z": -0.3, "acc x": 0.5, "acc y": -0.6, "acc z": -9.81, "ang vel x": 0.07, "ang vel y": -0.08, "ang vel z": -0.09,
}  # fmt: skip


@pytest.mark.parametrize("up", [1, -1])
def test_axes_with_z_up_are_turned_into_frd_and_ned(up, tmp_path):
    told = [value * (up if name[-1] in "yz" else 1) for name, value in Z_UP.items()]
    rows = [",".join(map(str, (0.01 * k, 0.3, *told))) for k in range(60)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(("t", "throttle", *Z_UP)), *rows]))
    log = read_log_signals(tmp_path / "a.csv")
    assert len(log.notes) == (up < 0) and log.get("throttle").values[0] == 0.3
    told = {"p": (1, -2, -3), "v": (4, -5, -6), "q": (0.9, 0.1, -0.2, -0.3), "omega": (0.07, -0.08, -0.09)}
    for name, values in told.items():
        assert tuple(log.get(name).values[5]) == pytest.approx(values)
    assert tuple(log.get("force").values[5]) == pytest.approx((0.5, -0.6, -9.81))


@pytest.mark.parametrize("turned, noted", [(1, 0), (-1, 1)])
def test_velocities_whose_axes_are_not_those_of_the_forces_are_noted(turned, noted, tmp_path):
    """A level vehicle that is pushed to and fro, sideways and vertically."""
    rows = [(t, 0.3, np.sin(t), 2 * np.cos(t), -GRAVITY - np.sin(t)) for t in np.arange(0.0, 20.0, 0.02)]
    v = [(1 - np.cos(t), turned * 2 * np.sin(t), turned * (np.cos(t) - 1)) for t, *_ in rows]
    lines = [",".join(map(str, (*row, *one, 0, 0, 0))) for row, one in zip(rows, v, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["t,throttle,a_x,a_y,a_z,v_x,v_y,v_z,roll,pitch,yaw", *lines]))
    assert sum("check the axes" in note for note in read_log_signals(tmp_path / "a.csv").notes) == noted


TIMES = {"time_s": 1, "timestamp_ms": 1e3, "TimeUS": 1e6, "time_usec [us]": 1e6, "t_ns": 1e9}


@pytest.mark.parametrize("name, per_s", TIMES.items())
def test_a_name_may_tell_the_unit_of_times_and_a_bracket_that_of_rates(name, per_s, tmp_path):
    head = HEAD.replace("t,", f"{name},") + ",w_x [deg/s],w_y,w_z"
    path = as_table(tmp_path / "a", head, lambda t, *row: (100 * per_s * t, *row, 400, 0, 0))
    log = read_log_signals(path)
    assert log.notes == () and log.get("force").t[-1] == pytest.approx(59.0)
    assert log.get("omega").values[0] == pytest.approx([np.radians(400), 0, 0])


def test_a_stated_unit_of_forces_is_believed(tmp_path):
    """A vehicle in free fall for most of its log."""
    head = HEAD.replace("a_z", "a_z [m/s^2]")
    log = read_log_signals(as_table(tmp_path / "a.csv", head, lambda *row: (*row[:4], -1.0)))
    assert len(log.get("force")) == len(ROWS)


def test_samples_too_rare_for_a_vehicle_are_refused(tmp_path):
    path = as_table(tmp_path / "a.csv", HEAD, lambda t, *row: (25 * t, *row[:3], -9.81 + t))
    with pytest.raises(UserError, match=r"holds 4\.0 samples of the motion a second, but 10 are needed"):
        read_signals(path)
