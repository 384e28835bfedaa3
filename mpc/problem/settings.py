"""Settings of a controller, from its YAML file: formulation, horizon, weights and limits."""

from dataclasses import dataclass, replace
from pathlib import Path

from gate_racer.mpc.problem.formulations import FORMULATIONS
from gate_racer.mpc.problem.terms import Weights
from gate_racer.vehicle.config import load
from gate_racer.vehicle.errors import UserError

FOLDER = Path(__file__).parents[1]
CONTROLLERS = tuple(FORMULATIONS)
SHARE_DIGITS = 3  # of a plan's share of thrust: optima exceed their bounds by rounding


@dataclass(frozen=True)
class Horizon:
    """Horizon of equal intervals."""

    steps: int  # number of intervals N
    step_s: float  # s

    def __post_init__(self) -> None:
        if self.steps < 2 or self.step_s <= 0:
            raise ValueError("steps must be at least 2, step_s positive")


@dataclass(frozen=True)
class Settings:
    """Contents of `mpc/<controller>.yaml`."""

    controller: str
    horizon: Horizon
    weights: Weights
    pace_max: float  # -, largest d(progress)/dt, 1 as planned
    pace_change_max: float  # 1/s, largest rate of change of the pace
    thrust_share: float  # -, largest commanded thrust over the vehicle's; the same margin is kept above zero
    thrust_share_max: float  # -, likewise for plans that use more
    headroom: float  # -, fraction of that thrust available for the plan's line; the rest is for feedback

    def __post_init__(self) -> None:
        if self.controller not in CONTROLLERS:
            raise ValueError(f"controller must be one of {', '.join(CONTROLLERS)}")
        if self.pace_max < 1 or self.pace_change_max <= 0:
            raise ValueError("pace_max must be at least 1, pace_change_max positive")
        if not all(0 < share <= 1 for share in (self.thrust_share, self.thrust_share_max, self.headroom)):
            raise ValueError("thrust_share, thrust_share_max and headroom must lie in (0, 1]")

    def granting(self, share: float) -> "Settings":
        """Return the settings for a plan that uses this share of the vehicle's thrust."""
        share = min(round(share, SHARE_DIGITS), self.thrust_share_max)
        return replace(self, thrust_share=max(self.thrust_share, share))


def load_settings(controller: str = "tracking") -> Settings:
    """Load the settings of a controller by name, or from a YAML file.

    Raises:
        UserError: unknown controller, or a missing or malformed file.
    """
    if controller in CONTROLLERS:
        return load(FOLDER / f"{controller}.yaml", Settings)
    if not Path(controller).suffix:
        raise UserError(f"no controller {controller!r}; known: {', '.join(CONTROLLERS)}")
    return load(controller, Settings)
