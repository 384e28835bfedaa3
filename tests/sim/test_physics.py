"""The grey-box quadrotor and both mixers obey the laws they are made of; without air the former is the planner's model."""

import math
import re
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.link.messages import AttitudeTarget
from gate_racer.sim.physics import swift
from gate_racer.sim.physics.contact import NOTHING, body_of
from gate_racer.sim.physics.jit import boxed, record
from gate_racer.sim.physics.plant import MixedRates, SwiftPlant, fly_swift, mixed, rates_stepped
from gate_racer.sim.physics.swift import LOOP, OMEGA
from gate_racer.tracks.track import Start
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X, rotors
from gate_racer.vehicle.rotation import matrix
from gate_racer.vehicle.vehicle import Aero, Lift, Mixer, SideForce, SideTorque, YawTorque, load_vehicle

DT = 1 / 960
LEVEL = (1.0, 0.0, 0.0, 0.0)
CALM = np.zeros(3)
NO_AIR = Aero(SideForce(), SideForce(), Lift(), SideTorque(), SideTorque(), YawTorque())
both = pytest.mark.parametrize("name", ["kolibri", "swift"])


def model(name):
    vehicle = load_vehicle(name)
    par = record(swift.parameters(vehicle))
    return vehicle, par, swift.at_rest(swift.parameters(vehicle))


def tumbling(x, seed):
    rng = np.random.default_rng(seed)
    x[:3], x[7:10], x[10:13] = rng.normal(0, 3, 3), rng.normal(0, 8, 3), rng.normal(0, 6, 3)
    q = rng.normal(size=4)
    x[3:7] = q / np.linalg.norm(q)
    return x


@both
def test_without_air_it_is_the_planner_s_rotor_model(name):
    vehicle, _, x = model(name)
    tumbling(x, 1)
    x[OMEGA] = [900.0, 1100.0, 1000.0, 1300.0]
    par = swift.parameters(replace(vehicle, aero=NO_AIR))
    planners = vehicle.rotors_parameters._replace(drag_linear=(0.0, 0.0, 0.0), drag_quadratic=0.0, lift=0.0)
    thrusts = vehicle.motors.thrust_n_s2 * x[OMEGA] ** 2
    assert swift.derivative(x, x[OMEGA], CALM, par)[:13] == pytest.approx(rotors(x, thrusts, planners), abs=1e-9)


@both
def test_a_fall_without_air_keeps_energy_and_angular_momentum(name):
    vehicle, par, x = model(name)
    tumbling(x, 3)
    mass, J = par.rotors.mass, np.array(par.rotors.inertia)
    pars, bodies = boxed(swift.parameters(replace(vehicle, aero=NO_AIR))), boxed(body_of(vehicle))

    def invariants():
        w = x[10:13]
        energy = 0.5 * mass * x[7:10] @ x[7:10] - mass * GRAVITY * x[2] + 0.5 * w @ (J * w)
        return energy, matrix(x[3:7]) @ (J * w)

    energy, momentum = invariants()
    fly_swift(x, np.zeros(4), False, CALM, pars, 960, DT, NOTHING, 0, bodies, np.zeros(0))
    after, turned = invariants()
    assert after == pytest.approx(energy, rel=1e-6)
    assert turned == pytest.approx(momentum, rel=1e-4, abs=1e-8)


@both
def test_power_into_the_body_is_the_work_of_its_forces(name):
    _, par, x = model(name)
    tumbling(x, 4)
    x[OMEGA] = [900.0, 1100.0, 1000.0, 1300.0]
    dx = np.array(swift.derivative(x, np.full(4, 1500.0), CALM, par))
    force_b, mass = np.array(swift.specific_force(x, par)), par.rotors.mass
    power = mass * x[7:10] @ dx[7:10] - mass * GRAVITY * x[9]
    assert power == pytest.approx(mass * (matrix(x[3:7]) @ force_b) @ x[7:10])


@both
def test_motors_speeding_up_turn_the_body_as_their_drag_does(name):
    _, par, x = model(name)
    x[OMEGA] = 1000.0
    faster = np.where(np.array(par.rotors.torque) > 0, 1500.0, 1000.0)  # those of one sense
    yaw = [swift.derivative(x, speeds, CALM, par)[12] for speeds in (faster, x[OMEGA])]
    expected = 2 * par.motors.inertia_kg_m2 * 500.0 / par.motors.time_constant_s / par.rotors.inertia[2]
    assert yaw[0] - yaw[1] == pytest.approx(expected)


@both
def test_the_air_brakes_and_forward_flight_pitches_up(name):
    _, par, x = model(name)
    assert swift.translation_and_torque(x, par) == ((0, 0, GRAVITY), (0, 0, 0)), "still rotors feel nothing"
    for axis in range(3):
        for speed in (-8.0, 8.0):
            x[7:10], x[OMEGA] = 0.0, math.sqrt(par.hover_sqr)
            rest, still = swift.translation_and_torque(x, par)
            x[7 + axis] = speed
            force, torque = swift.translation_and_torque(x, par)
            assert (force[axis] - rest[axis]) * speed < 0
            if axis == 0:
                assert (torque[1] - still[1]) * speed > 0
            if axis == 1:  # the side it flies to rises
                assert (torque[0] - still[0]) * speed < 0


@both
def test_the_throttle_curve_is_the_static_thrust(name):
    """In still air, at nominal voltage."""
    vehicle, par, x = model(name)
    for throttle in np.linspace(0.0, 1.0, 21):
        x[OMEGA] = swift.steady_speed(throttle, par.battery.nominal_v, par.loop, par.motors)
        thrust = -swift.specific_force(x, par)[2]
        assert vehicle.throttle.thrust(throttle) == pytest.approx(thrust, rel=0.02, abs=0.15)


@both
def test_it_hovers_with_its_rates_at_zero(name):
    vehicle = load_vehicle(name)
    plant = in_the_air(vehicle)
    send(plant, throttle=vehicle.throttle.throttle(GRAVITY))
    plant.advance(3.0)
    assert plant.x[10:13] == pytest.approx(np.zeros(3), abs=0.02)
    lift = -plant.truth.accel_b[2]
    assert lift == pytest.approx(GRAVITY, rel=0.1)  # a fresh battery gives a little more than the nominal one
    thrust_n = vehicle.motors.thrust_n_s2 * (plant.x[OMEGA] ** 2).sum()
    assert plant.thrust * vehicle.rotors.mass_kg == pytest.approx(thrust_n)


@both
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


def in_the_air(vehicle):
    plant = SwiftPlant(vehicle, Start((0.0, 0.0, 0.0), 0.0))
    plant.place(np.zeros(3), np.array(LEVEL), np.zeros(3))
    return plant


def send(plant, throttle, omega=(0.0, 0.0, 0.0)):
    plant.command(plant.t, AttitudeTarget(LEVEL, omega, throttle, True))


@both
def test_the_battery_sags_under_load_recovers_and_empties(name):
    _, par, _ = model(name)
    cell = par.battery
    x, tick = swift.battery_at_rest(cell), swift.sags(cell, DT)
    assert swift.voltage(x, cell) == pytest.approx(cell.start_v)
    heavy = 60.0 * cell.capacity_ah * cell.cells  # W
    for _ in range(960 * 5):
        x = swift.discharged(x, heavy, cell, tick, DT)
    loaded, drawn = swift.voltage(x, cell), x[swift.ENERGY]
    assert drawn == pytest.approx(swift.battery_at_rest(cell)[0] + 60.0 * 5e-3)
    assert loaded < cell.start_v - 0.3
    for _ in range(960 * 5):
        x = swift.discharged(x, 0.0, cell, tick, DT)
    assert loaded < swift.voltage(x, cell) < cell.start_v
    for _ in range(400):
        x = swift.discharged(x, heavy, cell, swift.sags(cell, 1.0), 1.0)
    assert swift.voltage(x, cell) == pytest.approx(3.0 * cell.cells)


@both
def test_disarmed_motors_run_down_and_forget(name):
    vehicle = load_vehicle(name)
    plant = in_the_air(vehicle)
    send(plant, 0.6, (3.0, 0.0, 0.0))
    plant.advance(0.3)
    plant.disarm()
    before = plant.x[OMEGA].copy()
    plant.advance(0.3 + vehicle.motors.time_constant_s)
    assert plant.x[OMEGA] == pytest.approx(before * math.exp(-1), rel=1e-6) and not plant.x[LOOP].any()


POWERS = {"": lambda x: x, "sqr": lambda x: x**2, "abs": lambda x: x * abs(x), "cub": lambda x: x**3}


def named(summand, speeds, W):
    """Return the product that a summand's name means, such as `v_sqr_w`; `speeds` by v, vx, vy, vz and vxy, body FLU."""
    factors = [POWERS[power](speeds[v]) for v, power in re.findall(r"(v[xyz]*)_?(sqr|abs|cub)?", summand)]
    return math.prod(factors) * (W if summand.endswith("w") else 1.0)


FLU = [(3.0, 4.0, 2.0), (-3.0, 4.0, -2.0), (3.0, -4.0, -2.0), (-3.0, -4.0, 2.0)]


def felt(part, summand, v, W):
    """Return one entry of (f_x, f_y, f_z, tau_x, tau_y, tau_z), FLU, due to one summand with coefficient 1."""
    vehicle = load_vehicle("swift")
    alone = replace(NO_AIR, **{part: replace(getattr(NO_AIR, part), **{summand: 1.0})})
    par = record(swift.parameters(replace(vehicle, aero=alone)))
    force, torque = swift.aero((v[0], -v[1], -v[2]), W, par)
    x, y, z, a, b, c = (*force, *torque)
    found = {"fx": x, "fy": -y, "fz": -z, "tx": a, "ty": -b, "tz": -c}
    assert not any(value for name, value in found.items() if name != part), "nothing else"
    return found[part]


@pytest.mark.parametrize("part", ["fx", "fy", "fz", "tx", "ty", "tz"])
def test_every_summand_of_the_polynomial_is_what_its_name_says(part):
    W = 2.0e6  # more than in hover, so that offsets count in full
    for field in fields(type(getattr(load_vehicle("swift").aero, part))):
        for x, y, z in FLU:
            along = {"fx": x, "fy": y, "tx": y, "ty": x}.get(part)
            speeds = {"v": along, "vx": x, "vy": y, "vz": z, "vxy": math.hypot(x, y)}
            assert felt(part, field.name, (x, y, z), W) == pytest.approx(named(field.name, speeds, W)), field.name


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


W, C = RATES_X["w"].at, RATES_X["c"].at.start
SUBSTEP_S = 1e-4


def flying(thrust, w=(0.0, 0.0, 0.0)):
    x = np.zeros(RATES_X.size)
    x[3], x[W], x[C] = 1.0, w, thrust
    return x


def turned(vehicle, x, u):
    """(3,) rad/s^2 and m/s^3: how rates and thrust begin to change."""
    after = np.array(rates_stepped(tuple(x), tuple(u), (0.0, 0.0, 0.0), record(MixedRates.of(vehicle)), SUBSTEP_S))
    return (after[W] - x[W]) / SUBSTEP_S, (after[C] - x[C]) / SUBSTEP_S


@pytest.mark.parametrize("axis", range(3))
def test_one_axis_has_its_whole_slew_at_half_thrust_none_at_full(dcl, axis):
    u, most = np.zeros(4), dcl.thrust_max
    u[axis] = 10 * dcl.rate_max_rad_s[axis]
    slews = []
    for share in (0.5, 0.75, 1.0):
        u[3] = share * most
        slews.append(turned(dcl, flying(share * most), u)[0][axis])
    assert slews == pytest.approx(np.array([1.0, 0.5, 0.0]) * dcl.mixer.slew_max_rad_s2[axis], rel=0.01, abs=0.5)


def test_axes_share_what_is_left_and_keep_their_proportions(dcl):
    rng = np.random.default_rng(4)
    par, lag, slew = record(MixedRates.of(dcl)), np.array(dcl.rate_lag_s), np.array(dcl.mixer.slew_max_rad_s2)
    for _ in range(200):
        thrust, w, u = rng.uniform(0, dcl.thrust_max), rng.normal(0, 5, 3), rng.normal(0, 8, 3)
        given = np.array(mixed(flying(thrust, w), (*u, thrust), par))
        share = np.abs((given[:3] - w) / lag / slew).sum()
        asked = np.abs((u - w) / lag / slew).sum()
        assert share == pytest.approx(min(asked, 1.0, 2 - 2 * thrust / dcl.thrust_max), abs=1e-9)
        assert given[:3] - w == pytest.approx((u - w) * share / asked, abs=1e-9)
    u = (0.5, -0.3, 0.2, 20.0)
    assert mixed(flying(20.0), u, par) == u, "a feasible command is realised exactly"


def test_turning_with_little_thrust_adds_hover_s_at_most(dcl):
    par = record(MixedRates.of(dcl))
    thrusts = [mixed(flying(2.0), (rate, 0.0, 0.0, 2.0), par)[3] for rate in (0.0, 0.3, 1.0, 10.0)]
    assert thrusts[0] == 2.0 and np.all(np.diff(thrusts) >= 0) and thrusts[-1] == dcl.mixer.lift_m_s2


@pytest.mark.parametrize("axes", [(0, 1), (1, 2), (2, 0)])
def test_yielding_thrust_is_that_of_betaflights_mixer(axes):
    archer = load_vehicle("archer")
    archer = replace(archer, mixer=replace(archer.mixer, slew_max_rad_s2=archer.rotors.slew_max_rad_s2))
    par, most = record(MixedRates.of(archer)), archer.thrust_max
    reach = np.array(archer.rate_lag_s) * archer.slew_max
    motors = SimpleNamespace(mix=[(-1, 1, 1), (1, -1, 1), (-1, -1, -1), (1, 1, -1)])  # roll, pitch and yaw to each
    rng = np.random.default_rng(5)
    for _ in range(200):
        share, thrust = np.zeros(3), rng.uniform(0, most)
        share[list(axes)] = rng.uniform(-0.8, 0.8, 2)  # of what there is at half thrust
        *rates, flown = mixed(flying(thrust), (*(share * reach), thrust), par)
        outputs = swift.motor_outputs(tuple(share / 2), thrust / most, motors)
        assert flown == pytest.approx(most * np.mean(outputs), abs=1e-9)
        assert rates == pytest.approx(share * reach / max(np.abs(share).sum(), 1.0))


@pytest.mark.parametrize("mixer", [((0.0, 1.0, 1.0), 1.0), ((1.0, 1.0, 1.0), -1.0), ((1.0, 1.0, 1.0), 1.0, True)])
def test_a_mixer_that_cannot_be_is_refused(mixer, dcl):
    with pytest.raises(ValueError, match=r"must|needs rotors"):
        replace(dcl, mixer=Mixer(*mixer))


TICK_S = 1 / 960


def loop():
    vehicle = load_vehicle("kolibri")
    return record(swift.controller_parameters(vehicle.flight_controller, vehicle.rotors))


def after(x, omega, u, par):
    then, motors = swift.rate_loop(x, omega, u, par, swift.smoothing(par, TICK_S), TICK_S)
    return np.array(then), np.array(motors)


def test_the_d_term_only_damps_and_no_command_kicks_it():
    par, x = loop(), np.zeros(9)
    x, first = after(x, np.zeros(3), (5.0, 0, 0, 0.5), par)
    assert x[6:9] == pytest.approx(np.zeros(3))
    roll = (first * np.array([m[0] for m in par.mix])).sum() / 4
    assert roll == pytest.approx(par.kp[0] * 5.0 + par.ki[0] * 5.0 * TICK_S)
    x, _ = after(np.zeros(9), (1.0, 0, 0), (0.0, 0, 0, 0.5), par)
    assert x[6] > 0  # and a turning body is damped


# Gains; error and change of the rate, deg/s, in a step of 1/1000 s; I term and sum of P, I and D in Betaflight's units, by hand
# from PTERM_SCALE 0.032029, ITERM_SCALE 0.244381 and DTERM_SCALE 0.000529; limits of the sum, if not the defaults.
PIDSUMS = {
    "P": ((45, 0, 0), 100.0, 0.0, 0.0, 144.1305),
    "I": ((0, 80, 0), 100.0, 0.0, 1.955048, 1.955048),
    "D": ((0, 0, 40), 0.0, 10.0, 0.0, -211.6),
    "all": ((45, 80, 40), -100.0, 10.0, -1.955048, -144.1305 - 1.955048 - 211.6),
    "limited": ((45, 80, 40), 600.0, -10.0, 11.730288, (500.0, 500.0, 400.0)),
    "yaw alone": ((100, 0, 0), -140.0, 0.0, 0.0, (-448.406, -448.406, -400.0)),
    "as set": ((100, 0, 0), -140.0, 0.0, 0.0, (-300.0, -300.0, -200.0), (300.0, 200.0)),
}


@pytest.mark.parametrize("case", PIDSUMS.values(), ids=PIDSUMS)
def test_p_i_and_d_and_the_limits_of_their_sum_are_betaflights(case):
    (p, i, d), error, change, integral, total, *limits = case
    vehicle, dt, rad = load_vehicle("kolibri"), 1e-3, math.radians(1.0)
    given = dict(zip(("pidsum_limit", "pidsum_limit_yaw"), *limits, strict=True)) if limits else {}
    gains = {"kp": (p,) * 3, "ki": (i,) * 3, "kd": (d,) * 3, "gyro_lowpass_hz": np.inf, "dterm_lowpass_hz": np.inf}
    controller = replace(vehicle.flight_controller, **gains, integral_limit=0.4, **given)
    par = record(swift.controller_parameters(controller, vehicle.rotors))
    omega, u = (change * rad,) * 3, ((error + change) * rad,) * 3 + (0.5,)
    for k, expected in enumerate(np.broadcast_to(total, 3)):
        found = swift.axis_torque(np.zeros(9), k, omega, u, par, swift.smoothing(par, dt), dt)
        assert (1000 * found[0], 1000 * found[3]) == pytest.approx((integral, expected))


@pytest.mark.parametrize("wrong", [{"pidsum_limit": 99.0}, {"pidsum_limit_yaw": 1001.0}])
def test_limits_beyond_the_firmwares_are_refused(wrong):
    with pytest.raises(ValueError, match="must lie between 100 and 1000"):
        replace(load_vehicle("kolibri").flight_controller, **wrong)


def test_the_i_term_is_limited_and_reset_by_cut_throttle():
    par, x = loop(), np.zeros(9)
    for _ in range(2000):
        x, _ = after(x, np.zeros(3), (5.0, -5.0, 2.0, 0.5), par)
    assert x[:3] == pytest.approx([par.integral_limit, -par.integral_limit, par.integral_limit])
    x, _ = after(x, np.zeros(3), (5.0, -5.0, 2.0, 0.0), par)
    assert x[:3] == pytest.approx(np.zeros(3))


@pytest.mark.parametrize("throttle", [0.0, 0.02, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("torque", [(0.1, 0.0, 0.0), (0.1, -0.2, 0.05), (2.0, 1.0, -0.5)])
def test_rates_come_before_thrust_when_motors_saturate(torque, throttle):
    par = loop()
    motor = np.array(swift.motor_outputs(np.array(torque), throttle, par))
    assert motor.min() >= -1e-12 and motor.max() <= 1 + 1e-12
    achieved = np.array(par.mix).T @ motor / 4
    scale = achieved @ np.array(torque) / (np.array(torque) @ np.array(torque))
    assert achieved == pytest.approx(scale * np.array(torque))  # the direction is kept
    asked = np.ptp(np.array(par.mix) @ torque)
    assert scale == pytest.approx(min(1.0, 1.0 / asked))


@both
def test_electric_power_exceeds_the_mechanical(name):
    _, par, _ = model(name)
    for omega in (500.0, 1500.0, 2500.0):
        mechanical = 4 * abs(par.rotors.torque[0]) * par.motors.thrust_n_s2 * omega**3  # c_d Omega^3 of eq. (5)
        assert swift.motor_power(np.full(4, omega), par.motors) >= mechanical * 0.999
