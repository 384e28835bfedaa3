"""The simulated flight controller does what was measured on the aircraft's, traps included."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.link.msp.client import PollScheduler
from gate_racer.link.msp.messages import (
    Altitude,
    Code,
    DisableFlag,
    MspCodec,
    RawAttitude,
    RawImu,
    Version,
)
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.sim.betaflight.flight_controller import FlightController
from gate_racer.sim.betaflight.station import switched
from gate_racer.sim.physics.plant import Truth
from gate_racer.sim.simulator import LowPass, Sensors
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import load_vehicle

BF = replace(load_betaflight("betaflight"), boot_s=2.0)
AUX = BF.aux
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])
STEP_S = 0.0025
MIDDLE = (1500, 1500, 1000, 1500)  # the throttle is the third


STILL = SimpleNamespace(
    advance=lambda: None,
    imu=lambda: RawImu((0, 0, 512), (0, 0, 0)),
    attitude=RawAttitude(0, 0, 90),
    altitude=lambda: Altitude(0, 0),
)


class Bench:
    """A flight controller on the table, with a pilot's transmitter and a companion computer on its line."""

    def __init__(self, profile=BF):
        self.fc, self.codec, self.t, self.said = FlightController(profile, STILL), MspCodec(), 0.0, b""
        self.modes = ()

    def run(self, seconds, *modes, us=None, hz=40.0):
        """Run for `seconds` with the pilot's switches and, if given, sticks; return the answers."""
        self.modes = modes
        self.fc.receiver.pilot = switched(BF, *modes)
        answers, end, due = [], self.t + seconds, self.t
        while self.t < end - 1e-9:
            if us is not None and self.t >= due - 1e-9:
                self.fc.receive(self.codec.sticks(us), self.t)
                due += 1 / hz
            self.t += STEP_S
            self.fc.serve(self.t)
            self.target = self.fc.fly(LEVEL, self.t)
            received = self.fc.transmitted(self.t)
            self.said += received
            answers += self.codec.feed(received)
        return answers

    def ask(self, code):
        self.fc.receive(self.codec.request(code), self.t)
        (answer,) = [answer for answer in self.run(0.05, *self.modes) if answer.command == code]
        return answer.messages[0] if answer.messages else None

    def arm(self, *modes, us=MIDDLE):
        self.run(2.5, us=us)
        self.run(0.2, AUX.arm, us=us)
        self.run(0.2, AUX.arm, *modes, us=us)
        assert self.fc.armed


def paced(stick_hz, requests, seconds=4.0, step_s=0.00025):
    """Intervals between complete sets of answers, s: requests one after the other, sticks beside them."""
    fc, codec, scheduler = FlightController(BF, STILL), MspCodec(), PollScheduler(stick_hz, 1.0)
    times, turn = [], 0
    for k in range(round(seconds / step_s)):
        t = k * step_s
        if scheduler.sticks_due(t):
            fc.receive(codec.sticks(MIDDLE), t)
        if scheduler.poll_due(t):
            fc.receive(codec.poll(requests[turn % len(requests)]), t)
        fc.serve(t)
        for answer in codec.feed(fc.transmitted(t)):
            if answer.command != Code.SET_RAW_RC:
                scheduler.answer(t)
                turn += 1
                if turn % len(requests) == 0:
                    times.append(t)
    assert scheduler.timeouts == 0 and codec.counters.damaged == 0
    return np.diff(times)


ONE = [BF.polled]
FOUR = [[code] for code in BF.polled]
MEASURED = {  # on the aircraft, ms
    "one request alone": (0, ONE, 50, 10.0),
    "one request beside 40 Hz of sticks": (40, ONE, 95, 20.3),
    "one request beside 60 Hz of sticks": (60, ONE, 95, 30.3),
    "four requests beside 40 Hz of sticks": (40, FOUR, 50, 66.9),
}


@pytest.mark.parametrize("stick_hz, requests, percentile, ms", MEASURED.values(), ids=MEASURED)
def test_the_line_sustains_what_was_measured(stick_hz, requests, percentile, ms):
    intervals = paced(stick_hz, requests)
    assert 1e3 * np.percentile(intervals, percentile) == pytest.approx(ms, rel=0.06)


def disabled(bench):
    return bench.ask(Code.STATUS_EX).disabled


UP, EVERYTHING = (1500, 1500, 1300, 1500), (1500, 1500, 1000, 1500, *[2000] * 12)
ARMING = {  # steps: seconds, the pilot's switches, the companion's sticks, and what then forbids arming; None: it is armed
    "by the pilot alone, not by the companion's channels": [
        (2.5, [], EVERYTHING, DisableFlag(0)),
        (0.1, [AUX.override], EVERYTHING, DisableFlag(0)),
        (0.1, [AUX.arm], EVERYTHING, None),
        (0.1, [], EVERYTHING, DisableFlag(0)),
    ],
    "after boot by a switch that is moved again, with the throttle down": [
        (3.0, [AUX.arm], None, DisableFlag.ARM_SWITCH),
        (0.5, [AUX.override], UP, DisableFlag.THROTTLE),
        (0.1, [AUX.arm, AUX.override], UP, DisableFlag.THROTTLE | DisableFlag.ARM_SWITCH),
        (0.5, [AUX.override], MIDDLE, DisableFlag(0)),
        (0.1, [AUX.arm, AUX.override], MIDDLE, None),
    ],
}


@pytest.mark.parametrize("steps", ARMING.values(), ids=ARMING)
def test_it_is_armed(steps):
    bench = Bench()
    for seconds, switches, us, forbids in steps:
        bench.run(seconds, *switches, us=us)
        assert bench.fc.armed == bench.ask(Code.STATUS_EX).armed == (forbids is None)
        assert forbids is None or disabled(bench) == forbids


def test_a_stream_that_stops_leaves_the_last_sticks_acting():
    bench = Bench()
    bench.arm(AUX.override)
    bench.run(0.3, AUX.arm, AUX.override, us=(1600, 1500, 1400, 1500))
    before = bench.target
    bench.run(8.0, AUX.arm, AUX.override)
    assert bench.fc.armed and bench.target.omega == pytest.approx(before.omega, rel=1e-3) and before.omega[0] > 0.3
    bench.run(0.3, AUX.arm)
    assert bench.target.omega == pytest.approx((0, 0, 0), abs=0.01), "the pilot takes back at any time"


def test_override_without_sticks_freezes_the_switches():
    bench = Bench()
    bench.run(2.5)
    bench.run(0.5, AUX.arm)
    bench.run(0.25, AUX.arm, AUX.override)
    assert bench.fc.armed and not bench.fc.receiver.lost
    bench.run(0.2, AUX.arm, AUX.override)
    assert bench.fc.receiver.lost
    bench.run(4.0)
    assert bench.fc.armed, "neither ARM nor the override answers"
    assert bench.fc.receiver.overridden
    bench.run(1.0)
    assert not bench.fc.armed and disabled(bench) & DisableFlag.RX_FAILSAFE
    bench.run(0.3, us=MIDDLE)
    assert not bench.fc.receiver.lost and not bench.fc.receiver.overridden, "valid sticks bring it back"


def test_garbage_is_survived_and_a_flood_is_bounded():
    bench = Bench()
    noise = np.random.default_rng(3).integers(0, 256, 4000, dtype=np.uint8).tobytes()
    bench.fc.receive(noise, 0.0)
    bench.run(2.0)
    bench.fc.receive(b"\0" * 1100, bench.t)  # what the noise has begun is over
    bench.run(0.5)
    assert bench.ask(Code.API_VERSION) == Version((0, 1, 45))


def test_set_points_are_smoothed_as_a_filter_of_15_hz():
    """A sine at the cut-off frequency is attenuated by 3 dB."""
    bench, step_s, wave = Bench(), 0.0005, []
    bench.arm(AUX.override)
    for k in range(2000):
        t = bench.t + k * step_s
        bench.fc.receiver.channels[BF.channel("T")] = 1500 + 100 * math.sin(2 * math.pi * BF.smoothing_hz * t)
        wave.append(BF.throttle.us(bench.fc.fly(LEVEL, t).throttle))
    assert np.ptp(wave[1000:]) / 200 == pytest.approx(math.sqrt(0.5), rel=0.02)


def test_another_mask_hands_over_other_channels():
    bench = Bench(replace(BF, override_mask=0b0111))
    bench.run(0.3, AUX.override, us=(1600, 1600, 1600, 1600))
    assert bench.ask(Code.RC).us[:4] == (1600, 1600, 1500, 1600), "yaw stays the pilot's; it stands third in RC"


def filtered(times, force):
    low_pass = LowPass(BF.accel_lpf_hz)
    return np.array([float(low_pass.at(t, np.array([f]))[0]) for t, f in zip(times, force, strict=True)])


def test_a_force_is_read_late_by_the_filter_s_delay_which_the_vehicle_file_states_and_a_vibration_hardly():
    times = np.arange(4000) / 4000
    late_s = times[-1] - np.interp(filtered(times, 20.0 * times)[-1], 20.0 * times, times)
    assert late_s == pytest.approx(BF.accel_delay_s, abs=5e-4)
    assert load_vehicle("archer").imu.accel_delay_s == pytest.approx(BF.accel_delay_s, abs=1e-3)
    times = np.arange(480) / 480
    assert np.abs(filtered(times, np.sin(2 * np.pi * 60.0 * times))[240:]).max() < 0.05


def test_the_loss_by_vibration_is_filtered_as_the_force_is():
    """What vibration takes from a reading, it takes within the sensor, before its filter."""
    archer = load_vehicle("archer")
    quiet = replace(archer, imu=replace(archer.imu, accel_noise_m_s2=0.0, accel_bias_m_s2=0.0, accel_delay_s=0.0))
    sensors = Sensors(quiet, np.random.default_rng(0), lpf_hz=BF.accel_lpf_hz)

    def read(t: float, thrust: float) -> float:
        x = np.zeros(14)
        x[3], x[-1] = 1.0, thrust
        truth = Truth(t, x, np.array([0.0, 0.0, -thrust]))
        sensors.follow(truth)
        return sensors.imu(truth).accel[2]

    slow = [read(k / 480, GRAVITY) for k in range(240)][-1]
    fast = [read(0.5 + k / 480, archer.thrust_max) for k in range(240)]
    assert abs(fast[0] - slow) < 0.02 * abs(fast[-1] - slow), "the throttle is thrown up, the reading follows"
    assert fast[-1] == pytest.approx(archer.accel_loss(archer.thrust_max) - archer.thrust_max, rel=1e-3)
