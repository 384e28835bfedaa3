"""Mixer saturation: collective thrust and torques share the range of the four rotors.

A rotor's thrust lies between zero and a quarter of the vehicle's maximum, so the torque available is proportional to the
distance of the collective thrust from the nearer limit: largest at half thrust, zero at full. At the lower limit rates have
priority and the thrust rises. At the upper limit either thrust has priority, as observed in the competition's simulator, or the
rates, as in a Betaflight mixer with airmode (4.4, `applyMixerAdjustment` in `src/main/flight/mixer.c`, which shares motor
outputs; here it is thrust). There the rate loop slews more slowly than the rotors alone could, and uses less of their range.
"""

from typing import NamedTuple

from gate_racer.sim.physics.jit import inlined
from gate_racer.vehicle.dynamics import RatesParameters, authority
from gate_racer.vehicle.vehicle import Vehicle


class MixedRates(NamedTuple):
    """Parameters of the `rates` model behind a mixer."""

    rates: RatesParameters
    slew_max: tuple[float, float, float]  # rad/s^2, at half thrust
    slew_rotors: tuple[float, float, float]  # rad/s^2, that use the whole range of the rotors
    thrust_max: float  # m/s^2
    lift: float  # m/s^2, thrust up to which torque demands may raise a lower commanded thrust
    thrust_yields: bool  # rates have priority at the upper limit too

    @classmethod
    def of(cls, vehicle: Vehicle) -> "MixedRates":
        """Return the parameters of a vehicle; without a mixer nothing saturates."""
        mixer, slew = vehicle.mixer, vehicle.slew_max
        yields = mixer is not None and mixer.thrust_yields
        rotors = vehicle.rotors.slew_max_rad_s2 if vehicle.rotors else slew
        lift = mixer.lift_m_s2 if mixer else 0.0
        return cls(vehicle.rates_parameters, slew, rotors, vehicle.thrust_max, lift, yields)


@inlined
def share(x, u, lag, slew):
    """Return the share of these slews (3), rad/s^2, that a command u (4) demands in a state x (14) with rate lags (3), s."""
    return (
        abs(u[0] - x[10]) / (lag[0] * slew[0])
        + abs(u[1] - x[11]) / (lag[1] * slew[1])
        + abs(u[2] - x[12]) / (lag[2] * slew[2])
    )


@inlined
def mixed(x, u, par):
    """Return the feasible command (4) for a command u (4) as RATES_U in a state x (14) as RATES_X."""
    ask = share(x, u, par.rates.rate_lag, par.slew_max)
    room = 1.0 if par.thrust_yields else min(1.0, max(0.0, authority(x[13], par.thrust_max)))
    k = 1.0 if ask <= room else room / ask
    used = share(x, u, par.rates.rate_lag, par.slew_rotors) if par.thrust_yields else ask
    taken = 0.5 * k * used * par.thrust_max  # m/s^2, at either limit
    thrust = max(u[3], min(taken, par.lift))
    if par.thrust_yields:
        thrust = min(thrust, par.thrust_max - taken)
    if ask <= room:
        return (u[0], u[1], u[2], thrust)
    return (x[10] + k * (u[0] - x[10]), x[11] + k * (u[1] - x[11]), x[12] + k * (u[2] - x[12]), thrust)
