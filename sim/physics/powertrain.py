"""Powertrain of the grey-box quadrotor: Betaflight's rate loop, the ESCs' map to steady motor speeds, and the battery.

Three properties of Betaflight are modelled (Swift, Methods): the D term has a zero reference, cutting the throttle resets
the I term, and under saturation body rates have priority over thrust.
State of the rate loop (9,): integral (3), filtered rates (3), filtered angular acceleration (3).

Voltage under load after Bauersfeld and Scaramuzza (RA-L 2022, Swift's reference 46), and eq. (5).
State of the battery (3,): energy drawn in kJ/Ah, slow sag and ohmic drop of one cell in V. `par`: a `Battery`, or its record.
"""

import math
from typing import NamedTuple

import numpy as np

from gate_racer.sim.physics.jit import inlined
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Battery, FlightControllerParameters, Rotors

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
    roll = axis_torque(x, 0, omega, u, par, smooth, dt)
    pitch = axis_torque(x, 1, omega, u, par, smooth, dt)
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
    return integral, rate, acceleration, par.kp[k] * error + integral - par.kd[k] * acceleration


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
    signs = zip(rotors.x_m, rotors.y_m, rotors.torque_m, strict=True)
    return ControllerParameters(
        kp=_scaled(controller.kp, P_SCALE),
        ki=_scaled(controller.ki, I_SCALE),
        kd=_scaled(controller.kd, D_SCALE),
        integral_limit=controller.integral_limit,
        gyro_lowpass=2 * math.pi * controller.gyro_lowpass_hz,
        dterm_lowpass=2 * math.pi * controller.dterm_lowpass_hz,
        low=low,
        high=high,
        mix=tuple((-math.copysign(1, y), math.copysign(1, x), math.copysign(1, torque)) for x, y, torque in signs),
    )


def _scaled(gains: tuple[float, float, float], scale: float) -> tuple[float, float, float]:
    return gains[0] * scale, gains[1] * scale, gains[2] * scale


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
