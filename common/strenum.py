"""`enum.StrEnum`, also on Python 3.10, which ROS 2 Humble has."""

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """Enumeration whose members are texts, and print as their values."""

        __str__ = str.__str__


__all__ = ["StrEnum"]
