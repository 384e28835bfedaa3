"""The grey-box quadrotor of Swift (Kaufmann et al., Nature 620:982, 2023, Methods, eq. 1 to 6), one sub-step at a time.

World NED, body FRD, SI. With every term switched off it is the planner's `rotors` model (vehicle/dynamics.py).
"""

import math
from dataclasses import astuple
from typing import NamedTuple

import numpy as np

from sim.physics import battery as battery_model
from sim.physics import flight_controller
from sim.physics.battery import BatteryParameters, discharge, voltage
from sim.physics.flight_controller import ControllerParameters, SpeedMapParameters, rate_loop, steady_speed
from sim.physics.jit import njit
from vehicle.dynamics import GRAVITY, translation
from vehicle.layout import layout
from vehicle.rotation import Array, conjugate, rate, rotate
from vehicle.vehicle import Vehicle

X = layout(
    p=("x y z", "m", "world NED"),
    q=("w x y z", "-", "body to world"),
    v=("x y z", "m/s", "world NED"),
    w=("x y z", "rad/s", "body rates, body FRD"),
    Omega=("1 2 3 4", "rad/s", "motor speeds, without the sense of rotation"),
    loop=("1 2 3 4 5 6 7 8 9", "-", "flight controller"),
    battery=("energy slow fast", "kJ/Ah V V", "one cell"),
)
OMEGA, LOOP, BATTERY = X["Omega"].at, X["loop"].at, X["battery"].at


class Terms(NamedTuple):
    """What is modelled beyond the rigid body. All off: the planner's `rotors` model, whose input is four thrusts."""

    aero: bool = True  # the polynomial; off: the vehicle's simple drag
    motor_torque: bool = True  # tau_mot of eq. (3)
    motor_lag: bool = True  # k_mot of eq. (1); off: motors follow at once
    battery: bool = True  # off: nominal voltage
    flight_controller: bool = True  # and ESC; off: the input is four rotor thrusts, N


ALL = Terms()


class SwiftParameters(NamedTuple):
    """Everything that a sub-step needs."""

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
    fx: tuple[float, ...]  # of `vehicle.powertrain.SideForce`, in its order
    fy: tuple[float, ...]
    fz: tuple[float, ...]  # of `Lift`
    tx: tuple[float, ...]  # of `SideTorque`
    ty: tuple[float, ...]
    tz: tuple[float, ...]  # of `YawTorque`
    speed: SpeedMapParameters
    loop: ControllerParameters
    battery: BatteryParameters


@njit
def side_force(v, w, share, c):
    """f_x or f_y over mass; `share` is that of the offset."""
    return c[0] * share + v * (c[1] + c[2] * v + c[5] * abs(v)) + w * (c[3] + c[4] * v)


@njit
def lift(vxy, vz, w, c):
    """f_z over mass."""
    return (
        vz * (c[0] + vz * (c[1] + vz * c[2]) + c[9] * abs(vz))
        + vxy * (c[3] + c[4] * vxy)
        + w * (c[5] + c[6] * vxy + c[7] * vz + c[8] * vxy * vz)
    )


@njit
def side_torque(v, w, share, c):
    """tau_x or tau_y over inertia."""
    plain, with_rotors = c[1] + c[2] * v + c[6] * abs(v), c[4] + c[5] * v + c[7] * abs(v)
    return c[0] * share + v * plain + w * (c[3] + v * with_rotors)


@njit
def aero(v_b, w, par):
    """Aerodynamic force over mass (3) and torque over inertia (3) in body FRD, for v_b in FRD and mean squared speed w.

    The polynomial is published in FLU: y and z change sign on the way in and out.
    """
    x, y, z = v_b[0], -v_b[1], -v_b[2]
    share = min(1.0, w / par.hover_sqr)
    vxy = math.sqrt(x * x + y * y)
    f = (side_force(x, w, share, par.fx), -side_force(y, w, share, par.fy), -lift(vxy, z, w, par.fz))
    c = par.tz
    yaw = c[0] * share + c[1] * x + c[2] * y
    return f, (side_torque(y, w, share, par.tx), -side_torque(x, w, share, par.ty), -yaw)


@njit
def mean_square(x):
    """Mean squared motor speed, (rad/s)^2."""
    return (x[13] ** 2 + x[14] ** 2 + x[15] ** 2 + x[16] ** 2) / 4


@njit
def translation_and_torque(x, par, terms):
    """dv/dt in world axes, m/s^2, and tau_aero over inertia, rad/s^2: eq. (1), (2), (4)."""
    w = mean_square(x)
    q, v = (x[3], x[4], x[5], x[6]), (x[7], x[8], x[9])
    thrust = 4 * par.c_l * w / par.mass
    if not terms.aero:
        return translation(q, v, thrust, par.drag_linear, par.drag_quadratic), (0.0, 0.0, 0.0)
    f, torque = aero(rotate(conjugate(q), v), w, par)
    a = rotate(q, (f[0], f[1], f[2] - thrust))
    return (a[0], a[1], a[2] + GRAVITY), torque


@njit
def specific_force(x, par, terms):
    """f_prop + f_aero over the mass, m/s^2, body axes: what an accelerometer feels."""
    a, _ = translation_and_torque(x, par, terms)
    return rotate((x[3], -x[4], -x[5], -x[6]), (a[0], a[1], a[2] - GRAVITY))


@njit
def derivative(x, omega_ss, residual, par, terms, dx):
    """Writes d/dt of position, attitude, velocity, body rates and motor speeds into dx (17,): eq. (1) to (4).

    `residual` is an acceleration (3,) in world axes that the model does not know, eq. (11).
    """
    q = (x[3], x[4], x[5], x[6])
    w = (x[10], x[11], x[12])
    J = par.inertia
    a, tau_aero = translation_and_torque(x, par, terms)
    dq = rate(q, w)
    tx, ty, tz = 0.0, 0.0, 0.0
    for i in range(4):
        acceleration = (omega_ss[i] - x[13 + i]) / par.time_constant if terms.motor_lag else 0.0
        thrust = par.c_l * x[13 + i] ** 2
        tx -= par.rotor_y[i] * thrust
        ty += par.rotor_x[i] * thrust
        tz += par.torque[i] * thrust
        if terms.motor_torque:  # the body is turned against the motor's sense of rotation, as by its drag
            tz += math.copysign(par.rotor_inertia, par.torque[i]) * acceleration
        dx[13 + i] = acceleration
    tx -= (J[2] - J[1]) * w[1] * w[2]  # tau_iner = -w x J w
    ty -= (J[0] - J[2]) * w[2] * w[0]
    tz -= (J[1] - J[0]) * w[0] * w[1]
    dx[0], dx[1], dx[2] = x[7], x[8], x[9]
    dx[3], dx[4], dx[5], dx[6] = dq
    dx[7], dx[8], dx[9] = a[0] + residual[0], a[1] + residual[1], a[2] + residual[2]
    dx[10], dx[11], dx[12] = tx / J[0] + tau_aero[0], ty / J[1] + tau_aero[1], tz / J[2] + tau_aero[2]


@njit
def motor_power(omega, par):
    """Electric power of four motors, W: eq. (5) with the efficiency of the motor's own fit."""
    total = 0.0
    for i in range(4):
        cube = omega[i] ** 3
        total += par.power[0] * omega[i] + par.power[1] * cube + par.power[2] * cube * cube
    return total


@njit
def steady_speeds(x, u, armed, par, terms, dt):
    """Steady motor speeds (4) that the input asks for: rate loop, ESC and battery, or bare thrusts. Changes x."""
    if not armed:
        x[LOOP] = 0.0
        return 0.0, 0.0, 0.0, 0.0
    if terms.flight_controller:
        volt = voltage(x[BATTERY], par.battery) if terms.battery else par.battery.nominal_v
        output = rate_loop(x[LOOP], x[10:13], u, par.loop, dt)
        return (
            steady_speed(output[0], volt, par.loop, par.speed),
            steady_speed(output[1], volt, par.loop, par.speed),
            steady_speed(output[2], volt, par.loop, par.speed),
            steady_speed(output[3], volt, par.loop, par.speed),
        )
    c_l = par.c_l
    return math.sqrt(u[0] / c_l), math.sqrt(u[1] / c_l), math.sqrt(u[2] / c_l), math.sqrt(u[3] / c_l)


@njit
def substep(x, u, armed, residual, par, terms, dt):
    """`advance` with work space of its own."""
    advance(x, u, armed, residual, par, terms, dt, np.empty((3, 17)))


@njit
def advance(x, u, armed, residual, par, terms, dt, work):
    """One Runge-Kutta step of length dt; changes x (as `X`).

    u: commanded body rates (3) in rad/s and throttle 0..1, or four rotor thrusts in N without a flight controller.
    work: (3, 17) of any content, so that nothing is allocated at every sub-step.
    """
    omega_ss = steady_speeds(x, u, armed, par, terms, dt)
    if not terms.motor_lag:
        for i in range(4):
            x[13 + i] = omega_ss[i]
    n = 17
    total, k, y = work[0], work[1], work[2]
    total[:] = 0.0
    for stage in range(4):
        ahead = 0.0 if stage == 0 else dt if stage == 3 else dt / 2
        for i in range(n):
            y[i] = x[i] + ahead * k[i] if stage else x[i]
        derivative(y, omega_ss, residual, par, terms, k)
        weight = dt / 6 if stage in (0, 3) else dt / 3
        for i in range(n):
            total[i] += weight * k[i]
    for i in range(n):
        x[i] += total[i]
    norm = math.sqrt(x[3] ** 2 + x[4] ** 2 + x[5] ** 2 + x[6] ** 2)
    for i in range(3, 7):
        x[i] /= norm
    if terms.battery:
        discharge(x[BATTERY], motor_power(x[OMEGA], par), par.battery, dt)


def parameters(vehicle: Vehicle) -> SwiftParameters:
    """Raises UserError when the vehicle has no grey-box sections."""
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
    """State as `X` at the origin, level, motors off, battery fresh."""
    x = np.zeros(X.size)
    x[3] = 1.0
    x[BATTERY] = battery_model.at_rest(par.battery)
    return x
