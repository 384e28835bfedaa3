"""The grey-box quadrotor obeys the laws it is made of; with every term off it is the planner's model."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics import battery, swift, swift_plant
from gate_racer.sim.physics.contact import NOTHING, body_of
from gate_racer.sim.physics.jit import boxed, record
from gate_racer.sim.physics.swift import ALL, BATTERY, LOOP, OMEGA, Terms
from gate_racer.sim.physics.swift_plant import SwiftPlant, static_curve
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import GRAVITY, rk4, rotors
from gate_racer.vehicle.rotation import matrix
from gate_racer.vehicle.vehicle import load_vehicle

NAMES = ["kolibri", "swift"]
DT = 1 / 960
LEVEL = (1.0, 0.0, 0.0, 0.0)
NONE = Terms(*[False] * len(Terms._fields))
CALM = np.zeros(3)


def model(name):
    vehicle = load_vehicle(name)
    par = record(swift.parameters(vehicle))
    return vehicle, par, swift.at_rest(par)


def tumbling(x, rng):
    """A state with every part of the motion in it."""
    x[:3], x[7:10], x[10:13] = rng.normal(0, 3, 3), rng.normal(0, 8, 3), rng.normal(0, 6, 3)
    q = rng.normal(size=4)
    x[3:7] = q / np.linalg.norm(q)
    return x


def derivative(x, omega_ss, par, terms):
    return np.array(swift.derivative(x, omega_ss, CALM, par, terms))


def substep(x, u, armed, par, terms, dt):
    bodies = boxed(body_of(load_vehicle("kolibri")))  # which meets nothing
    swift_plant.fly(x, u, armed, CALM, np.array([par]), terms, 1, dt, NOTHING, 0, bodies, np.zeros(0))


@pytest.mark.parametrize("name", NAMES)
def test_with_all_terms_off_it_is_the_planner_s_rotor_model(name):
    vehicle, par, x = model(name)
    rng = np.random.default_rng(1)
    tumbling(x, rng)
    thrusts = rng.uniform(0.2, 1.0, 4) * vehicle.rotors.thrust_max_n
    y = x[:13].copy()
    for _ in range(300):
        substep(x, thrusts, True, par, NONE, DT)
        y = np.array(rk4(rotors, y, thrusts, vehicle.rotors_parameters, DT))
        y[3:7] /= np.linalg.norm(y[3:7])
    assert x[:13] == pytest.approx(y, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_gyroscopic_torque_does_no_work(name):
    _, par, x = model(name)
    tumbling(x, np.random.default_rng(2))
    torque = np.array(par.inertia) * derivative(x, np.zeros(4), par, NONE)[10:13]
    assert np.linalg.norm(torque) > 1e-4
    assert x[10:13] @ torque == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_fall_without_air_conserves_energy_and_angular_momentum(name):
    vehicle, par, x = model(name)
    par = swift.parameters(vehicle)._replace(drag_linear=(0.0, 0.0, 0.0), drag_quadratic=0.0)
    tumbling(x, np.random.default_rng(3))
    J = np.array(par.inertia)

    def invariants():
        w = x[10:13]
        energy = 0.5 * par.mass * x[7:10] @ x[7:10] - par.mass * GRAVITY * x[2] + 0.5 * w @ (J * w)
        return energy, matrix(x[3:7]) @ (J * w)

    energy, momentum = invariants()
    for _ in range(960):
        substep(x, np.zeros(4), False, record(par), ALL._replace(aero=False, motor_torque=False), DT)
    after, turned = invariants()
    assert after == pytest.approx(energy, rel=1e-6)
    assert turned == pytest.approx(momentum, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_power_into_the_body_is_the_work_of_its_forces_and_torques(name):
    _, par, x = model(name)
    tumbling(x, np.random.default_rng(4))
    x[OMEGA] = [900.0, 1100.0, 1000.0, 1300.0]
    dx = derivative(x, np.full(4, 1500.0), par, ALL)
    force_b = np.array(swift.specific_force(x, par, ALL))
    power = par.mass * x[7:10] @ dx[7:10] - par.mass * GRAVITY * x[9]
    assert power == pytest.approx(par.mass * (matrix(x[3:7]) @ force_b) @ x[7:10])


@pytest.mark.parametrize("name", NAMES)
def test_motors_of_one_sense_speeding_up_turn_the_body_the_way_their_drag_does(name):
    _, par, x = model(name)
    x[OMEGA] = 1000.0
    faster = np.where(np.array(par.torque) > 0, 1500.0, 1000.0)
    on, off = (derivative(x, faster, par, NONE._replace(motor_torque=m, motor_lag=True)) for m in (True, False))
    expected = 2 * par.rotor_inertia * 500.0 / par.time_constant / par.inertia[2]
    assert on[12] - off[12] == pytest.approx(expected)


@pytest.mark.parametrize("name", NAMES)
def test_motors_follow_with_their_time_constant(name):
    _, par, x = model(name)
    terms = NONE._replace(motor_lag=True)
    thrust = np.full(4, par.c_l * 1000.0**2)
    for _ in range(96):
        substep(x, thrust, True, par, terms, par.time_constant / 96)
    assert x[OMEGA] == pytest.approx(np.full(4, 1000.0 * (1 - math.exp(-1))), rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_still_rotors_in_still_air_feel_nothing(name):
    _, par, x = model(name)
    a, torque = swift.translation_and_torque(x, par, ALL)
    assert a == (0, 0, GRAVITY) and torque == (0, 0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_air_brakes_and_forward_flight_pitches_up(name):
    _, par, x = model(name)
    hover = math.sqrt(par.hover_sqr)
    for axis in range(3):
        for speed in (-8.0, 8.0):
            x[7:10], x[OMEGA] = 0.0, hover
            rest, still = swift.translation_and_torque(x, par, ALL)
            x[7 + axis] = speed
            force, torque = swift.translation_and_torque(x, par, ALL)
            assert (force[axis] - rest[axis]) * speed < 0
            if axis == 0:
                assert (torque[1] - still[1]) * speed > 0
            if axis == 1:  # the side it flies to rises
                assert (torque[0] - still[0]) * speed < 0


@pytest.mark.parametrize("name", NAMES)
def test_the_throttle_curve_is_the_static_thrust_at_nominal_voltage(name):
    vehicle = load_vehicle(name)
    for throttle, thrust in zip(*vars(static_curve(vehicle, 21)).values(), strict=True):
        assert vehicle.throttle.thrust(throttle) == pytest.approx(thrust, rel=0.02, abs=0.15)


@pytest.mark.parametrize("name", NAMES)
def test_it_hovers_with_its_rates_at_zero(name):
    vehicle = load_vehicle(name)
    plant = in_the_air(vehicle)
    send(plant, throttle=vehicle.throttle.throttle(GRAVITY))
    plant.advance(3.0)
    assert plant.x[10:13] == pytest.approx(np.zeros(3), abs=0.02)
    lift = -plant.truth.accel_b[2]
    assert lift == pytest.approx(GRAVITY, rel=0.1)  # a fresh battery gives a little more than the nominal one
    assert plant.thrust * vehicle.rotors.mass_kg / 4 == pytest.approx(
        vehicle.motors.thrust_n_s2 * (plant.motor_speeds**2).mean()
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("axis", "rate"), [(0, 6.0), (1, -6.0), (2, 3.0)])
def test_the_rate_loop_reaches_its_rate_and_settles(name, axis, rate):
    vehicle = load_vehicle(name)
    plant = in_the_air(vehicle)
    send(plant, throttle=0.35)
    plant.advance(0.5)
    omega = [0.0, 0.0, 0.0]
    omega[axis] = rate
    send(plant, throttle=0.35, omega=tuple(omega))
    plant.advance(0.5 + vehicle.command_delay_s + 0.15)
    settled = []
    for k in range(20):
        plant.advance(0.65 + vehicle.command_delay_s + 0.005 * k)
        settled.append(plant.x[10 + axis] / rate)
    assert np.mean(settled) == pytest.approx(1.0, abs=0.15) and np.std(settled) < 0.1


def in_the_air(vehicle, terms=ALL):
    plant = SwiftPlant(vehicle, Start((0.0, 0.0, 0.0), 0.0), terms=terms)
    plant.place(np.zeros(3), np.array(LEVEL), np.zeros(3))
    return plant


def send(plant, throttle, omega=(0.0, 0.0, 0.0)):
    plant.command(plant.t, AttitudeTarget(LEVEL, omega, throttle, True))


def test_a_sagging_battery_takes_thrust_and_more_with_that_summand():
    vehicle, lost = load_vehicle("swift"), []
    speed = vehicle.motors.speed
    odd = replace(speed, volt_sqrt=2.0, sqrt=speed.sqrt - 2.0 * vehicle.battery.nominal_v)
    for one in (speed, odd):
        plant = in_the_air(replace(vehicle, motors=replace(vehicle.motors, speed=one)))
        send(plant, 0.9)
        plant.advance(0.5)
        early = plant.thrust
        plant.advance(6.0)
        lost.append(early - plant.thrust)
    assert lost[1] > 1.3 * lost[0] > 0


def test_motor_speed_rises_with_command_and_with_voltage():
    for name in NAMES:
        _, par, _ = model(name)
        speeds = [[swift.steady_speed(u, volt, par.loop, par.speed) for u in np.linspace(0, 1, 9)] for volt in (14, 16)]
        assert (np.diff(speeds, axis=1) > 0).all()
        assert speeds[1][-1] > speeds[0][-1]


@pytest.mark.parametrize("name", NAMES)
def test_the_battery_starts_as_told_sags_under_load_recovers_and_empties(name):
    _, par, _ = model(name)
    cell = par.battery
    x, tick = battery.at_rest(cell), battery.sags(cell, DT)
    assert battery.voltage(x, cell) == pytest.approx(cell.start_v)
    heavy = 60.0 * cell.capacity_ah * cell.cells  # W
    for _ in range(960 * 5):
        x = battery.discharged(x, heavy, cell, tick, DT)
    loaded, drawn = battery.voltage(x, cell), x[battery.ENERGY]
    assert drawn == pytest.approx(battery.at_rest(cell)[0] + 60.0 * 5e-3)
    assert loaded < cell.start_v - 0.3
    for _ in range(960 * 20):
        x = battery.discharged(x, 0.0, cell, tick, DT)
    assert loaded < battery.voltage(x, cell) < cell.start_v
    for _ in range(400):
        x = battery.discharged(x, heavy, cell, battery.sags(cell, 1.0), 1.0)
    assert battery.voltage(x, cell) == pytest.approx(3.0 * cell.cells)


@pytest.mark.parametrize("name", NAMES)
def test_electric_power_exceeds_the_mechanical(name):
    _, par, _ = model(name)
    for omega in (500.0, 1500.0, 2500.0):
        mechanical = 4 * abs(par.torque[0]) * par.c_l * omega**3  # c_d Omega^3 of eq. (5)
        assert swift.motor_power(np.full(4, omega), par) >= mechanical * 0.999


def test_a_term_off_is_a_term_without_effect():
    vehicle = load_vehicle("kolibri")
    fresh = in_the_air(vehicle, ALL._replace(battery=False))
    send(fresh, throttle=0.6)
    fresh.advance(1.0)
    assert fresh.x[BATTERY] == pytest.approx(swift.at_rest(swift.parameters(vehicle))[BATTERY])
    quick = in_the_air(vehicle, ALL._replace(motor_lag=False))
    send(quick, throttle=0.6)
    quick.advance(vehicle.command_delay_s + 0.002)
    assert quick.motor_speeds.min() > 1500


def test_disarmed_motors_run_down_and_forget():
    vehicle = load_vehicle("kolibri")
    plant = in_the_air(vehicle)
    send(plant, 0.6, (3.0, 0.0, 0.0))
    plant.advance(0.3)
    plant.disarm()
    plant.advance(0.3 + 5 * vehicle.motors.time_constant_s)
    assert plant.motor_speeds.max() < 0.01 * 3000 and not plant.x[LOOP].any()
