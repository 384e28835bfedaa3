"""Mixer saturation: collective thrust and torques share the range of the four rotors.

A rotor's thrust lies between zero and a quarter of the vehicle's maximum, so the torque available is proportional to the
distance of the collective thrust from the nearer limit: largest at half thrust, zero at full. At the upper limit thrust has
priority over rates; at the lower limit rates have priority and the thrust rises, as observed in the competition's simulator
(a Betaflight mixer with airmode differs at the upper limit: it lowers the thrust).
"""

from typing import NamedTuple

from sim.physics.jit import inlined
from vehicle.dynamics import RatesParameters, authority
from vehicle.vehicle import Vehicle


class MixedRates(NamedTuple):
    """Parameters of the `rates` model behind a mixer."""

    rates: RatesParameters
    slew_max: tuple[float, float, float]  # rad/s^2, at half thrust
    thrust_max: float  # m/s^2
    lift: float  # m/s^2, thrust up to which torque demands may raise a lower commanded thrust

    @classmethod
    def of(cls, vehicle: Vehicle) -> "MixedRates":
        """Return the parameters of a vehicle with a mixer."""
        lift = vehicle.mixer.lift_m_s2 if vehicle.mixer else 0.0
        return cls(vehicle.rates_parameters, vehicle.slew_max, vehicle.thrust_max, lift)


@inlined
def mixed(x, u, par):
    """Return the feasible command (4) for a command u (4) as RATES_U in a state x (14) as RATES_X."""
    lag, slew = par.rates.rate_lag, par.slew_max
    ask = (
        abs(u[0] - x[10]) / (lag[0] * slew[0])
        + abs(u[1] - x[11]) / (lag[1] * slew[1])
        + abs(u[2] - x[12]) / (lag[2] * slew[2])
    )
    room = min(1.0, max(0.0, authority(x[13], par.thrust_max)))
    k = 1.0 if ask <= room else room / ask
    raised = max(u[3], min(0.5 * k * ask * par.thrust_max, par.lift))
    if ask <= room:
        return (u[0], u[1], u[2], raised)
    return (x[10] + k * (u[0] - x[10]), x[11] + k * (u[1] - x[11]), x[12] + k * (u[2] - x[12]), raised)
