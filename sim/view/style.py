"""`RenderingStyle`: appearance of the rendered world, as data, so that perception can be tested and trained on many.

A gate's nominal squares are the track's `opening_m` and the outer square of the same frame. The outline, `outline_m` wide,
straddles both: the visible hole is `opening_m - outline_m` wide. The track's `outer_m` is the size sent in the map message,
2.72 m, which is that of the silhouette with its outline.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.common.config import load_named
from gate_racer.common.settings import Limited, limited

FOLDER = Path(__file__).parent / "styles"
WORLDS = ("neon", "hangar")


@dataclass(frozen=True)
class RenderingStyle(Limited):
    """Appearance of the rendered world. Brightnesses are factors on those of the real frames."""

    name: str
    source: str
    # neon; hangar; course: the hangar for a low course, else neon; any: drawn with the seed
    world: str = limited(choices=(*WORLDS, "course", "any"))
    samples: int = limited(least=0)  # multisampling per pixel; 0: none, as in the real builds
    exposure_s: float = limited(least=0.0)  # exposure time, centred on the frame's time; 0: no motion blur
    jpeg_quality: int = limited(least=1, most=100)  # chroma subsampling is always 4:2:0
    outline_m: float = limited(least=0.0)  # width of the line on the gates' edges
    depth_m: float = limited(least=0.0)  # of the gates; fitted to 50 in real frames: less than the specified 0.26 m
    ambient: float = limited(least=0.0)  # ambient light in the hall
    lamps: float = limited(least=0.0)  # brightness of ceiling and start lamps
    glow: float = limited(least=0.0)  # brightness of light by gates and lamps on the floor
    corridor: float = limited(least=0.0)  # brightness of the ribbon's fill; its border lines are unaffected
    corridor_half_m: float = limited(positive=True)  # half-width of the ribbon
    flicker: float = limited(least=0.0, most=0.99)  # relative amplitude of the 2 Hz flicker of the ambient light
    variation: float = limited(least=0.0)  # standard deviation of log brightness between flights
    softness_px: float = limited(0.0, least=0.0)  # standard deviation of the engine's anti-aliasing blur
    bloom: float = limited(0.0, least=0.0)  # fraction of bright light that is scattered around it
    gamma: float = limited(1.0, positive=True)  # exponent relative to the real frames; above 1 is darker
    # rolling shutter: delay from first to last row; the middle row is on time
    readout_s: float = limited(0.0, least=0.0)

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
