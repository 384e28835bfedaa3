"""What four rotors make of a command: thrust and torques share the rotors' range.

A rotor's thrust lies between nothing and a quarter of the vehicle's, so what turns the vehicle is left between its thrust and
the nearer end: all of it at half thrust, nothing at full. At the lower end the rates are kept and the thrust rises. At the upper
end one of two gives way: the rates, as was seen of the competition's simulator, or the thrust, as Betaflight has it with airmode
(4.4, `applyMixerAdjustment` in `src/main/flight/mixer.c`; its rotors share by motor output, here it is by thrust). There a rate
loop behind slow motors turns more slowly than the rotors alone could, and takes so much less of their range.
"""

from typing import NamedTuple

from sim.physics.jit import inlined
from vehicle.dynamics import RatesParameters, authority
from vehicle.vehicle import Vehicle


class MixedRates(NamedTuple):
    """The `rates` model behind a mixer."""

    rates: RatesParameters
    slew_max: tuple[float, float, float]  # rad/s^2, at half thrust
    slew_rotors: tuple[float, float, float]  # rad/s^2, that take the rotors' whole range
    thrust_max: float  # m/s^2
    lift: float  # m/s^2, that turning adds at most where the commanded thrust is less
    thrust_yields: bool  # at the upper end

    @classmethod
    def of(cls, vehicle: Vehicle) -> "MixedRates":
        mixer, slew = vehicle.mixer, vehicle.slew_max
        yields = mixer is not None and mixer.thrust_yields
        rotors = vehicle.rotors.slew_max_rad_s2 if vehicle.rotors else slew
        lift = mixer.lift_m_s2 if mixer else 0.0
        return cls(vehicle.rates_parameters, slew, rotors, vehicle.thrust_max, lift, yields)


@inlined
def share(x, u, lag, slew):
    """Of these slews (3), what the rates of a command (4) ask for in a state (14)."""
    return (
        abs(u[0] - x[10]) / (lag[0] * slew[0])
        + abs(u[1] - x[11]) / (lag[1] * slew[1])
        + abs(u[2] - x[12]) / (lag[2] * slew[2])
    )


@inlined
def mixed(x, u, par):
    """The command (4) that the rotors can follow, of a command (4) as RATES_U, in a state (14) as RATES_X."""
    ask = share(x, u, par.rates.rate_lag, par.slew_max)
    room = 1.0 if par.thrust_yields else min(1.0, max(0.0, authority(x[13], par.thrust_max)))
    k = 1.0 if ask <= room else room / ask
    used = share(x, u, par.rates.rate_lag, par.slew_rotors) if par.thrust_yields else ask
    taken = 0.5 * k * used * par.thrust_max  # at either end of the range
    thrust = max(u[3], min(taken, par.lift))
    if par.thrust_yields:
        thrust = min(thrust, par.thrust_max - taken)
    if ask <= room:
        return (u[0], u[1], u[2], thrust)
    return (x[10] + k * (u[0] - x[10]), x[11] + k * (u[1] - x[11]), x[12] + k * (u[2] - x[12]), thrust)
