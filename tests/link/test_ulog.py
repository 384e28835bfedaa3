"""PX4's ULog: its topics as signals."""

import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.logs.reader import read_log_signals
from gate_racer.link.logs.ulog import ulog_signals
from tests.fuzz.mutate import refused
from tests.link.ulog_writer import ULogWriter

TOPICS = {
    "sensor_combined": "float[3] gyro_rad;float[3] accelerometer_m_s2",
    "vehicle_attitude": "float[4] q",
    "vehicle_local_position": "float x;float y;float z;float vx;float vy;float vz",
    "vehicle_rates_setpoint": "float roll;float pitch;float yaw;float[3] thrust_body",
    "battery_status": "float voltage_v",
    "another_topic": "float nothing",
}


def log(without=(), samples=200) -> ULogWriter:
    writer = ULogWriter({name: fields for name, fields in TOPICS.items() if name not in without})
    for k in range(samples):
        t = 3.0 + 0.01 * k
        for name, values in {
            "sensor_combined": (0.1, 0.2, 0.3, 1.0, 2.0, -9.0),
            "vehicle_attitude": (1.0, 0.0, 0.0, 0.0),
            "vehicle_local_position": (1.0 + t, 2.0, -3.0, 4.0, 5.0, -6.0),
            "vehicle_rates_setpoint": (0.5, -0.5, 0.25, 0.0, 0.0, -0.625),
            "battery_status": (15.5,),
        }.items():
            if name not in without:
                writer.write(name, t, *values)
    return writer


def test_topics_are_signals_in_our_axes(tmp_path):
    path = tmp_path / "a.ulg"
    path.write_bytes(log().bytes())
    read = read_log_signals(path)
    force = read.get("force").where([50])
    assert force.t[0] == pytest.approx(3.5) and force.values[0] == pytest.approx([1.0, 2.0, -9.0]) and read.notes == ()
    for name, value in {
        "omega": [0.1, 0.2, 0.3],
        "q": [1, 0, 0, 0],
        "p": [4.5, 2, -3],
        "v": [4, 5, -6],
        "throttle": [0.625],
        "omega_cmd": [0.5, -0.5, 0.25],
        "voltage": [15.5],
    }.items():
        assert read.get(name).values[50] == pytest.approx(value, rel=1e-6), name


def test_a_better_topic_goes_before_what_stands_for_it(tmp_path):
    path, rates = tmp_path / "a.ulg", []
    for more in ({}, {"vehicle_angular_velocity": "float[3] xyz"}):
        writer = ULogWriter(TOPICS | more)
        writer.write("sensor_combined", 1.0, *range(6))
        for topic in more:
            writer.write(topic, 1.0, 7.0, 8.0, 9.0)
        path.write_bytes(writer.bytes())
        rates.append(ulog_signals(path).get("omega").values[0].tolist())
    assert rates == [[0, 1, 2], [7, 8, 9]]


def test_missing_data_are_named_by_their_topic(tmp_path):
    path = tmp_path / "a.ulg"
    path.write_bytes(log(without=("vehicle_rates_setpoint",)).bytes())
    with pytest.raises(UserError, match=r"no commanded throttle.*vehicle_thrust_setpoint or vehicle_rates_setpoint"):
        read_log_signals(path).require(path, ("force", "throttle"), "identify-vehicle")


def test_a_cut_off_file_is_read_as_far_as_it_goes(tmp_path):
    whole, path = log().bytes(), tmp_path / "a.ulg"
    path.write_bytes(whole[: 2 * len(whole) // 3])
    assert 20 < len(ulog_signals(path).get("force")) < 199


def test_no_bytes_bring_more_than_one_line(tmp_path):
    (tmp_path / "a.ulg").write_bytes(log(samples=20).bytes())
    assert 0 < refused(read_log_signals, tmp_path / "a.ulg", 60) < 60
