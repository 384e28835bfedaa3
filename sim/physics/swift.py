"""The grey-box quadrotor of Swift (Kaufmann et al., Nature 620:982, 2023, Methods, eq. 1 to 6), one sub-step at a time.

World NED, body FRD, SI. With every term switched off it is the planner's `rotors` model (vehicle/dynamics.py).
"""

import math
from dataclasses import astuple
from typing import NamedTuple

import numpy as np

from gate_racer.sim.physics import battery as battery_model
from gate_racer.sim.physics import flight_controller, lanes
from gate_racer.sim.physics.battery import BatteryParameters, discharged, sags, voltage
from gate_racer.sim.physics.flight_controller import (
    ControllerParameters,
    SpeedMapParameters,
    rate_loop,
    smoothing,
    steady_speed,
)
from gate_racer.sim.physics.jit import inlined
from gate_racer.vehicle.dynamics import GRAVITY, layout, translation
from gate_racer.vehicle.rotation import Array, conjugate, rate, rotate
from gate_racer.vehicle.vehicle import Vehicle

X = layout(
    p=("x y z", "m", "world NED"),
    q=("w x y z", "-", "body to world"),
    v=("x y z", "m/s", "world NED"),
    w=("x y z", "rad/s", "body rates, body FRD"),
    Omega=("1 2 3 4", "rad/s", "motor speeds, without the sense of rotation"),
    loop=("1 2 3 4 5 6 7 8 9", "-", "flight controller"),
    battery=("energy slow fast", "kJ/Ah V V", "one cell"),
)
STILL = (0.0,) * 17  # zero of motion and motor speeds, from which the Runge-Kutta sum starts
OMEGA, LOOP, BATTERY = X["Omega"].at, X["loop"].at, X["battery"].at


class Terms(NamedTuple):
    """Terms modelled beyond the rigid body. All off: the planner's `rotors` model, whose input is four thrusts."""

    aero: bool = True  # polynomial aerodynamics; off: the vehicle's drag
    motor_torque: bool = True  # tau_mot of eq. (3)
    motor_lag: bool = True  # k_mot of eq. (1); off: motors follow without lag
    battery: bool = True  # off: nominal voltage
    flight_controller: bool = True  # flight controller and ESC; off: the input is four rotor thrusts, N


ALL = Terms()


class SwiftParameters(NamedTuple):
    """Parameters of a sub-step, SI."""

    mass: float
    inertia: tuple[float, float, float]
    rotor_x: tuple[float, float, float, float]
    rotor_y: tuple[float, float, float, float]
    torque: tuple[float, float, float, float]  # m, c_d over c_l, signed
    c_l: float
    time_constant: float
    rotor_inertia: float
    power: tuple[float, float, float]  # W per rad/s, (rad/s)^3, (rad/s)^6
    hover_sqr: float  # (rad/s)^2, squared motor speed in hover
    drag_linear: tuple[float, float, float]
    drag_quadratic: float
    fx: tuple[float, ...]  # coefficients of `vehicle.vehicle.SideForce`, in its order
    fy: tuple[float, ...]
    fz: tuple[float, ...]  # coefficients of `Lift`
    tx: tuple[float, ...]  # coefficients of `SideTorque`
    ty: tuple[float, ...]
    tz: tuple[float, ...]  # coefficients of `YawTorque`
    speed: SpeedMapParameters
    loop: ControllerParameters
    battery: BatteryParameters


@inlined
def side_force(v, w, share, c):
    """Return f_x or f_y over mass, m/s^2; `share`: weight of the constant term, 0..1."""
    return c[0] * share + v * (c[1] + c[2] * v + c[5] * abs(v)) + w * (c[3] + c[4] * v)


@inlined
def lift(vxy, vz, w, c):
    """Return f_z over mass, m/s^2."""
    return (
        vz * (c[0] + vz * (c[1] + vz * c[2]) + c[9] * abs(vz))
        + vxy * (c[3] + c[4] * vxy)
        + w * (c[5] + c[6] * vxy + c[7] * vz + c[8] * vxy * vz)
    )


@inlined
def side_torque(v, w, share, c):
    """Return tau_x or tau_y over inertia, rad/s^2."""
    plain, with_rotors = c[1] + c[2] * v + c[6] * abs(v), c[4] + c[5] * v + c[7] * abs(v)
    return c[0] * share + v * plain + w * (c[3] + v * with_rotors)


@inlined
def aero(v_b, w, par):
    """Return force over mass (3) and torque over inertia (3), body FRD, at v_b (3), FRD, and mean squared motor speed w.

    The polynomial is published in FLU: y and z change sign at input and output.
    """
    x, y, z = v_b[0], -v_b[1], -v_b[2]
    share = min(1.0, w / par.hover_sqr)
    vxy = math.sqrt(x * x + y * y)
    f = (side_force(x, w, share, par.fx), -side_force(y, w, share, par.fy), -lift(vxy, z, w, par.fz))
    c = par.tz
    yaw = c[0] * share + c[1] * x + c[2] * y
    return f, (side_torque(y, w, share, par.tx), -side_torque(x, w, share, par.ty), -yaw)


@inlined
def mean_square(x):
    """Return the mean squared motor speed, (rad/s)^2."""
    return (x[13] ** 2 + x[14] ** 2 + x[15] ** 2 + x[16] ** 2) / 4


@inlined
def translation_and_torque(x, par, terms):
    """Return dv/dt, m/s^2, world, and tau_aero over inertia, rad/s^2, body: eq. (1), (2), (4)."""
    w = mean_square(x)
    q, v = (x[3], x[4], x[5], x[6]), (x[7], x[8], x[9])
    thrust = 4 * par.c_l * w / par.mass
    if not terms.aero:
        return translation(q, v, thrust, par.drag_linear, par.drag_quadratic), (0.0, 0.0, 0.0)
    f, torque = aero(rotate(conjugate(q), v), w, par)
    a = rotate(q, (f[0], f[1], f[2] - thrust))
    return (a[0], a[1], a[2] + GRAVITY), torque


@inlined
def specific_force(x, par, terms):
    """Return the specific force (f_prop + f_aero) / m, m/s^2, body FRD, as an accelerometer measures it."""
    a, _ = translation_and_torque(x, par, terms)
    return rotate((x[3], -x[4], -x[5], -x[6]), (a[0], a[1], a[2] - GRAVITY))


@inlined
def motor_acceleration(i, x, omega_ss, par, terms):
    """Return the acceleration of motor i, rad/s^2."""
    return (omega_ss[i] - x[13 + i]) / par.time_constant if terms.motor_lag else 0.0


@inlined
def with_rotor(i, torque, x, acceleration, par, terms):
    """Add rotor i's torque to `torque` (3), N m: thrust at its arm, drag, and reaction to its motor's acceleration."""
    thrust = par.c_l * x[13 + i] ** 2
    yaw = torque[2] + par.torque[i] * thrust
    if terms.motor_torque:  # the reaction acts against the motor's sense of rotation, as its drag does
        yaw += math.copysign(par.rotor_inertia, par.torque[i]) * acceleration[i]
    return torque[0] - par.rotor_y[i] * thrust, torque[1] + par.rotor_x[i] * thrust, yaw


@inlined
def derivative(x, omega_ss, residual, par, terms):
    """Return d/dt of position, attitude, velocity, body rates and motor speeds (17): eq. (1) to (4).

    residual: unmodelled acceleration (3), m/s^2, world: eq. (11).
    """
    w = (x[10], x[11], x[12])
    J = par.inertia
    a, tau_aero = translation_and_torque(x, par, terms)
    dq = rate((x[3], x[4], x[5], x[6]), w)
    dm = (
        motor_acceleration(0, x, omega_ss, par, terms),
        motor_acceleration(1, x, omega_ss, par, terms),
        motor_acceleration(2, x, omega_ss, par, terms),
        motor_acceleration(3, x, omega_ss, par, terms),
    )
    torque = with_rotor(0, (0.0, 0.0, 0.0), x, dm, par, terms)
    torque = with_rotor(1, torque, x, dm, par, terms)
    torque = with_rotor(2, torque, x, dm, par, terms)
    torque = with_rotor(3, torque, x, dm, par, terms)
    tx = torque[0] - (J[2] - J[1]) * w[1] * w[2]  # tau_iner = -w x J w
    ty = torque[1] - (J[0] - J[2]) * w[2] * w[0]
    tz = torque[2] - (J[1] - J[0]) * w[0] * w[1]
    dv = (a[0] + residual[0], a[1] + residual[1], a[2] + residual[2])
    dw = (tx / J[0] + tau_aero[0], ty / J[1] + tau_aero[1], tz / J[2] + tau_aero[2])
    return (x[7], x[8], x[9], *dq, *dv, *dw, *dm)


@inlined
def motor_power(omega, par):
    """Return the electric power of four motors, W: eq. (5) with the efficiency of the motor's own fit."""
    total = 0.0
    for i in range(4):
        cube = omega[i] ** 3
        total += par.power[0] * omega[i] + par.power[1] * cube + par.power[2] * cube * cube
    return total


@inlined
def steady_speeds(loop, pack, w, u, armed, par, terms, smooth, dt):
    """Return the flight controller's state (9) after dt, and the steady motor speeds (4), rad/s, from its outputs."""
    if not armed:
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)
    if not terms.flight_controller:
        c_l = par.c_l
        speeds = (math.sqrt(u[0] / c_l), math.sqrt(u[1] / c_l), math.sqrt(u[2] / c_l), math.sqrt(u[3] / c_l))
        return loop, speeds
    volt = voltage(pack, par.battery) if terms.battery else par.battery.nominal_v
    then, output = rate_loop(loop, w, u, par.loop, smooth, dt)
    return then, (
        steady_speed(output[0], volt, par.loop, par.speed),
        steady_speed(output[1], volt, par.loop, par.speed),
        steady_speed(output[2], volt, par.loop, par.speed),
        steady_speed(output[3], volt, par.loop, par.speed),
    )


@inlined
def ahead(x, h, k):
    """Return x + h k of 17 scalars."""
    return (*lanes.ahead_rigid(x, h, k), x[13] + h * k[13], x[14] + h * k[14], x[15] + h * k[15], x[16] + h * k[16])


@inlined
def shares(par, dt):
    """Return the step gains over dt of the filters (gyro, D term) and of the voltage drops (slow, fast)."""
    return smoothing(par.loop, dt), sags(par.battery, dt)


@inlined
def stepped(x, loop, pack, u, armed, residual, par, terms, share, dt):
    """Return motion and motor speeds (17), flight controller (9) and battery (3) after one Runge-Kutta step of length dt.

    u: commanded body rates (3) in rad/s and throttle 0..1, or four rotor thrusts in N without a flight controller.
    share: from `shares`.
    """
    then, omega_ss = steady_speeds(loop, pack, (x[10], x[11], x[12]), u, armed, par, terms, share[0], dt)
    now = x if terms.motor_lag else (*x[:13], *omega_ss)
    k1 = derivative(now, omega_ss, residual, par, terms)
    k2 = derivative(ahead(now, dt / 2, k1), omega_ss, residual, par, terms)
    k3 = derivative(ahead(now, dt / 2, k2), omega_ss, residual, par, terms)
    k4 = derivative(ahead(now, dt, k3), omega_ss, residual, par, terms)
    total = ahead(ahead(ahead(ahead(STILL, dt / 6, k1), dt / 3, k2), dt / 3, k3), dt / 6, k4)
    y = ahead(now, 1.0, total)
    norm = math.sqrt(y[3] ** 2 + y[4] ** 2 + y[5] ** 2 + y[6] ** 2)
    motion = (*y[:3], y[3] / norm, y[4] / norm, y[5] / norm, y[6] / norm, *y[7:])
    if not terms.battery:
        return motion, then, pack
    return motion, then, discharged(pack, motor_power(y[13:], par), par.battery, share[1], dt)


def parameters(vehicle: Vehicle) -> SwiftParameters:
    """Return the parameters of a vehicle. Raises UserError when it has no grey-box sections."""
    motors, battery, controller, aero_facts = vehicle.require_grey_box()
    par, rotors = vehicle.rotors_parameters, vehicle.rotors
    assert rotors is not None
    return SwiftParameters(
        mass=par.mass,
        inertia=par.inertia,
        rotor_x=par.rotor_x,
        rotor_y=par.rotor_y,
        torque=par.torque,
        c_l=motors.thrust_n_s2,
        time_constant=motors.time_constant_s,
        rotor_inertia=motors.inertia_kg_m2,
        power=(motors.power_linear, motors.power_cubic, motors.power_sixth),
        hover_sqr=par.mass * GRAVITY / (4 * motors.thrust_n_s2),
        drag_linear=par.drag_linear,
        drag_quadratic=par.drag_quadratic,
        **{name: astuple(getattr(aero_facts, name)) for name in ("fx", "fy", "fz", "tx", "ty", "tz")},
        speed=flight_controller.speed_parameters(motors.speed, motors.speed_min_rad_s, motors.speed_max_rad_s),
        loop=flight_controller.parameters(controller, rotors),
        battery=battery_model.parameters(battery),
    )


def at_rest(par: SwiftParameters) -> Array:
    """Return the state as `X` at the origin, level, with motors off and the battery at its starting voltage."""
    x = np.zeros(X.size)
    x[3] = 1.0
    x[BATTERY] = battery_model.at_rest(par.battery)
    return x
