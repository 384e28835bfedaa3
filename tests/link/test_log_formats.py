"""A signal is found in whatever message of a format carries it, and what is damaged costs no more than itself."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.errors import UserError
from gate_racer.field.identify.signals import read_signals
from gate_racer.link.logs import betaflight as blackbox
from gate_racer.link.logs.betaflight import betaflight_signals, flights
from gate_racer.link.logs.reader import log_kind, read_log_signals
from gate_racer.link.logs.ulog import ulog_signals
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler
from tests.link import blackbox_writer as writer
from tests.link.log_writers import ULogWriter, dataflash, tlog

IMU = ("QffffffB", "TimeUS,GyrX,GyrY,GyrZ,AccX,AccY,AccZ,I")


def ardupilot(folder, kinds, rows):
    """The signals of a DataFlash log."""
    return read_log_signals(dataflash(folder / "a.bin", {"IMU": IMU, **kinds}, rows))


@pytest.mark.parametrize("name", ["XKF1", "NKF1", "EKF1"])
def test_ardupilot_s_filters_of_all_versions_carry_position_and_velocity(name, tmp_path):
    rows = [row for k in range(30) for row in (("IMU", k, *range(6), 0), (name, k, 1, 2, 3, 4, 5, k))]
    log = ardupilot(tmp_path, {name: ("Qffffff", "TimeUS,VN,VE,VD,PN,PE,PD")}, rows)
    assert log.get("v").values[5] == pytest.approx([1, 2, 3]) and log.get("p").values[5] == pytest.approx([4, 5, 5])


THROTTLES = [
    ("CTUN", "Qf", "TimeUS,ThO", lambda k: (0.01 * k,)),
    ("CTUN", "QH", "TimeUS,ThrOut", lambda k: (k,)),  # Plane, per cent
    ("CTUN", "Qh", "TimeUS,ThrOut", lambda k: (10 * k,)),  # Copter before 3.4, per mille
    ("RATE", "Qffff", "TimeUS,RDes,PDes,YDes,AOut", lambda k: (90, 0, 0, 0.01 * k)),
    ("RCOU", "QHHHH", "TimeUS,C1,C2,C3,C4", lambda k: (1000 + 10 * k,) * 4),
    ("RCOU", "Qhhhh", "TimeUS,Ch1,Ch2,Ch3,Ch4", lambda k: (1000 + 10 * k,) * 4),  # before 3.3
    ("RCOU", "Qhhhh", "TimeUS,Chan1,Chan2,Chan3,Chan4", lambda k: (1000 + 10 * k,) * 4),  # before 3.2
]


@pytest.mark.parametrize(("name", "letters", "columns", "values"), THROTTLES)
def test_the_throttle_of_ardupilot_is_found_where_it_is(name, letters, columns, values, tmp_path):
    rows = [row for k in range(90) for row in (("IMU", 1000 * k, *range(6), 0), (name, 1000 * k, *values(k)))]
    log = ardupilot(tmp_path, {name: (letters, columns)}, rows)
    assert log.get("throttle").values[20] == pytest.approx([0.2])
    if name == "RATE":
        assert log.get("omega_cmd").values[20] == pytest.approx([np.pi / 2, 0, 0])


def test_hundredths_of_old_versions_of_ardupilot_become_units(tmp_path):
    """Copter 3.2: the battery in whole numbers of 0.01 V, rates in 0.01 deg/s."""
    kinds = {
        "IMU": ("Iffffff", "TimeMS,GyrX,GyrY,GyrZ,AccX,AccY,AccZ"),
        "CURR": ("Ih", "TimeMS,Volt"),
        "RATE": ("Iffff", "TimeMS,RDes,R,PDes,YDes"),
    }
    rolls = 0.1 * np.sin(0.1 * np.arange(60))
    rows = [row for k, w in enumerate(rolls) for row in (
        ("IMU", 20 * k, w, 0, 0, 0, 0, -9.81), ("CURR", 20 * k, 1500 - k), ("RATE", 20 * k, 9000, np.degrees(100 * w), 0, k)
    )]  # fmt: skip
    log = ardupilot(tmp_path, kinds, rows)
    assert log.get("voltage").values[10] == pytest.approx(14.9)
    assert log.get("omega_cmd").values[10] == pytest.approx([np.pi / 2, 0, np.radians(0.1)])


def test_events_with_pauses_are_on_the_clock_of_the_imu(tmp_path):
    rows = [*(("IMU", 100_000 * k, *range(6), 0) for k in range(900)), ("EV", 2_000_000, 28), ("EV", 80_000_000, 18)]
    log = ardupilot(tmp_path, {"EV": ("QB", "TimeUS,Id")}, rows)
    assert log.notes == () and log.get("landed").values[:, 0].tolist() == [0, 1]


def test_of_a_log_that_pauses_all_signals_are_those_of_its_longest_part(tmp_path):
    """Disarmed for a minute, after a flight with more events and a shorter one in which it lands."""
    rows = [("IMU", 100_000 * k, *range(6), 0) for k in (*range(300), *range(900, 1400))]
    rows += [("EV", 1_000_000 * t, event) for t, event in ((2, 28), (28, 18), (95, 28), (96, 18), (97, 28))]
    log = read_log_signals(dataflash(tmp_path / "a.bin", {"IMU": IMU, "EV": ("QB", "TimeUS,Id")}, rows))
    assert log.notes == ("it pauses 1 times: 49.9 s of 79.8 s are used",)
    assert log.get("force").t[[0, -1]] == pytest.approx([90, 139.9])
    assert log.get("landed").t.tolist() == [95, 96, 97] and log.get("landed").values[:, 0].tolist() == [0, 1, 0]


@pytest.mark.parametrize(("still", "throttle"), [(True, 0.04), (False, 0.4)])
def test_a_source_that_never_changes_is_passed_over_for_one_that_lives(still, throttle, tmp_path):
    kinds = {"CTUN": ("Qf", "TimeUS,ThO"), "RCOU": ("QHHHH", "TimeUS,C1,C2,C3,C4")}
    rows = [row for k in range(50) for row in (
        ("IMU", k, *range(6), 0), ("CTUN", k, 0.0 if still else 0.01 * k), ("RCOU", k, *(1000 + k,) * 4)
    )]  # fmt: skip
    log = ardupilot(tmp_path, kinds, rows)
    assert log.get("throttle").values[40] == pytest.approx([throttle])


def flown(k):
    """Messages of an autopilot at step k, as ArduPilot sends them to ground stations."""
    return (
        dialect.MAVLink_raw_imu_message(k, 0, 0, -1000 - k, 100, 0, 0, 0, 0, 0),
        dialect.MAVLink_attitude_message(k, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0),
        dialect.MAVLink_vfr_hud_message(0, 0, 0, k % 100, 0, 0),
        dialect.MAVLink_global_position_int_message(k, 473000000 + 90 * k, 85000000, 0, 1000 * k, 100, -200, 300, 0),
    )


HEARTBEAT = dialect.MAVLink_heartbeat_message(2, dialect.MAV_AUTOPILOT_ARDUPILOTMEGA, 0, 0, 4, 3)
GROUND = dialect.MAVLink_heartbeat_message(6, dialect.MAV_AUTOPILOT_INVALID, 0, 0, 4, 3)


def ground_station_log(path):
    packets = [(0, 255, 190, GROUND), (0, 1, 1, HEARTBEAT)]
    packets += [(10000 * k, 1, 1, message) for k in range(80) for message in flown(k)]
    return tlog(path, packets)


def test_what_ground_stations_record_of_ardupilot_is_read(tmp_path):
    log = read_log_signals(ground_station_log(tmp_path / "a.tlog"))
    assert log.get("force").values[50] == pytest.approx([0, 0, -1.05 * GRAVITY])
    assert log.get("omega").values[50] == pytest.approx([0.1, 0, 0])
    assert log.get("q").values[50] == pytest.approx(from_euler(np.float32(0.1), 0, 0))
    assert log.get("throttle").values[50] == pytest.approx([0.5])
    assert log.get("v").values[50] == pytest.approx([1, -2, 3])
    assert log.get("p").values[50] == pytest.approx([50.1, 0, -50], abs=0.1)
    assert log.notes == ()


@pytest.mark.parametrize(
    ("kind", "throttle", "told"),
    [(2, 0.25, ()), (1, 0.5, ("FIXED_WING: SERVO_OUTPUT_RAW",)), (250, 0.5, ("type 250",))],
)
@pytest.mark.parametrize("system", [0, 1])
def test_outputs_are_motors_of_a_multirotor_only(system, kind, throttle, told, tmp_path):
    """Elsewhere they move rudders; some set the system's number to 0."""
    packets = [(0, system, 1, dialect.MAVLink_heartbeat_message(kind, dialect.MAV_AUTOPILOT_PX4, 0, 0, 4, 3))]
    for k in range(80):
        servos = dialect.MAVLink_servo_output_raw_message(k, 0, *(1000 + 5 * k,) * 8)
        packets += [(10000 * k, system, 1, message) for message in (*flown(k), servos)]
    log = read_log_signals(tlog(tmp_path / "a.tlog", packets))
    assert log.get("throttle").values[50] == pytest.approx([throttle])
    assert len(log.get("motors")) == (0 if told else 80) and all(text in log.notes[0] for text in told)


@pytest.mark.parametrize(("said", "read"), [("ArduCopter V4.5.7", 1), ("ArduPlane V4.5.7", 0), ("APMrover2 v2.42", 0)])
def test_outputs_of_ardupilot_are_motors_of_copters_only(said, read, tmp_path):
    kinds = {"IMU": IMU, "MSG": ("QZ", "TimeUS,Message"), "RCOU": ("QHHHH", "TimeUS,C1,C2,C3,C4")}
    rows = [row for k in range(50) for row in (("IMU", k, *range(6), 0), ("RCOU", k, *(1000 + k,) * 4))]
    log = read_log_signals(dataflash(tmp_path / "a.bin", kinds, [("MSG", 0, said.encode()), *rows]))
    assert ("motors" in log.signals) == ("throttle" in log.signals) == read == (not log.notes)


def test_positions_before_the_first_satellite_fix_are_none(tmp_path):
    """Latitude and longitude are 0 until then."""
    packets = [(0, 1, 1, HEARTBEAT)]
    for k in range(80):
        lat, lon = (473000000, 85000000 + 90 * k) if k >= 10 else (0, 0)
        packets.append((10000 * k, 1, 1, dialect.MAVLink_global_position_int_message(k, lat, lon, 0, 0, 0, 0, 0, 0)))
    p = read_log_signals(tlog(tmp_path / "a.tlog", packets)).get("p")
    assert len(p) == 70 and p.values[0] == pytest.approx([0, 0, 0])
    assert p.values[-1] == pytest.approx([0, np.radians(69 * 90e-7) * 6378137 * np.cos(np.radians(47.3)), 0])


def test_two_vehicles_in_one_ground_station_s_log_are_never_merged(tmp_path):
    packets = [(0, 1, 1, HEARTBEAT), (0, 7, 1, HEARTBEAT)]
    for k in range(80):
        packets += [(10000 * k, 1, 1, message) for message in flown(k)]
        packets += [(10000 * k, 7, 1, message) for message in flown(90)]
        packets += [(10000 * k, 255, 190, dialect.MAVLink_set_attitude_target_message(0, to, 1, 128, (1, 0, 0, 0), 0, 0, 0, u))
                    for to, u in ((1, 0.01 * k), (7, 0.9))]  # fmt: skip
    log = read_log_signals(tlog(tmp_path / "a.tlog", packets))
    assert len(log.get("force")) == 80 and len(np.unique(log.get("force").values[:, 2])) == 80
    assert log.get("throttle").values[:, 0] == pytest.approx(0.01 * np.arange(80))
    assert log.notes == ("holds several senders: system/component 1/1 is used, not 7/1",)


def ulog(path, topics, at, count=50):
    """A ULog of topics by name with their fields; `at` gives the values by topic at step k of 10 ms."""
    writer = ULogWriter(topics)
    for k in range(count):
        for topic, values in at(k).items():
            writer.write(topic, 1 + 0.01 * k, *values)
    path.write_bytes(writer.bytes())
    return path


OLD_PX4 = [
    ("actuator_controls_0", "float[4] control", lambda u: (0, 0, 0, u)),
    ("vehicle_rates_setpoint", "float roll;float pitch;float yaw;float thrust", lambda u: (0, 0, 0, u)),
    ("vehicle_attitude_setpoint", "float thrust", lambda u: (u,)),
    ("actuator_outputs", "float[4] output", lambda u: (1000 + 1000 * u,) * 4),
]


@pytest.mark.parametrize(("topic", "fields", "values"), OLD_PX4)
def test_the_throttle_of_old_versions_of_px4_is_found(topic, fields, values, tmp_path):
    path = ulog(tmp_path / "a.ulg", {topic: fields}, lambda k: {topic: values(0.01 * k)})
    assert read_log_signals(path).get("throttle").values[30] == pytest.approx([0.3], abs=1e-6)


def test_a_stamp_that_is_never_set_is_not_taken_for_a_time(tmp_path):
    writer = ULogWriter({"vehicle_local_position_groundtruth": "uint64_t timestamp_sample;float x;float y;float z"})
    for k in range(50):
        stamp = struct.pack("<HQQ3f", 0, 1_000_000 + 10_000 * k, 0, 1.0 + k, 2.0, 3.0)
        writer.data += struct.pack("<HB", len(stamp), ord("D")) + stamp
    (tmp_path / "a.ulg").write_bytes(writer.bytes())
    truth = read_log_signals(tmp_path / "a.ulg").get("true_p")
    assert truth.t == pytest.approx(1 + 0.01 * np.arange(50)) and truth.values[10] == pytest.approx([11, 2, 3])


def test_a_blank_cell_of_a_data_set_is_named_by_its_line(tmp_path):
    file = tmp_path / "mav0" / "imu0" / "data.csv"
    file.parent.mkdir(parents=True)
    file.write_text("#timestamp\n1,0,0,0,9.81,0,0\n2,0,,0,9.81,0,0\n3,0,0,0,9.81,0,0\n")
    with pytest.raises(UserError, match=r"data\.csv: malformed \(line 3 does not end in 7 numbers\)"):
        read_log_signals(tmp_path)


def test_a_data_set_in_another_unit_of_time_and_cut_in_its_last_line_is_read(tmp_path):
    rows = [f"{1_700_000_000_000_000_000 + 5_000_000 * k} 0 0 {0.1 * (k % 2)} 0 0 9.81" for k in range(200)]
    (tmp_path / "imu.txt").write_text("# timestamp[ns] w.x w.y w.z a.x a.y a.z\n" + "\n".join(rows)[:-12])
    poses = [f"{1_700_000_000_000_000_000 + 500_000_000 * k} {k} 0 0 0 0 0 1" for k in range(3)]
    (tmp_path / "groundtruth.txt").write_text("\n".join(poses))
    log = read_log_signals(tmp_path)
    assert np.ptp(log.get("true_p").t) == pytest.approx(1.0)
    assert np.ptp(log.get("omega").t) == pytest.approx(0.99) and len(log.get("force")) == 199
    assert log.notes == ("imu.txt: 1 lines that do not end in 7 numbers are left out",)


def test_the_first_bytes_tell_the_kind_whatever_the_name(tmp_path):
    topic = "battery_status"
    data = ulog(tmp_path / "a.ulg", {topic: "float voltage_v"}, lambda k: {topic: (16.0 - 0.01 * k,)}, 30).read_bytes()
    for name, written in (("a.bin", data), ("flight", data), ("a.ulg.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(written)
        assert log_kind(tmp_path / name) == "ulog"
        assert len(read_log_signals(tmp_path / name).get("voltage")) == 30


NONE = [
    ("noise", bytes(range(256)), "is no log that is read"),
    ("a.ulg.zip", b"PK\x03\x04" + bytes(60), "is a zip archive: unpack it"),
    ("a.ulg", b"ULogEnc\1" + bytes(60), "is an encrypted ULog"),
    ("log05", b"\xbc\2\0\5" + bytes(60), "is a log of a Crazyflie's SD card"),
    ("a.log", b"1\r\n\r\nArduCopter V3.1\r\nFMT, 128, 89, FMT, BBnNZ, Type,Length,Name,Format\r\n",
     r"is a log of ArduPilot as text, which is not read: give its \.bin"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "words"), NONE)
def test_what_is_no_log_is_named(name, data, words, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=words):
        log_kind(tmp_path / name)


ULOG_TOPICS = {
    "sensor_combined": "float[3] gyro_rad;float[3] accelerometer_m_s2",
    "vehicle_attitude": "float[4] q",
    "vehicle_local_position": "float x;float y;float z;float vx;float vy;float vz",
    "vehicle_rates_setpoint": "float roll;float pitch;float yaw;float[3] thrust_body",
    "battery_status": "float voltage_v",
    "another_topic": "float nothing",
}


ULOG_VALUES = {
    "sensor_combined": (0.1, 0.2, 0.3, 1.0, 2.0, -9.0),
    "vehicle_attitude": (1.0, 0.0, 0.0, 0.0),
    "vehicle_local_position": (4.5, 2.0, -3.0, 4.0, 5.0, -6.0),
    "vehicle_rates_setpoint": (0.5, -0.5, 0.25, 0.0, 0.0, -0.625),
    "battery_status": (15.5,),
}
READ = {
    "force": [1, 2, -9], "omega": [0.1, 0.2, 0.3], "q": [1, 0, 0, 0], "p": [4.5, 2, -3], "v": [4, 5, -6],
    "throttle": [0.625], "omega_cmd": [0.5, -0.5, 0.25], "voltage": [15.5],
}  # fmt: skip


def px4(path, without="", count=200):
    topics, values = ({name: one for name, one in of.items() if name != without} for of in (ULOG_TOPICS, ULOG_VALUES))
    return ulog(path, topics, lambda k: values, count)


def test_topics_are_signals_in_our_axes_as_far_as_the_file_goes(tmp_path):
    path = px4(tmp_path / "a.ulg")
    read = read_log_signals(path)
    assert read.get("force").t[50] == pytest.approx(1.5) and read.notes == ()
    for name, value in READ.items():
        assert read.get(name).values[50] == pytest.approx(value, rel=1e-6), name
    path.write_bytes(path.read_bytes()[: 2 * path.stat().st_size // 3])
    assert 20 < len(ulog_signals(path).get("force")) < 199


def test_what_px4_marks_as_invalid_is_not_taken_as_measured(tmp_path):
    names = "xy_valid", "z_valid", "v_xy_valid", "v_z_valid", "x", "y", "z", "vx", "vy", "vz"
    topic, fields = "vehicle_local_position", ";".join(f"float {name}" for name in names)
    path = ulog(tmp_path / "a.ulg", {topic: fields}, lambda k: {topic: (0, 1, k >= 20, 1, 0, 0, k, 1, 2, k)})
    log = read_log_signals(path)
    assert "p" not in log.signals and log.get("v").values[:, 2].tolist() == list(range(20, 50))


@pytest.mark.parametrize(
    ("column", "value", "lost", "words"),
    [
        ("v_x", 0.0, "v", "its velocity is 0 along north and east throughout though it tilts"),
        ("voltage", 1431.9, "voltage", "its battery's voltage of 1432 V is none"),
        ("v_x", 1.0, "", ""),
    ],
)
def test_values_that_nothing_measured_are_left_out(column, value, lost, words, tmp_path):
    rows = [{"t": 0.01 * k, "v_x": 1.0, "v_y": 0.0, "v_z": 0.1 * k, "roll": 0.3, "pitch": 0.0, "yaw": 0.0, "voltage": 15.0}
            | {column: value} for k in range(60)]  # fmt: skip
    (tmp_path / "a.csv").write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]))
    log = read_log_signals(tmp_path / "a.csv")
    assert {"v", "voltage"} - log.signals.keys() == ({lost} if lost else set()) and words in "; ".join(log.notes)


def test_missing_data_are_named_by_their_topic(tmp_path):
    path = px4(tmp_path / "a.ulg", without="vehicle_rates_setpoint")
    with pytest.raises(UserError, match=r"no commanded throttle.*vehicle_thrust_setpoint or vehicle_rates_setpoint"):
        read_log_signals(path).require(path, ("force", "throttle"), "identify-vehicle")


@pytest.mark.parametrize(
    ("decode", "count", "data", "values"),
    [
        (blackbox.unsigned_vb, 1, "ac02", [300]),
        (blackbox.unsigned_vb, 1, "ffffffff0f", [0xFFFFFFFF]),
        (blackbox.signed_vb, 1, "8001", [64]),
        (blackbox.neg_14bit, 1, "05", [-5]),
        (blackbox.tag8_8svb, 1, "03", [-2]),
        (blackbox.tag8_8svb, 3, "050102", [-1, 0, 1]),
        (blackbox.tag2_3s32, 3, "1b", [1, -2, -1]),
        (blackbox.tag2_3s32, 3, "4718", [7, 1, -8]),
        (blackbox.tag2_3s32, 3, "9f2001", [31, -32, 1]),
        (blackbox.tag2_3s32, 3, "e4800080000080", [-128, -32768, -8388608]),
        (blackbox.tag8_4s16, 4, "e478012340", [0, 7, -128, 0x1234]),
        (blackbox.tag8_4s16, 4, "1bff80807f", [-128, -128, 7, 0]),
    ],
)
def test_fields_are_what_the_format_says(decode, count, data, values):
    raw = bytes.fromhex(data)
    assert decode(raw, 0, count) == (values, len(raw))
    with pytest.raises((IndexError, blackbox.FrameError)):
        decode(raw[:-1], 0, count)


within = st.integers(-(1 << 14), (1 << 14) - 1)  # differences of fields that share a tag have 16 bits


@given(st.lists(st.lists(within, min_size=len(writer.NAMES), max_size=len(writer.NAMES)), min_size=1, max_size=40))
@settings(max_examples=60)
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
        fields = {"gyroADC[0]": rate, "gyroADC[1]": 7, "gyroADC[2]": -9, "accSmooth[0]": 100, "accSmooth[1]": -200}
        fields |= {"accSmooth[2]": 2048 + k % 50, "setpoint[0]": rate, "setpoint[2]": -4, "setpoint[3]": 300 + k % 100}
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
    assert read.get("throttle").values[k] == pytest.approx(0.309)
    assert read.get("voltage").values[k] == pytest.approx(16.5)
    assert read.get("motors").values[k] == pytest.approx((500 + np.arange(4)) / (2047 - 158))
    assert read.get("omega").t[k] == pytest.approx(5.018)


def test_the_units_of_the_battery_and_of_high_resolution_are_those_of_the_header(tmp_path):
    for cells, volts in ("33,35,43", [165.0]), ("330,350,430", [16.5]):
        read = betaflight_signals(as_file(tmp_path / "a.bbl", hovering(50), vbatcellvoltage=cells))
        assert read.get("voltage").values[9] == pytest.approx(volts)
    fine = betaflight_signals(as_file(tmp_path / "a.bbl", hovering(50), blackbox_high_resolution=1))
    assert fine.get("omega").values[9, 1] == pytest.approx(np.radians(-0.7))


@pytest.mark.filterwarnings("error")
def test_a_blackbox_without_accelerometer_says_so(tmp_path):
    path = as_file(tmp_path / "a.bbl", hovering(50), acc_1G=0)
    with pytest.raises(UserError, match=r"holds no accelerometer samples and no velocity \(not logged\)"):
        read_signals(path)


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


def test_the_longest_of_several_flights_is_read_and_a_cut_off_file_as_far_as_it_goes(tmp_path):
    path = tmp_path / "a.bbl"
    short, long = (writer.header() + b"".join(writer.frames(hovering(n))) + writer.END for n in (40, 70))
    path.write_bytes(short + long + short)
    read = betaflight_signals(path)
    assert len(read.get("omega")) == 70 and "3 flights" in "; ".join(read.notes)
    path = as_file(tmp_path / "a.bbl", hovering())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    read = betaflight_signals(path)
    assert 100 < len(read.get("omega")) < 500 and "damaged" in "; ".join(read.notes)
    path.write_bytes(path.read_bytes() + b"\xff" * 4_000_000)  # as erased flash reads
    assert len(betaflight_signals(path).get("omega")) in (len(read.get("omega")), len(read.get("omega")) - 1)
