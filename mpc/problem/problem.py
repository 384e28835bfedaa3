"""The optimal-control problem of a controller, in one form for all back-ends: state, cost, constraints, limits.

References and model parameters are stage parameters, so that one generated solver serves every vehicle, plan and set of weights.
"""

from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np

from gate_racer.mpc.model import step, unpack
from gate_racer.mpc.problem import terms
from gate_racer.mpc.problem.formulations import FORMULATIONS, Formulation
from gate_racer.mpc.problem.settings import Settings
from gate_racer.mpc.problem.stage import NP, NR, REFERENCE, Stage, SymbolBlocks
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.layout import Layout
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle


@dataclass(frozen=True)
class Symbols:
    """The problem as CasADi expressions."""

    x: ca.SX
    u: ca.SX
    p: ca.SX
    after: ca.SX  # successor of x, one step of the horizon later
    y: ca.SX  # stage residual
    y_end: ca.SX  # terminal residual
    h: ca.SX  # soft constraints, -1 <= h <= 1, at every stage


@dataclass(frozen=True)
class Problem:
    """Optimal-control problem of a formulation with its settings."""

    settings: Settings

    @property
    def formulation(self) -> Formulation:
        """Formulation of the controller that the settings name."""
        return FORMULATIONS[self.settings.controller]

    @property
    def name(self) -> str:
        """Name of the formulation."""
        return self.formulation.name

    @property
    def x(self) -> Layout:
        """Layout of the state."""
        return self.formulation.x

    @property
    def u(self) -> Layout:
        """Layout of the input."""
        return self.formulation.u

    @cached_property
    def gate_corridor(self) -> terms.GateCorridor | None:
        """Soft constraint to the next opening, or None if the formulation has none."""
        return self.formulation.gate_corridor(self.settings.weights)

    @cached_property
    def _vectors(self) -> tuple[ca.SX, ca.SX, ca.SX]:
        """Symbols of state, input and stage parameters."""
        return ca.SX.sym("x", self.x.size), ca.SX.sym("u", self.u.size), ca.SX.sym("p", NP)

    @cached_property
    def _stage(self) -> Stage:
        x, u, p = self._vectors
        return Stage(_blocks(self.x, x), _blocks(self.u, u), _blocks(REFERENCE, p), unpack(p[NR:]))

    @cached_property
    def symbols(self) -> Symbols:
        """Model, residuals and constraints as expressions in state, input and stage parameters."""
        (x, u, p), stage = self._vectors, self._stage
        dt = self.settings.horizon.step_s
        after = step(ca.vertsplit(x)[: RATES_X.size], ca.vertsplit(u), stage.model, dt)
        after += self.formulation.progress_after(stage, dt)
        y, y_end = (ca.vertcat(*(term.residual(stage) for term, _ in weighted)) for weighted in self._weighted)
        h = self.gate_corridor.value(stage) if self.gate_corridor else ca.SX(0, 1)
        return Symbols(x, u, p, ca.vertcat(*after), y, y_end, h)

    @cached_property
    def _weighted(self) -> tuple[list[tuple[terms.Cost, float]], list[tuple[terms.Cost, float]]]:
        """Stage and terminal terms with their weights, without those of weight zero.

        The terminal velocity is weighted towards the plan's, from which the rest of the race is known to be feasible.
        """
        end = self.settings.weights.end_velocity
        stage = [(term, term.weight) for term in self.formulation.costs(self.settings.weights)]
        last = [(term, max(end, w) if isinstance(term, terms.Velocity) else w) for term, w in stage if term.at_end]
        return [pair for pair in stage if pair[1]], [pair for pair in last if pair[1]]

    @cached_property
    def weights(self) -> tuple[Array, Array]:
        """Diagonals of the stage and the terminal weight matrix."""
        stage, end = (
            np.concatenate([np.full(term.residual(self._stage).numel(), weight) for term, weight in weighted])
            for weighted in self._weighted
        )
        return stage, end

    def input_limits(self, vehicle: Vehicle) -> tuple[Array, Array]:
        """Return lower and upper bounds (u.size,) of the inputs.

        Thrust keeps a margin to both of its limits: saturated rotors give no torque, so the rate loop would change the thrust
        instead.
        """
        rate, share = np.array(vehicle.rate_max_rad_s), self.settings.thrust_share
        least, most = max(vehicle.thrust_min, (1 - share) * vehicle.thrust_max), share * vehicle.thrust_max
        pace = self.formulation.progress_input_limits(self.settings.pace_change_max)
        return np.array([*-rate, least, *np.negative(pace)]), np.array([*rate, most, *pace])


def _blocks(names: Layout, z: ca.SX) -> SymbolBlocks:
    return {name: z[field.at] for name, field in names.items()}
