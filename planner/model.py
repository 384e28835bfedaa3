"""The two flight models as the optimiser sees them: a step, limits, a start, and what is to be kept small.

Both are one Runge-Kutta step with the quaternion normalised in it: without that the optimiser grows |q| to gain thrust.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from planner.compiled import compiled
from planner.options import Initial, PlanOptions
from vehicle.dynamics import RATES_U, RATES_X, ROTORS_U, ROTORS_X, rates, rk4, rotors
from vehicle.layout import Layout
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

P, Q, V, W, C = (RATES_X[name].at for name in "pqvwc")  # p, q, v, w stand at the same places in both models


@dataclass(frozen=True)
class Model:
    """`rates` (state p, q, v, w, c; inputs commanded rates and thrust) or `rotors` (p, q, v, w; four rotor thrusts)."""

    name: str
    x: Layout
    u: Layout
    f: Callable[..., Any]  # dx/dt (x, u, parameters)
    parameters: Any
    x_high: Array  # (NX,) of |x|; infinite where free
    u_low: Array  # (NU,)
    u_high: Array
    weight_level: Array  # (NU,) s per unit^2 s: keeps free inputs still
    weight_change: Array  # (NU,) s per unit^2 of change between intervals
    jump: float  # share of an input's range; two intervals that differ by more are worth halving
    nearby: float  # barrier that the solver begins with on a finer mesh: more blurs jumps, less takes more iterations
    substeps: int  # Runge-Kutta steps per interval
    thrust_per_input: float  # m/s^2 of the vehicle per unit of the thrust input(s)
    speed_max: float  # m/s
    thrust_rate_max: float  # m/s^3; infinite where only the lag limits it

    def step(self) -> ca.Function:
        """(x, u, dt) -> x one Runge-Kutta step later, compiled where that is possible."""
        x, u, dt = ca.SX.sym("x", self.x.size), ca.SX.sym("u", self.u.size), ca.SX.sym("dt")
        end = ca.vertcat(*rk4(self.f, ca.vertsplit(x), ca.vertsplit(u), self.parameters, dt))
        end = ca.vertcat(end[P], end[Q] / ca.norm_2(end[Q]), end[Q.stop :])
        return compiled(ca.Function(f"step_{self.name}", [x, u, dt], [end]))

    def thrust_rates(self, x, u, dt):
        """Rates of the thrust in m/s^3 from states x (NX, N) with inputs u (NU, N) held for dt (1, N); CasADi or numpy.

        Of lagging thrust the fastest in each interval, of rotor thrusts those between one interval and the next.
        """
        if self.name == "rates":
            return (u[3, :] - x[13, :]) / self.parameters.thrust_lag
        return 4 * self.thrust_per_input * 2 * (u[:, 1:] - u[:, :-1]) / ca.repmat(dt[:, 1:] + dt[:, :-1], 4, 1)

    def state(self, p, q, v, w, c) -> Array:
        """(NX, N) from p (3, N), q (4, N), v (3, N), w (3, N) and thrust c (N,)."""
        rows = [p, q, v, w] + ([c[None]] if self.name == "rates" else [])
        return np.vstack(rows)

    def inputs(self, w, c) -> Array:
        """(NU, N) that hold body rates w (3, N) and thrust c (N,), m/s^2."""
        u = np.vstack([w, c[None]]) if self.name == "rates" else np.tile(c / self.thrust_per_input, (4, 1))
        span = self.u_high - self.u_low
        return np.clip(u, (self.u_low + 0.01 * span)[:, None], (self.u_high - 0.01 * span)[:, None])

    def integrate(self, x: Array, u: Array, dt: Array, steps: int) -> Array:
        """(NX, N) states dt (N,) later, from x (NX, N) with u (NU, N) held."""
        rows = list(x)
        for _ in range(steps):
            rows = rk4(self.f, rows, list(u), self.parameters, dt / steps)
        result = np.array(rows)
        result[Q] /= np.linalg.norm(result[Q], axis=0)
        return result


def model(vehicle: Vehicle, options: PlanOptions) -> Model:
    """The model that the options ask for.

    Raises:
        UserError: `rotors` for a vehicle that has none.
    """
    w_high = options.reserve * np.array(vehicle.rate_max_rad_s)
    shared = {"speed_max": vehicle.speed_max_m_s, "thrust_rate_max": vehicle.thrust_rate_max_m_s3 or np.inf}
    if options.model == "rotors":
        par, one = vehicle.rotors_parameters, np.ones(4)
        assert vehicle.rotors is not None
        f_high = options.reserve * vehicle.rotors.thrust_max_n
        x_high = np.full(ROTORS_X.size, np.inf)
        x_high[W] = w_high
        return Model(
            name="rotors",
            x=ROTORS_X,
            u=ROTORS_U,
            f=rotors,
            parameters=par,
            x_high=x_high,
            u_low=0 * one,
            u_high=f_high * one,
            weight_level=0 * one,
            weight_change=1e-7 * one,
            jump=0.07,
            nearby=3e-6,
            substeps=1,
            thrust_per_input=4 / par.mass,
            **shared,
        )
    return Model(
        name="rates",
        x=RATES_X,
        u=RATES_U,
        f=rates,
        parameters=vehicle.rates_parameters,
        x_high=np.full(RATES_X.size, np.inf),
        u_low=np.array([*-w_high, vehicle.thrust_min]),
        u_high=np.array([*w_high, options.reserve * vehicle.thrust_max]),
        # Yaw is free almost everywhere, so the weight on rates decides it; it costs 1 % of time and halves the yaw rate.
        weight_level=np.array([1e-3, 1e-3, 1e-3, 0.0]),
        weight_change=np.full(4, 1e-5),
        jump=0.6,
        nearby=3e-5,
        substeps=2,
        thrust_per_input=1.0,
        **shared,
    )


def first_state(chosen: Model, start: Initial) -> Array:
    """(NX,) the state that a plan begins in."""
    p, q, v, w = (
        np.array(part)[:, None] for part in (start.position_m, start.q_wb, start.velocity_m_s, start.rates_rad_s)
    )
    return chosen.state(p, q, v, w, np.array([start.thrust_m_s2])).ravel()
