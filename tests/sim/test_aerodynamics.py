"""Every summand of the grey-box polynomial and of the motors' map (Swift, eq. 6) does what its name in a vehicle file says."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics import swift
from gate_racer.sim.physics.jit import record
from gate_racer.sim.physics.plants import SwiftPlant
from gate_racer.tracks.track import Start
from gate_racer.vehicle.vehicle import Aero, Lift, SideForce, SideTorque, YawTorque, load_vehicle

LEVEL = (1.0, 0.0, 0.0, 0.0)
# Each summand of Swift's polynomial and of Kolibri's, by its name in a vehicle file, in body FLU: v the speed along its axis.
SUMMANDS = {
    "side": {
        "offset": lambda v, W: 1.0, "v": lambda v, W: v, "v_sqr": lambda v, W: v**2, "v_abs": lambda v, W: v * abs(v),
        "w": lambda v, W: W, "v_w": lambda v, W: v * W,
        "v_sqr_w": lambda v, W: v**2 * W, "v_abs_w": lambda v, W: v * abs(v) * W,
    },
    "fz": {
        "vz": lambda h, z, W: z, "vz_sqr": lambda h, z, W: z**2, "vz_abs": lambda h, z, W: z * abs(z),
        "vz_cub": lambda h, z, W: z**3, "vxy": lambda h, z, W: h, "vxy_sqr": lambda h, z, W: h**2,
        "w": lambda h, z, W: W, "vxy_w": lambda h, z, W: h * W, "vz_w": lambda h, z, W: z * W,
        "vxy_vz_w": lambda h, z, W: h * z * W,
    },
    "tz": {"offset": lambda x, y: 1.0, "vx": lambda x, y: x, "vy": lambda x, y: y},
}  # fmt: skip
FLU = [(3.0, 4.0, 2.0), (-3.0, 4.0, -2.0), (3.0, -4.0, -2.0), (-3.0, -4.0, 2.0)]


def felt(part, summand, v, W):
    """Return one entry of (f_x, f_y, f_z, tau_x, tau_y, tau_z), FLU, due to one summand with coefficient 1."""
    vehicle = load_vehicle("swift")
    kinds = {"f": SideForce, "t": SideTorque}
    parts = {p: kinds[p[0]]() for p in ("fx", "fy", "tx", "ty")} | {"fz": Lift(), "tz": YawTorque()}
    parts[part] = replace(parts[part], **{summand: 1.0})
    par = record(swift.parameters(replace(vehicle, aero=Aero(**parts))))
    force, torque = swift.aero((v[0], -v[1], -v[2]), W, par)
    x, y, z, a, b, c = (*force, *torque)
    found = {"fx": x, "fy": -y, "fz": -z, "tx": a, "ty": -b, "tz": -c}
    assert not any(value for name, value in found.items() if name != part), "nothing else"
    return found[part]


@pytest.mark.parametrize("part", ["fx", "fy", "fz", "tx", "ty", "tz"])
def test_every_summand_of_the_polynomial_is_what_its_name_says(part):
    W = 2.0e6  # more than in hover, so that offsets count in full
    for field in fields(type(getattr(load_vehicle("swift").aero, part))):
        for v in FLU:
            along = {"fx": v[0], "fy": v[1], "tx": v[1], "ty": v[0]}.get(part)
            if part == "fz":
                expected = SUMMANDS["fz"][field.name](math.hypot(v[0], v[1]), v[2], W)
            elif part == "tz":
                expected = SUMMANDS["tz"][field.name](v[0], v[1])
            else:
                expected = SUMMANDS["side"][field.name](along, W)
            assert felt(part, field.name, v, W) == pytest.approx(expected), field.name


def test_swift_s_square_brakes_both_ways_the_other_one_way():
    for part, axis in (("fx", 0), ("fy", 1)):
        for summand, odd in (("v_abs", True), ("v_sqr", False)):
            to, fro = (felt(part, summand, np.eye(3)[axis] * sign * 5.0, 1e6) for sign in (1, -1))
            assert to == pytest.approx(25.0) and fro == pytest.approx(-25.0 if odd else 25.0)


def test_voltage_counts_the_more_the_higher_the_command():
    """Eq. (6): d Omega / d U = volt + volt_sqrt sqrt(u)."""
    vehicle = load_vehicle("swift")
    loop, motors = swift.parameters(vehicle).loop, vehicle.motors
    with_it = replace(motors, speed=replace(motors.speed, volt_sqrt=2.0, sqrt=motors.speed.sqrt - 2.0 * 15.6))
    for output in (0.2, 0.6, 0.9):
        root = math.sqrt(loop.low + output * (loop.high - loop.low))
        speeds = [swift.steady_speed(output, volt, loop, with_it) for volt in (15.5, 15.7)]
        assert (speeds[1] - speeds[0]) / 0.2 == pytest.approx(motors.speed.volt + 2.0 * root)
        same = [swift.steady_speed(output, 15.6, loop, one) for one in (motors, with_it)]
        assert same[0] == pytest.approx(same[1])


def test_a_sagging_battery_takes_more_thrust_with_that_summand():
    vehicle = load_vehicle("swift")
    speed = vehicle.motors.speed
    odd = replace(speed, volt_sqrt=2.0, sqrt=speed.sqrt - 2.0 * vehicle.battery.nominal_v)
    lost = []
    for one in (speed, odd):
        plant = SwiftPlant(replace(vehicle, motors=replace(vehicle.motors, speed=one)), Start((0.0, 0.0, 0.0), 0.0))
        plant.place(np.zeros(3), np.array(LEVEL), np.zeros(3))
        plant.command(0.0, AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.9, True))
        plant.advance(0.5)
        early = plant.thrust
        plant.advance(6.0)
        lost.append(early - plant.thrust)
    assert lost[1] > 1.3 * lost[0] > 0
