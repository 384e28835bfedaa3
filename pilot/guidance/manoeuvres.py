"""Manoeuvres for `identify-vehicle` that `run-mpc --excite` flies, and their names on the command line."""

from dataclasses import dataclass

from gate_racer.vehicle.errors import UserError

THROTTLES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.265, 0.32, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # levels of the thrust curve
AXES = ("roll", "pitch", "yaw")
SPEED = "speed"


@dataclass(frozen=True)
class Manoeuvres:
    """Requested manoeuvres."""

    throttles: tuple[float, ...] = THROTTLES
    axes: tuple[int, ...] = (0, 1, 2)
    speed: bool = True

    def __str__(self) -> str:
        """Return the text that `parse_manoeuvres` reads."""
        parts = [f"{u:g}" for u in self.throttles] + [AXES[axis] for axis in self.axes] + [SPEED] * self.speed
        return ",".join(parts)


def parse_manoeuvres(text: str) -> Manoeuvres:
    """Parse "all", or a comma-separated list of throttles, axes and "speed": "0.7,0.8,yaw,speed".

    Raises:
        UserError: the text contains anything else.
    """
    if text == "all":
        return Manoeuvres()
    throttles, axes, speed = list[float](), list[int](), False
    for part in text.split(","):
        try:
            if part in AXES:
                axes.append(AXES.index(part))
            elif part == SPEED:
                speed = True
            elif 0 <= (u := float(part)) <= 1:
                throttles.append(u)
            else:
                raise ValueError
        except ValueError:
            known = f"all, a throttle from 0 to 1, {', '.join(AXES)} and {SPEED}"
            raise UserError(f"--excite {text}: {part!r} is not a manoeuvre; known: {known}") from None
    return Manoeuvres(tuple(throttles), tuple(axes), speed)
