"""The grey-box quadrotor of Swift (Kaufmann et al., Nature 620:982, 2023, Methods, eq. 1 to 6), one sub-step at a time.

World NED, body FRD, SI. Without air and with motors of constant speed it is the planner's `rotors` model (vehicle/dynamics.py).
"""

import math
from typing import NamedTuple

import numpy as np

from gate_racer.sim.physics.jit import inlined
from gate_racer.sim.physics.lanes import add_scaled_with_four, slopes, summed, with_unit_attitude
from gate_racer.sim.physics.powertrain import (
    ControllerParameters,
    battery_at_rest,
    controller_parameters,
    discharged,
    rate_loop,
    sags,
    smoothing,
    steady_speed,
    voltage,
)
from gate_racer.vehicle.dynamics import GRAVITY, RotorsParameters, layout
from gate_racer.vehicle.rotation import Array, conjugate, rate, rotate
from gate_racer.vehicle.vehicle import Aero, Battery, MotorParameters, Vehicle

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


class SwiftParameters(NamedTuple):
    """Parameters of a sub-step: sections of the vehicle's file, SI."""

    rotors: RotorsParameters
    motors: MotorParameters
    hover_sqr: float  # (rad/s)^2, squared motor speed in hover
    aero: Aero
    loop: ControllerParameters
    battery: Battery


@inlined
def side_force(v, w, share, c):
    """Return f_x or f_y over mass, m/s^2, by a `SideForce` c; `share`: weight of the constant term, 0..1."""
    return c.offset * share + v * (c.v + c.v_sqr * v + c.v_abs * abs(v)) + w * (c.w + c.v_w * v)


@inlined
def lift(vxy, vz, w, c):
    """Return f_z over mass, m/s^2, by a `Lift` c."""
    return (
        vz * (c.vz + vz * (c.vz_sqr + vz * c.vz_cub) + c.vz_abs * abs(vz))
        + vxy * (c.vxy + c.vxy_sqr * vxy)
        + w * (c.w + c.vxy_w * vxy + c.vz_w * vz + c.vxy_vz_w * vxy * vz)
    )


@inlined
def side_torque(v, w, share, c):
    """Return tau_x or tau_y over inertia, rad/s^2, by a `SideTorque` c."""
    plain, with_rotors = c.v + c.v_sqr * v + c.v_abs * abs(v), c.v_w + c.v_sqr_w * v + c.v_abs_w * abs(v)
    return c.offset * share + v * plain + w * (c.w + v * with_rotors)


@inlined
def aero(v_b, w, par):
    """Return force over mass (3) and torque over inertia (3), body FRD, at v_b (3), FRD, and mean squared motor speed w.

    The polynomial is published in FLU: y and z change sign at input and output.
    """
    x, y, z = v_b[0], -v_b[1], -v_b[2]
    share = min(1.0, w / par.hover_sqr)
    vxy = math.sqrt(x * x + y * y)
    c = par.aero
    f = (side_force(x, w, share, c.fx), -side_force(y, w, share, c.fy), -lift(vxy, z, w, c.fz))
    yaw = c.tz.offset * share + c.tz.vx * x + c.tz.vy * y
    return f, (side_torque(y, w, share, c.tx), -side_torque(x, w, share, c.ty), -yaw)


@inlined
def translation_and_torque(x, par):
    """Return dv/dt, m/s^2, world, and tau_aero over inertia, rad/s^2, body: eq. (1), (2), (4)."""
    w = (x[13] ** 2 + x[14] ** 2 + x[15] ** 2 + x[16] ** 2) / 4  # mean squared motor speed, (rad/s)^2
    q, v = (x[3], x[4], x[5], x[6]), (x[7], x[8], x[9])
    thrust = 4 * par.motors.thrust_n_s2 * w / par.rotors.mass
    f, torque = aero(rotate(conjugate(q), v), w, par)
    a = rotate(q, (f[0], f[1], f[2] - thrust))
    return (a[0], a[1], a[2] + GRAVITY), torque


@inlined
def specific_force(x, par):
    """Return the specific force (f_prop + f_aero) / m, m/s^2, body FRD, as an accelerometer measures it."""
    a, _ = translation_and_torque(x, par)
    return rotate((x[3], -x[4], -x[5], -x[6]), (a[0], a[1], a[2] - GRAVITY))


@inlined
def with_rotor(i, torque, x, acceleration, par):
    """Add rotor i's torque to `torque` (3), N m: thrust at its arm, drag, and reaction to its motor's acceleration, tau_mot."""
    rotors, thrust = par.rotors, par.motors.thrust_n_s2 * x[13 + i] ** 2
    # The reaction acts against the motor's sense of rotation, as its drag does.
    reaction = math.copysign(par.motors.inertia_kg_m2, rotors.torque[i]) * acceleration[i]
    yaw = torque[2] + rotors.torque[i] * thrust + reaction
    return torque[0] - rotors.rotor_y[i] * thrust, torque[1] + rotors.rotor_x[i] * thrust, yaw


@inlined
def derivative(x, omega_ss, residual, par):
    """Return d/dt of position, attitude, velocity, body rates and motor speeds (17): eq. (1) to (4).

    residual: unmodelled acceleration (3), m/s^2, world: eq. (11).
    """
    w = (x[10], x[11], x[12])
    J, k_mot = par.rotors.inertia, par.motors.time_constant_s
    a, tau_aero = translation_and_torque(x, par)
    dq = rate((x[3], x[4], x[5], x[6]), w)
    dm = (
        (omega_ss[0] - x[13]) / k_mot,
        (omega_ss[1] - x[14]) / k_mot,
        (omega_ss[2] - x[15]) / k_mot,
        (omega_ss[3] - x[16]) / k_mot,
    )
    torque = with_rotor(0, (0.0, 0.0, 0.0), x, dm, par)
    torque = with_rotor(1, torque, x, dm, par)
    torque = with_rotor(2, torque, x, dm, par)
    torque = with_rotor(3, torque, x, dm, par)
    tx = torque[0] - (J[2] - J[1]) * w[1] * w[2]  # tau_iner = -w x J w
    ty = torque[1] - (J[0] - J[2]) * w[2] * w[0]
    tz = torque[2] - (J[1] - J[0]) * w[0] * w[1]
    dv = (a[0] + residual[0], a[1] + residual[1], a[2] + residual[2])
    dw = (tx / J[0] + tau_aero[0], ty / J[1] + tau_aero[1], tz / J[2] + tau_aero[2])
    return (x[7], x[8], x[9], *dq, *dv, *dw, *dm)


@inlined
def motor_power(omega, motors):
    """Return the electric power of four motors, W: eq. (5) with the efficiency of the motor's own fit."""
    total = 0.0
    for i in range(4):
        cube = omega[i] ** 3
        total += motors.power_linear * omega[i] + motors.power_cubic * cube + motors.power_sixth * cube * cube
    return total


@inlined
def steady_speeds(loop, pack, w, u, armed, par, smooth, dt):
    """Return the flight controller's state (9) after dt, and the steady motor speeds (4), rad/s, from its outputs."""
    if not armed:
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)
    volt = voltage(pack, par.battery)
    then, output = rate_loop(loop, w, u, par.loop, smooth, dt)
    return then, (
        steady_speed(output[0], volt, par.loop, par.motors),
        steady_speed(output[1], volt, par.loop, par.motors),
        steady_speed(output[2], volt, par.loop, par.motors),
        steady_speed(output[3], volt, par.loop, par.motors),
    )


@inlined
def shares(par, dt):
    """Return the step gains over dt of the filters (gyro, D term) and of the voltage drops (slow, fast)."""
    return smoothing(par.loop, dt), sags(par.battery, dt)


@inlined
def stepped(x, loop, pack, u, armed, residual, par, share, dt):
    """Return motion and motor speeds (17), flight controller (9) and battery (3) after one Runge-Kutta step of length dt.

    u: commanded body rates (3) in rad/s and throttle 0..1. share: from `shares`.
    """
    then, omega_ss = steady_speeds(loop, pack, (x[10], x[11], x[12]), u, armed, par, share[0], dt)
    k = slopes(derivative, add_scaled_with_four, x, omega_ss, residual, par, dt)
    y = with_unit_attitude(add_scaled_with_four(x, 1.0, summed(add_scaled_with_four, STILL, k, dt)))
    return y, then, discharged(pack, motor_power(y[13:], par.motors), par.battery, share[1], dt)


def parameters(vehicle: Vehicle) -> SwiftParameters:
    """Return the parameters of a vehicle. Raises UserError when it has no grey-box sections."""
    motors, battery, controller, aerodynamics = vehicle.require_grey_box()
    rotors = vehicle.rotors_parameters
    assert vehicle.rotors is not None
    hover_sqr = rotors.mass * GRAVITY / (4 * motors.thrust_n_s2)
    loop = controller_parameters(controller, vehicle.rotors)
    return SwiftParameters(rotors, motors, hover_sqr, aerodynamics, loop, battery)


def at_rest(par: SwiftParameters) -> Array:
    """Return the state as `X` at the origin, level, with motors off and the battery at its starting voltage."""
    x = np.zeros(X.size)
    x[3] = 1.0
    x[BATTERY] = battery_at_rest(par.battery)
    return x
