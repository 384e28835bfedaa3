"""A log of a flight that moves everything, as `race-sim --record` writes it, and logs of flights as `run-mpc` does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gate_racer.link.messages import Arm, AttitudeTarget
from gate_racer.link.profile import load_profile
from gate_racer.sim.report import SimulatorRecord
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.rotation import conjugate, from_euler, log, product
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle
from tests.field.flown import SLOW_LEG, SLOW_PACE, write_log
from tests.flights import deviating

FAR = 4000.0
WITHIN_LIMITS = np.array([6.0, 6.0, 3.0])  # rad/s
OPEN_SKY = Track(
    "open_sky",
    Start((0.0, 0.0, -2000.0), 0.0),
    Bounds((-FAR, -FAR, -FAR), (FAR, FAR, 0.0)),
    (Gate((3000.0, 0.0, -2000.0), 0.0, 0.0, 1.5, 2.7, 0.26),),
    False,
    None,
)


def excited(path: Path, vehicle: Vehicle, seed: int, seconds: float = 30.0) -> Path:
    """Random throttle and tilt, changed every half second; up when it sinks and down when it climbs."""
    rng = np.random.default_rng(seed)
    simulator = Simulator(as_believed(OPEN_SKY, vehicle), load_profile("spec"), seed)
    record = SimulatorRecord(path)
    simulator.command(Arm(True))
    target, throttle, pulse = from_euler(0.0, 0.0, 0.0), 0.6, np.zeros(3)
    for k in range(int(seconds * 120)):
        if k % 60 == 0:
            sinking = simulator.truth.x[9] > 0
            throttle = float(rng.uniform(0.35, 1.0) if sinking else rng.uniform(0.0, 0.4))
            target = from_euler(*rng.uniform(-0.9, 0.9, 2), rng.uniform(-3, 3))
            pulse = rng.uniform(-3, 3, 3)
        if k % 2 == 0:
            error = log(product(conjugate(simulator.truth.q_wb), target))
            omega = np.clip(4.0 * error + (pulse if k % 60 < 12 else 0.0), -WITHIN_LIMITS, WITHIN_LIMITS)
            command = AttitudeTarget((1.0, 0.0, 0.0, 0.0), tuple(omega.tolist()), throttle, by_rates=True)
            simulator.command(command)
            record.commanded(simulator.t, command)
        record.ticked(simulator, simulator.tick())
    record.close()
    return path


@pytest.fixture(scope="session")
def unknown() -> Vehicle:
    """A vehicle that the tools are not told of, whose rates do not depend on its thrust: so they take it to be."""
    weak = deviating(load_vehicle("dcl"), 0.87)
    lags = {"thrust_lag_s": 0.045, "command_delay_s": 0.055}
    return replace(weak, name="unknown", drag_quadratic_1_m=0.062, mixer=None, **lags)


@pytest.fixture(scope="session")
def log_of_unknown(tmp_path_factory, unknown) -> Path:
    return excited(tmp_path_factory.mktemp("logs") / "excited.mcap", unknown, 3)


@pytest.fixture(scope="module")
def late_flight(tmp_path_factory, plan):
    """A flight exactly along the plan, a tenth of a second late at every gate."""
    return write_log(tmp_path_factory.mktemp("logs") / "flight.mcap", plan, late_s=0.1)


@pytest.fixture(scope="module")
def slow_flight(tmp_path_factory, plan):
    """A flight with one slow leg, at full throttle, by a vehicle with too little thrust."""
    path = tmp_path_factory.mktemp("logs") / "slow.mcap"
    learned = {"thrust_scale": 0.92, "drag_scale": 1.0, "rate_lag_scale": 1.0, "delay_s": 0.04}
    return write_log(path, plan, slow=(SLOW_LEG, SLOW_PACE), learned=learned)
