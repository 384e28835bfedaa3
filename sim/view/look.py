"""`Look`: how the drawn world looks, as data, so that perception can be tried and trained on many.

A gate's nominal squares are the track's `opening_m` and the outer square of the same frame. The outline, `outline_m` wide,
straddles both: the hole that is seen through is `opening_m - outline_m` wide. The track's `outer_m` is the size on the wire,
2.72 m, which is that of the silhouette, outline included.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vehicle.config import load_named

FOLDER = Path(__file__).parent / "looks"
WORLDS = ("neon", "hangar")


@dataclass(frozen=True)
class Look:
    """Brightnesses are factors on the look of the real frames; 1 is as seen there."""

    name: str
    source: str
    world: str  # neon, hangar, course: a low course gets the hangar, any other the neon room; or any: the seed decides
    samples: int  # per pixel; 0 leaves staircases, as the real builds do
    exposure_s: float  # the shutter is open so long, centred on the frame's time; 0: no motion blur
    jpeg_quality: int  # 1 to 100; the chroma is always 4:2:0
    outline_m: float  # width of the gates' edge line
    depth_m: float  # of the gates; a box fitted to 50 gates in real frames is thinner than the wire's 0.26 m
    ambient: float  # light in the hall
    lamps: float  # ceiling lamps and start lamps
    glow: float  # light of gates and lamps on the floor
    corridor: float  # fill of the cyan ribbon; its border lines stay
    corridor_half_m: float  # half-width of the ribbon
    flicker: float  # share by which the hall's light swings, with some 2 Hz
    variation: float  # standard deviation of the logarithm of every brightness, from flight to flight
    softness_px: float = 0.0  # standard deviation of the blur that an engine's anti-aliasing leaves
    bloom: float = 0.0  # share of bright light that spreads around it
    gamma: float = 1.0  # of the image over that of the real frames; above 1 is darker
    readout_s: float = 0.0  # rolling shutter: the last row is exposed so much after the first; the middle one on time

    def __post_init__(self) -> None:
        if self.world not in (*WORLDS, "course", "any"):
            raise ValueError(f"world: {self.world!r} is none of {', '.join((*WORLDS, 'course', 'any'))}")
        if not 1 <= self.jpeg_quality <= 100:
            raise ValueError(f"jpeg_quality: {self.jpeg_quality} does not lie between 1 and 100")
        if self.samples < 0 or not 0 <= self.flicker < 1 or not self.corridor_half_m > 0:
            raise ValueError("samples >= 0, 0 <= flicker < 1 and corridor_half_m > 0 must hold")
        if min(self.exposure_s, self.readout_s, self.outline_m, self.depth_m, self.variation) < 0:
            raise ValueError("exposure_s, readout_s, outline_m, depth_m and variation must not be negative")
        if min(self.softness_px, self.bloom) < 0 or self.gamma <= 0:
            raise ValueError("softness_px and bloom must not be negative, and gamma must be positive")
        if min(self.ambient, self.lamps, self.glow, self.corridor) < 0:
            raise ValueError("ambient, lamps, glow and corridor must not be negative")

    def varied(self, seed: int) -> "Look":
        """The look of one flight: what is left to chance is drawn from the seed."""
        rng = np.random.default_rng([seed, 1])
        world = str(rng.choice(WORLDS)) if self.world == "any" else self.world
        lights = {
            light: getattr(self, light) * math.exp(self.variation * rng.standard_normal())
            for light in ("ambient", "lamps", "glow", "corridor")
        }
        return replace(self, world=world, variation=0.0, **lights)


def load_look(name: str) -> Look:
    """The look of a name (`race`) or of a YAML file's path.

    Raises:
        UserError: no such look, or a malformed file.
    """
    return load_named(name, FOLDER, Look, "look")
