"""Outputs of a controller: a command with its diagnostics, and the vehicle parameters estimated in flight."""

import enum
from dataclasses import dataclass

from gate_racer.vehicle.rotation import Array


class Source(enum.StrEnum):
    """Source of a command, in order of preference."""

    SOLVED = "solved"
    SHIFTED = "shifted previous solution"
    SPARE = "spare solver"
    GEOMETRIC = "geometric controller"
    LEVEL = "level and slow"


@dataclass(frozen=True, slots=True)
class Control:
    """One command, in SI units, with its source and diagnostics."""

    u: Array  # (4,) body rates, rad/s, and specific thrust, m/s^2
    q_wb: Array  # (4,) wxyz, attitude setpoint for which a proportional attitude loop commands these rates
    source: Source
    reason: str  # why the solver's solution was not used; empty if it was
    status: int  # status of the solver, 0 for success, -1 if it was not called
    solve_s: float  # s, time of the solver
    step_s: float  # s, time from the state to the command
    theta: float  # s of plan time, progress
    reference: Array  # (14,) p, q, v, u of the plan at theta


@dataclass(frozen=True, slots=True)
class EstimatedParameters:
    """Parameters of the vehicle estimated in flight; scales are relative to the vehicle's file."""

    thrust_scale: float  # -
    drag_scale: float  # -
    lift_1_m: float  # 1/m, thrust gained per squared speed across the rotors
    delay_s: float  # s, from a command to its effect by the IMU's timestamps
    rate_lag_scale: float  # -
