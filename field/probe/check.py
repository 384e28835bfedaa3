"""One line of a probe's table: expected and measured value, and the verdict."""

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from gate_racer.link.profile import Profile, RaceSchedule

T = TypeVar("T", Profile, RaceSchedule)


class CheckVerdict(StrEnum):
    """Result of a check; `UNKNOWN` where nothing was measured."""

    PASS = "pass"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    expected: str
    found: str
    verdict: CheckVerdict


def same(name: str, expected: object, found: object) -> Check:
    """Return a check that passes if both are equal."""
    verdict = CheckVerdict.PASS if expected == found else CheckVerdict.DIFFERS
    return Check(name, _shown(expected), _shown(found), verdict)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def number(name: str, expected: float, measured: float | None, tolerance: float) -> Check:
    """Return a check of a measured number against an expected one; None: not measured."""
    if measured is None:
        return unknown(name, f"{expected:.4g}")
    same = abs(measured - expected) <= tolerance
    return Check(name, f"{expected:.4g}", f"{measured:.4g}", CheckVerdict.PASS if same else CheckVerdict.DIFFERS)


def unknown(name: str, expected: object, why: str = "-") -> Check:
    """Return a check of what was not measured."""
    return Check(name, str(expected), why, CheckVerdict.UNKNOWN)


class Comparison(Generic[T]):
    """Checks of what was measured against expected settings, and settings with the measured values where they differ."""

    def __init__(self, expected: T, found: T):
        self.expected: T = expected
        self.found: T = found
        self.checks: list[Check] = []

    def number(self, name: str, field: str, measured: float | None, tolerance: float) -> None:
        """Check the number in a field, None: not measured; adopt it if it differs, and such settings are valid."""
        expected = getattr(self.expected, field)
        self.checks.append(number(name, float(expected), measured, tolerance))
        if measured is not None and self.checks[-1].verdict is CheckVerdict.DIFFERS:
            with contextlib.suppress(ValueError):
                self.found = replace(self.found, **{field: type(expected)(measured)})


def table(checks: list[Check]) -> str:
    """Return one line per check."""
    return "\n".join(f"  {c.verdict:8s} {c.name:32s} expected {c.expected:>14s}  found {c.found}" for c in checks)
