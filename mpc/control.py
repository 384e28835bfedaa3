"""What a controller answers: a command and how it came about, and what the flight has shown of its vehicle."""

import enum
from dataclasses import dataclass

from vehicle.rotation import Array


class Source(enum.StrEnum):
    """Where a command comes from, best first."""

    SOLVED = "solved"
    SHIFTED = "shifted previous solution"
    SPARE = "spare solver"
    GEOMETRIC = "geometric controller"
    LEVEL = "level and slow"


@dataclass(frozen=True, slots=True)
class Control:
    """One command in SI and how it came about."""

    u: Array  # (4,) body rates rad/s and thrust m/s^2
    q_wb: Array  # (4,) the attitude, when the command acts, from which a loop on attitude would ask for these rates
    source: Source
    reason: str  # why it is not a solution; empty when it is
    status: int  # of the solver
    solve_s: float  # of the solver, and
    step_s: float  # of everything from the state to the command
    theta: float  # s of plan time
    reference: Array  # (14,) p, q, v, u of the plan at theta


@dataclass(frozen=True, slots=True)
class Learned:
    """What a flight has shown of its vehicle, against the vehicle's file."""

    thrust_scale: float
    drag_scale: float
    lift_1_m: float  # thrust gained per square of the speed across the rotors
    delay_s: float  # from a command to where the IMU's stamps show it
    rate_lag_scale: float
