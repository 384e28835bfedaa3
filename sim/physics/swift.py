"""The grey-box quadrotor of Swift (Kaufmann et al., Nature 620:982, 2023, Methods, eq. 1 to 6), one sub-step at a time.

World NED, body FRD, SI. Without air and with motors of constant speed it is the planner's `rotors` model (vehicle/dynamics.py).
Its powertrain: Betaflight's rate loop, the ESCs' map to steady motor speeds, and the battery. Of Betaflight four properties are
modelled: the D term has a zero reference, cutting the throttle resets the I term, the sum of P, I and D of each axis is limited
before it is mixed, and under saturation body rates have priority over thrust. Its feed-forward is 0, as it has to be for
set-points that come in steps. State of the rate loop (9,): integral (3), filtered rates (3), filtered angular acceleration (3).
Voltage under load after Bauersfeld and Scaramuzza (RA-L 2022, Swift's reference 46), and eq. (5). State of the battery (3,):
energy drawn in kJ/Ah, slow sag and ohmic drop of one cell in V. `par` of its functions: a `Battery`, or its record.
"""

import math
from typing import NamedTuple

import numpy as np

from gate_racer.sim.physics.jit import inlined
from gate_racer.sim.physics.lanes import add_scaled_with_four, runge_kutta, with_unit_attitude
from gate_racer.vehicle.dynamics import GRAVITY, RotorsParameters, layout
from gate_racer.vehicle.rotation import Array, as_vector, conjugate, rate, rotate
from gate_racer.vehicle.vehicle import Aero, Battery, FlightControllerParameters, MotorParameters, Rotors, Vehicle

# Betaflight's PTERM_SCALE 0.032029, ITERM_SCALE 0.244381 and DTERM_SCALE 0.000529: thousandths of the motor range per deg/s.
P_SCALE, I_SCALE, D_SCALE = (math.degrees(1) / 1000 * scale for scale in (0.032029, 0.244381, 0.000529))
DSHOT_RANGE, DSHOT_MAX = 2000.0, 2048.0  # DShot values: span of the throttle, and its upper end
CUT_THROTTLE = 0.01  # throttle, 0..1, at and below which the stick counts as at its stop


class ControllerParameters(NamedTuple):
    """Gains kp, ki, kd as fractions of the motor range per rad/s, rad and rad/s^2; filters and mixer."""

    kp: tuple[float, float, float]
    ki: tuple[float, float, float]
    kd: tuple[float, float, float]
    integral_limit: float
    sum_limit: tuple[float, float, float]  # of P, I and D, fractions of the motor range
    gyro_lowpass: float  # rad/s
    dterm_lowpass: float  # rad/s
    low: float  # DShot value of throttle 0
    high: float  # DShot value of throttle 1
    mix: tuple[tuple[float, float, float], ...]  # roll, pitch and yaw to motor outputs


@inlined
def smoothing(par, dt):
    """Return the first-order step gains of the gyro's and the D term's low-pass filter over dt, 0..1."""
    return 1 - math.exp(-par.gyro_lowpass * dt), 1 - math.exp(-par.dterm_lowpass * dt)


@inlined
def rate_loop(x, omega, u, par, smooth, dt):
    """Return the state (9) after dt and the motor outputs (4), 0..1.

    x: state (9). omega: body rates (3), rad/s, FRD. u: commanded rates (3) and throttle. smooth: from `smoothing`.
    """
    roll, pitch = axis_torque(x, 0, omega, u, par, smooth, dt), axis_torque(x, 1, omega, u, par, smooth, dt)
    yaw = axis_torque(x, 2, omega, u, par, smooth, dt)
    then = (roll[0], pitch[0], yaw[0], roll[1], pitch[1], yaw[1], roll[2], pitch[2], yaw[2])
    return then, motor_outputs((roll[3], pitch[3], yaw[3]), u[3], par)


@inlined
def axis_torque(x, k, omega, u, par, smooth, dt):
    """Return integral, filtered rate and filtered acceleration of axis k after dt, and the loop's torque demand about it."""
    rate = x[3 + k] + smooth[0] * (omega[k] - x[3 + k])
    acceleration = x[6 + k] + smooth[1] * ((rate - x[3 + k]) / dt - x[6 + k])
    error = u[k] - rate
    integral = min(max(x[k] + par.ki[k] * error * dt, -par.integral_limit), par.integral_limit)
    integral = 0.0 if u[3] <= CUT_THROTTLE else integral
    total = par.kp[k] * error + integral - par.kd[k] * acceleration
    return integral, rate, acceleration, min(max(total, -par.sum_limit[k]), par.sum_limit[k])


@inlined
def motor_demand(i, torque, par):
    """Return the share of the torque demands (3) in the output of motor i."""
    return par.mix[i][0] * torque[0] + par.mix[i][1] * torque[1] + par.mix[i][2] * torque[2]


@inlined
def motor_outputs(torque, throttle, par):
    """Return motor outputs (4), 0..1. Torque has priority: demands are scaled into the range, then the throttle is shifted."""
    a, b = motor_demand(0, torque, par), motor_demand(1, torque, par)
    c, d = motor_demand(2, torque, par), motor_demand(3, torque, par)
    low, high = min(a, b, c, d), max(a, b, c, d)
    spread = max(high - low, 1.0)
    push = min(max(throttle, -low / spread), 1.0 - high / spread)
    return a / spread + push, b / spread + push, c / spread + push, d / spread + push


@inlined
def steady_speed(output, volt, par, motors):
    """Return the steady motor speed, rad/s, at a motor output 0..1 and a voltage, V: eq. (6). motors: `MotorParameters`."""
    speed, command = motors.speed, par.low + output * (par.high - par.low)
    root = math.sqrt(command)
    linear = speed.offset_rad_s + speed.volt * volt + speed.sqrt * root + speed.linear * command
    return min(max(linear + speed.volt_sqrt * volt * root, motors.speed_min_rad_s), motors.speed_max_rad_s)


def controller_parameters(controller: FlightControllerParameters, rotors: Rotors) -> ControllerParameters:
    """Convert gains, filters and limits from Betaflight's units, and derive the mixer from the rotors' places and senses."""
    slope = DSHOT_MAX - controller.dshot_offset * DSHOT_RANGE
    low, high = (
        controller.dshot_offset * DSHOT_RANGE + (pwm - 1000) / 1000 * slope
        for pwm in (controller.throttle_min_pwm, controller.throttle_max_pwm)
    )
    tilt = controller.pidsum_limit / 1000
    signs = zip(rotors.x_m, rotors.y_m, rotors.torque_m, strict=True)
    return ControllerParameters(
        kp=as_vector(P_SCALE * np.array(controller.kp)),
        ki=as_vector(I_SCALE * np.array(controller.ki)),
        kd=as_vector(D_SCALE * np.array(controller.kd)),
        integral_limit=controller.integral_limit,
        sum_limit=(tilt, tilt, controller.pidsum_limit_yaw / 1000),
        gyro_lowpass=2 * math.pi * controller.gyro_lowpass_hz,
        dterm_lowpass=2 * math.pi * controller.dterm_lowpass_hz,
        low=low,
        high=high,
        mix=tuple((-math.copysign(1, y), math.copysign(1, x), math.copysign(1, torque)) for x, y, torque in signs),
    )


ENERGY, SLOW, FAST = range(3)
CUT_OFF_V = 3.0  # V, lower limit of one cell's voltage: the cut-off of a pack's protection


@inlined
def open_circuit(energy, par):
    """Return the open-circuit voltage of one cell, V: a cubic in the energy drawn, kJ/Ah."""
    return par.full_v + energy * (par.energy_linear + energy * (par.energy_square + energy * par.energy_cube))


@inlined
def voltage(x, par):
    """Return the voltage of the pack under load, V."""
    return par.cells * max(open_circuit(x[ENERGY], par) - x[SLOW] - x[FAST], CUT_OFF_V)


@inlined
def sags(par, dt):
    """Return the first-order step gains 1 - exp(-dt / tau) of the slow and the fast voltage drop."""
    return 1 - np.exp(-dt / par.slow_s), 1 - np.exp(-dt / par.fast_s)


@inlined
def discharged(x, power, par, sag, dt):
    """Return the state (3) after `power` (W, whole pack) was drawn for dt; exact at constant power. `sag`: from `sags`."""
    share = power / (par.cells * par.capacity_ah)  # W/Ah
    current = power / voltage(x, par)  # A through every cell
    return (
        x[ENERGY] + share * dt * 1e-3,
        x[SLOW] + sag[0] * (par.power_v * share - x[SLOW]),
        x[FAST] + sag[1] * (par.resistance_ohm * current - x[FAST]),
    )


def battery_at_rest(par: Battery) -> Array:
    """Return the state (3,) before the run, with the energy drawn at which the open-circuit voltage is `start_v`."""
    from scipy.optimize import brentq  # imported late: takes 0.3 s, and only a vehicle with a battery needs it

    drawn = brentq(lambda energy: par.cells * open_circuit(energy, par) - par.start_v, 0.0, 5.0)
    return np.array([drawn, 0.0, 0.0])


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
    off = (omega_ss[0] - x[13], omega_ss[1] - x[14], omega_ss[2] - x[15], omega_ss[3] - x[16])
    dm = (off[0] / k_mot, off[1] / k_mot, off[2] / k_mot, off[3] / k_mot)
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
    step = runge_kutta(derivative, add_scaled_with_four, STILL, x, omega_ss, residual, par, dt)
    y = with_unit_attitude(add_scaled_with_four(x, 1.0, step))
    return y, then, discharged(pack, motor_power(y[13:], par.motors), par.battery, share[1], dt)


def parameters(vehicle: Vehicle) -> SwiftParameters:
    """Return the parameters of a vehicle. Raises UserError when it has no grey-box sections."""
    motors, battery, controller, aerodynamics = vehicle.require_grey_box()
    rotors = vehicle.rotors_parameters
    assert vehicle.rotors is not None
    loop = controller_parameters(controller, vehicle.rotors)
    return SwiftParameters(rotors, motors, vehicle.hover_sqr, aerodynamics, loop, battery)


def at_rest(par: SwiftParameters) -> Array:
    """Return the state as `X` at the origin, level, with motors off and the battery at its starting voltage."""
    x = np.zeros(X.size)
    x[3] = 1.0
    x[BATTERY] = battery_at_rest(par.battery)
    return x
