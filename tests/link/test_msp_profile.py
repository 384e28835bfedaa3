"""A Betaflight as data: curves and their inverses, sticks, counts and signs."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate_racer.common.errors import UserError
from gate_racer.link.messages import Imu
from gate_racer.link.msp.messages import RawAttitude, RawImu
from gate_racer.link.msp.profile import (
    FOLDER,
    RATES_TYPE,
    AxisRates,
    RateCurves,
    ThrottleStick,
    load_betaflight,
    load_wire,
    speaks_msp,
)
from gate_racer.link.profile import load_profile
from gate_racer.vehicle.rotation import from_euler, to_euler

BF = load_betaflight("betaflight")
FEW = settings(max_examples=60)
axes = st.builds(AxisRates, st.integers(1, 255), st.integers(0, 255), st.integers(0, 100), st.integers(200, 1998))
curves = st.builds(lambda kind, axis: RateCurves(kind, axis, axis, axis), st.sampled_from(list(RATES_TYPE)), axes)
shares = st.floats(-1.5, 1.5)


def of(kind, rc_rate, rate, expo):
    axis = AxisRates(rc_rate, rate, expo)
    return RateCurves(kind, axis, axis, axis)


DEFINED = [  # deg/s by hand from the definitions, at a deflection
    ("betaflight", 55, 75, 0, 1.0, 440.0),  # 200 0.55 / 0.25: the aircraft's full stick
    ("betaflight", 57, 70, 0, 1.0, 380.0),
    ("betaflight", 100, 70, 0, 0.5, 100 / 0.65),
    ("betaflight", 100, 0, 50, 0.5, 200 * (0.5 * 0.0625 + 0.5 * 0.5)),
    ("betaflight", 210, 0, 0, 0.5, 100 * (2.1 + 1.454)),  # above 2 rc_rate counts 14.54 times more
    ("actual", 7, 67, 0, 0.5, 35 + 600 * 0.25),
    ("actual", 7, 67, 54, 0.5, 35 + 600 * 0.5 * (0.54 * 0.03125 + 0.46 * 0.5)),
    ("actual", 20, 10, 0, 0.5, 100.0),  # a rate below the centre's is not negative
    ("quick", 50, 40, 0, 1.0, 400.0),
    ("quick", 50, 40, 0, 0.5, 50 / (1 - 0.5 * 0.75)),
    ("quick", 50, 40, 100, 0.5, 50 / (1 - 0.125 * 0.75)),
]


@pytest.mark.parametrize("kind, rc_rate, rate, expo, x, degrees", DEFINED)
def test_a_curve_is_what_betaflight_defines(kind, rc_rate, rate, expo, x, degrees):
    for axis in range(3):
        assert math.degrees(of(kind, rc_rate, rate, expo).rate(axis, x)) == pytest.approx(degrees)


@given(curves, shares, st.integers(0, 2))
@FEW
def test_the_inverse_of_a_curve_is_exact_over_the_whole_range(curve, share, axis):
    wanted = share * curve.rate(axis, 1.0)
    reached = max(-curve.rate(axis, 1.0), min(curve.rate(axis, 1.0), wanted))
    x = curve.deflection(axis, wanted)
    assert -1 <= x <= 1
    assert curve.rate(axis, x) == pytest.approx(reached, rel=1e-9, abs=1e-12)


@given(st.integers(1, 99), st.integers(0, 99), st.floats(0, 1))
@FEW
def test_the_throttle_curve_has_an_exact_inverse(mid, expo, throttle):
    stick = ThrottleStick(1050, mid, expo)
    assert stick.throttle(stick.us(throttle)) == pytest.approx(throttle, abs=1e-9)
    assert stick.throttle(900) == 0 and stick.throttle(2100) == 1


rates = st.tuples(st.floats(-7, 7), st.floats(-7, 7), st.floats(-6, 6))


@given(rates, st.floats(0, 1))
@FEW
def test_sticks_ask_for_the_rates_that_were_wanted_to_a_microsecond(omega, throttle):
    us = BF.sticks_by_rates(omega, throttle)
    asked = BF.asked_rates(us)
    for axis, wanted in enumerate(omega):
        x = BF.rates.deflection(axis, wanted)
        step = BF.rates.rate(axis, abs(x) + 1 / 500) - BF.rates.rate(axis, abs(x) - 1 / 500 if abs(x) > 1 / 500 else 0)
        assert abs(asked[axis] - wanted) <= step
    assert BF.asked_throttle(us) == pytest.approx(throttle, abs=1 / 950)


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-6, 6), st.floats(0, 1))
@FEW
def test_sticks_ask_for_angles_within_the_limit(roll, pitch, yaw_rate, throttle):
    asked = BF.asked_angles(BF.sticks_by_angles(roll, pitch, yaw_rate, throttle))
    limit = math.radians(BF.angle_limit_deg)
    for got, wanted in zip(asked, (roll, pitch), strict=True):
        assert got == pytest.approx(max(-limit, min(limit, wanted)), abs=limit / 500)


SIGNS = {  # stick positions as they were measured on the aircraft: roll, pitch, throttle, yaw
    "nose down is high": ((0.0, -9.9, 0.0), 0.0, (1500, 2000, 1000, 1500)),
    "nose up is low": ((0.0, 9.9, 0.0), 0.0, (1500, 1000, 1000, 1500)),
    "right and turning right are high": ((9.9, 0.0, 9.9), 1.0, (2000, 1500, 2000, 2000)),
}


@pytest.mark.parametrize("omega, throttle, us", SIGNS.values(), ids=SIGNS)
def test_sticks_have_the_signs_of_the_aircraft(omega, throttle, us):
    assert BF.sticks_by_rates(omega, throttle) == us


def test_another_map_moves_the_sticks_and_messages_have_the_signs_of_the_aircraft():
    taer = replace(BF, channel_map="TAER")
    assert taer.sticks_by_rates((0.0, -9.9, 0.0), 1.0) == (2000, 1500, 2000, 1500)
    assert taer.asked_throttle((2000, 1500, 2000, 1500)) == 1.0
    down = BF.attitude(RawAttitude(0, 300, 90), 0.0)
    assert to_euler(down.q_wb) == pytest.approx((0, -math.radians(30), math.radians(90)), abs=1e-6)
    turning = BF.imu(RawImu((0, 0, 512), (0, 164, -164)), 1.5)
    assert turning.t == 1.5 and turning.accel == pytest.approx((0, 0, -9.80665))
    assert turning.gyro == pytest.approx((0, -math.radians(10.01), math.radians(10.01)), abs=1e-4)


vectors = st.tuples(*[st.floats(-30, 30)] * 3)


@given(vectors, vectors)
@FEW
def test_a_sample_survives_the_wire_to_a_count(accel, gyro):
    received, turned = BF.imu(BF.raw_imu(accel, gyro), 2.0), pytest.approx(gyro, abs=0.6 * math.radians(1 / 16.384))
    assert received == Imu(2.0, pytest.approx(accel, abs=9.81 / 512), turned)
    clipped = BF.raw_imu((0.0, 0.0, 1e6), (1e3, 0.0, 0.0))
    assert clipped.accel[2] == -32768 and clipped.gyro[0] == 32767


@given(st.floats(-3.1, 3.1), st.floats(-1.5, 1.5), st.floats(-3.1, 3.1))
@FEW
def test_an_attitude_survives_the_wire_to_its_resolution(roll, pitch, yaw):
    received = BF.attitude(BF.raw_attitude(from_euler(roll, pitch, yaw)), 0.0)
    pairs = zip(to_euler(received.q_wb), (roll, pitch, yaw), strict=True)
    off = [abs(math.remainder(a - b, 2 * math.pi)) for a, b in pairs]
    assert max(off[:2]) < math.radians(0.06) and off[2] < math.radians(0.51)


WRONG = [
    ("rc_rate: 55", "rc_rate: 0", "rc_rate: 0 must lie between 1 and 255"),
    ("kind: betaflight", "kind: raceflight", "rates.kind"),
    ("protocol: msp", "protocol: msp2", "protocol"),
    ("channel_map: AETR", "channel_map: AETT", "channel_map"),
    ("stick_hz: 40.0", "stick_hz: 100.0", "must be below"),
    ("raw_imu, ", "raw_imo, ", "poll must be a list of"),
    ("expo: 0, limit", "expoo: 0, limit", "unknown field 'expoo'"),
    ("gyro: [1, -1, -1]", "gyro: [1, -1, 0.5]", "gyro: 0.5 must be one of 1, -1"),
]


@pytest.mark.parametrize("old, new, message", WRONG)
def test_a_wrong_profile_is_named_with_the_fault(tmp_path, old, new, message):
    text = (FOLDER / "betaflight.yaml").read_text()
    assert old in text
    file = tmp_path / "own.yaml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        load_betaflight(str(file))


def test_profiles_of_both_kinds_are_told_apart(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text((FOLDER / "betaflight.yaml").read_text())
    assert speaks_msp("betaflight") and speaks_msp(str(own)) and not speaks_msp("spec")
    assert load_wire(str(own)) == BF and load_wire("dcl") == load_profile("dcl")
    with pytest.raises(UserError, match="no wire profile 'betafly'; did you mean betaflight"):
        load_wire("betafly")
    with pytest.raises(UserError, match=r"gone\.yaml"):
        load_wire(str(tmp_path / "gone.yaml"))
