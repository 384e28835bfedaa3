"""`RenderingStyle`: appearance of the rendered world, as data, so that perception can be tested and trained on many.

A gate's nominal squares are the track's `opening_m` and the outer square of the same frame. The outline, `outline_m` wide,
straddles both: the visible hole is `opening_m - outline_m` wide. The track's `outer_m` is the size sent in the map message,
2.72 m, which is that of the silhouette with its outline.
"""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from gate_racer.common.config import load_named

FOLDER = Path(__file__).parent / "styles"
WORLDS = ("neon", "hangar")


@dataclass(frozen=True)
class RenderingStyle:
    """Appearance of the rendered world. Brightnesses are factors on those of the real frames."""

    name: str
    source: str
    world: str  # neon; hangar; course: the hangar for a low course, else neon; any: drawn with the seed
    samples: int  # multisampling per pixel; 0: none, as in the real builds
    exposure_s: float  # exposure time, centred on the frame's time; 0: no motion blur
    jpeg_quality: int  # 1 to 100; chroma subsampling is always 4:2:0
    outline_m: float  # width of the line on the gates' edges
    depth_m: float  # depth of the gates; fitted to 50 gates in real frames, it is less than the specified 0.26 m
    ambient: float  # ambient light in the hall
    lamps: float  # brightness of ceiling and start lamps
    glow: float  # brightness of light by gates and lamps on the floor
    corridor: float  # brightness of the ribbon's fill; its border lines are unaffected
    corridor_half_m: float  # half-width of the ribbon
    flicker: float  # relative amplitude of the 2 Hz flicker of the ambient light
    variation: float  # standard deviation of log brightness between flights
    softness_px: float = 0.0  # standard deviation of the engine's anti-aliasing blur
    bloom: float = 0.0  # fraction of bright light that is scattered around it
    gamma: float = 1.0  # exponent relative to the real frames; above 1 is darker
    readout_s: float = 0.0  # rolling shutter: delay from first to last row; the middle row is on time

    def __post_init__(self) -> None:
        if self.world not in (*WORLDS, "course", "any"):
            raise ValueError(f"world: {self.world!r} is none of {', '.join((*WORLDS, 'course', 'any'))}")
        if not 1 <= self.jpeg_quality <= 100:
            raise ValueError(f"jpeg_quality: {self.jpeg_quality} must lie between 1 and 100")
        if not 0 <= self.flicker < 1 or not self.corridor_half_m > 0 or not self.gamma > 0:
            raise ValueError("0 <= flicker < 1, corridor_half_m > 0 and gamma > 0 must hold")
        for one in fields(self):
            if isinstance(value := getattr(self, one.name), int | float) and value < 0:
                raise ValueError(f"{one.name}: {value:g} must not be negative")

    def varied(self, seed: int) -> "RenderingStyle":
        """Return the style of one flight, with world and brightnesses drawn with the seed."""
        rng = np.random.default_rng([seed, 1])
        world = str(rng.choice(WORLDS)) if self.world == "any" else self.world
        lights = {
            light: getattr(self, light) * math.exp(self.variation * rng.standard_normal())
            for light in ("ambient", "lamps", "glow", "corridor")
        }
        return replace(self, world=world, variation=0.0, **lights)


def load_style(name: str) -> RenderingStyle:
    """Load a style by name (`race`) or path of a YAML file. Raises UserError for an unknown style or a malformed file."""
    return load_named(name, FOLDER, RenderingStyle, "rendering style")
