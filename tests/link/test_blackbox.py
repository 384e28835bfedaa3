"""Betaflight's blackbox: what the firmware writes is what is read, and what is damaged costs no more than itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate_racer.link.logs.betaflight import (
    FrameError,
    betaflight_signals,
    flights,
    neg_14bit,
    signed_vb,
    tag2_3s32,
    tag8_4s16,
    tag8_8svb,
    unsigned_vb,
)
from gate_racer.link.logs.reader import read_log_signals
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler
from tests.fuzz.mutate import refused
from tests.link import blackbox_writer as writer


@pytest.mark.parametrize(
    ("decode", "count", "data", "values"),
    [
        (unsigned_vb, 1, "00", [0]),
        (unsigned_vb, 1, "ac02", [300]),
        (unsigned_vb, 1, "ffffffff0f", [0xFFFFFFFF]),
        (signed_vb, 1, "03", [-2]),
        (signed_vb, 1, "8001", [64]),
        (neg_14bit, 1, "05", [-5]),
        (tag8_8svb, 1, "03", [-2]),
        (tag8_8svb, 3, "05" + "01" + "02", [-1, 0, 1]),
        (tag2_3s32, 3, "1b", [1, -2, -1]),
        (tag2_3s32, 3, "4718", [7, 1, -8]),
        (tag2_3s32, 3, "9f2001", [31, -32, 1]),
        (tag2_3s32, 3, "e4" + "80" + "0080" + "000080", [-128, -32768, -8388608]),
        (tag8_4s16, 4, "00", [0, 0, 0, 0]),
        (tag8_4s16, 4, "e4" + "7801234 0".replace(" ", ""), [0, 7, -128, 0x1234]),
        (tag8_4s16, 4, "1b" + "ff80" + "807f", [-128, -128, 7, 0]),
    ],
)
def test_fields_are_what_the_format_says(decode, count, data, values):
    raw = bytes.fromhex(data if len(data) % 2 == 0 else data + "0")
    assert decode(raw, 0, count) == (values, len(raw))
    with pytest.raises((IndexError, FrameError)):
        decode(raw[:-1], 0, count)


within = st.integers(-(1 << 14), (1 << 14) - 1)  # differences of fields that share a tag have 16 bits


@given(st.lists(st.lists(within, min_size=len(writer.NAMES), max_size=len(writer.NAMES)), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_whatever_was_logged_is_read_back(rows):
    names = writer.NAMES
    for k, row in enumerate(rows):
        row[names.index("time")], row[names.index("loopIteration")] = 1000 * k + abs(row[1]) % 900, k
        row[names.index("vbatLatest")] = abs(row[names.index("vbatLatest")]) % 8000
    (flight,) = flights(writer.header() + b"".join(writer.frames(rows, every=8)) + writer.END)
    assert flight.damaged == 0 and flight.names == tuple(names)
    assert flight.values.tolist() == rows


def hovering(count=600, **more):
    """Return frames at 500 Hz of an oscillating roll, after 0.5 s of idling."""
    rows = []
    for k in range(count):
        rate = round(100 * np.sin(k / 20))
        motors = {f"motor[{i}]": 158 + 500 + i for i in range(4)}
        fields = {"gyroADC[0]": rate, "gyroADC[1]": 7, "gyroADC[2]": -9, "setpoint[0]": rate, "setpoint[2]": -4}
        fields |= {
            "accSmooth[0]": 100,
            "accSmooth[1]": -200,
            "accSmooth[2]": 2048 + k % 50,
            "setpoint[3]": 300 + k % 100,
        }
        rows.append(writer.row_of(5_000_000 + 2000 * k, k, **(fields | motors | more)))
    return rows


def as_file(path, rows, **head):
    frames = writer.frames(rows)
    frames[3:3] = [writer.SLOW_FRAME, writer.RESUME_EVENT]
    path.write_bytes(writer.header(**head) + b"".join(frames) + writer.END)
    return path


def test_signals_are_in_si_units_and_in_our_axes(tmp_path):
    roll_right, nose_up = from_euler(0.5, 0.0, 0.0), from_euler(0.0, 0.5, 0.0)
    for q, name, sign in ((roll_right, "imuQuaternion[0]", 1), (nose_up, "imuQuaternion[1]", -1)):
        parts = {name: sign * round(np.sin(0.25) * 32767)}
        read = betaflight_signals(as_file(tmp_path / "a.bbl", hovering(50, **parts)))
        assert np.abs(read.get("q").values[9] - q).max() < 1e-4
    k = 9
    rate = np.radians(round(100 * np.sin(k / 20)))
    assert read.get("omega").values[k] == pytest.approx([rate, np.radians(-7), np.radians(9)])
    assert read.get("omega_cmd").values[k] == pytest.approx([rate, 0.0, np.radians(4)])
    assert read.get("force").values[k] == pytest.approx(np.array([100, 200, -2057]) / 2048 * GRAVITY)
    assert read.get("throttle").values[k] == pytest.approx(0.309) and read.get("voltage").values[k] == pytest.approx(
        16.5
    )
    assert read.get("motors").values[k] == pytest.approx((500 + np.arange(4)) / (2047 - 158))
    assert read.get("omega").t[k] == pytest.approx(5.018)


def test_high_resolution_logs_are_ten_times_as_fine(tmp_path):
    fine = betaflight_signals(as_file(tmp_path / "a.bbl", hovering(50), blackbox_high_resolution=1))
    assert fine.get("omega").values[9, 1] == pytest.approx(np.radians(-0.7))


def test_damaged_bytes_cost_the_frames_up_to_the_next_whole_one(tmp_path):
    rows = hovering()
    frames = writer.frames(rows)
    frames[100] = b"\x00" * len(frames[100])
    path = tmp_path / "a.bbl"
    path.write_bytes(writer.header() + b"".join(frames) + writer.END)
    read = betaflight_signals(path)
    stamps = [round(t * 1e6) for t in read.get("omega").t]
    assert stamps == [row[1] for k, row in enumerate(rows) if not 99 <= k < 128]  # nothing follows the one before
    assert "1 stretches damaged" in "; ".join(read.notes)


def test_a_file_of_several_flights_gives_the_longest(tmp_path):
    path = tmp_path / "a.bbl"
    short, long = (writer.header() + b"".join(writer.frames(hovering(n))) + writer.END for n in (40, 70))
    path.write_bytes(short + long + short)
    read = betaflight_signals(path)
    assert len(read.get("omega")) == 70 and "3 flights" in "; ".join(read.notes)


def test_a_cut_off_file_is_read_as_far_as_it_goes(tmp_path):
    path = as_file(tmp_path / "a.bbl", hovering())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    read = betaflight_signals(path)
    assert 100 < len(read.get("omega")) < 500 and "damaged" in "; ".join(read.notes)
    path.write_bytes(path.read_bytes() + b"\xff" * 4_000_000)  # as erased flash reads
    assert len(betaflight_signals(path).get("omega")) in (len(read.get("omega")), len(read.get("omega")) - 1)


def test_no_bytes_bring_more_than_one_line(tmp_path):
    assert 0 < refused(read_log_signals, as_file(tmp_path / "a.bbl", hovering(120)), 150) < 150
