"""What a user may ask of a plan."""

from dataclasses import dataclass

from vehicle.errors import UserError

MODELS = ("rates", "rotors")


@dataclass(frozen=True)
class PlanOptions:
    """Settings of `plan-track`.

    `reserve` keeps thrust and body rates for the controller, `margin_m` lies between the contact radius and each opening's
    edge, and the next gate's centre stays in the camera's view over the fraction `see` of each leg.
    """

    model: str = "rates"
    laps: int = 1
    reserve: float = 0.75
    margin_m: float = 0.15
    see: float = 0.5
    see_corners: bool = False  # the four corners of the opening too, not only its centre
    bounds_clear: bool = True  # the body, not only its centre, stays inside the track's bounds

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UserError(f"--model {self.model}: known are {' and '.join(MODELS)}")
        if not 0.2 <= self.reserve <= 1:
            raise UserError(f"--reserve {self.reserve:g}: must lie between 0.2 and 1")
        if not 0 <= self.see <= 0.8:
            raise UserError(f"--see {self.see:g}: must lie between 0 and 0.8")
        if not 0 <= self.margin_m < 1:
            raise UserError(f"--margin {self.margin_m:g}: must lie between 0 and 1 m")
