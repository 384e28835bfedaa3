"""SciPy's rotations, loaded at first use: no command waits for SciPy until it computes."""

from functools import cache
from typing import Any


@cache
def rotation() -> Any:
    """Return the class `scipy.spatial.transform.Rotation`."""
    from scipy.spatial.transform import Rotation

    return Rotation
