"""One line of a probe's table: expected and measured value, and the verdict."""

import contextlib
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from gate_racer.common.strenum import StrEnum
from gate_racer.link.profile import Profile, RaceSchedule

T = TypeVar("T", Profile, RaceSchedule)


class CheckVerdict(StrEnum):
    """Result of a check; `UNKNOWN` where nothing was measured."""

    PASS = "pass"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Check:
    name: str
    expected: str
    found: str
    verdict: CheckVerdict


def judged(good: bool) -> CheckVerdict:
    return CheckVerdict.PASS if good else CheckVerdict.DIFFERS


def same(name: str, expected: object, found: object) -> Check:
    shown, other = (", ".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in (expected, found))
    return Check(name, shown, other, judged(expected == found))


def number(name: str, expected: float, measured: float | None, tolerance: float) -> Check:
    if measured is None:
        return unknown(name, f"{expected:.4g}")
    return Check(name, f"{expected:.4g}", f"{measured:.4g}", judged(abs(measured - expected) <= tolerance))


def unknown(name: str, expected: object, why: str = "-") -> Check:
    return Check(name, str(expected), why, CheckVerdict.UNKNOWN)


class Comparison(Generic[T]):
    """Checks of what was measured against expected settings, and settings with the measured values where they differ."""

    def __init__(self, expected: T, found: T):
        self.expected: T = expected
        self.found: T = found
        self.checks: list[Check] = []

    def number(self, name: str, field: str, measured: float | None, tolerance: float) -> None:
        expected = getattr(self.expected, field)
        self.checks.append(number(name, float(expected), measured, tolerance))
        if measured is not None and self.checks[-1].verdict is CheckVerdict.DIFFERS:
            with contextlib.suppress(ValueError):
                self.adopt(field, type(expected)(measured))

    def flag(self, name: str, field: str, measured: bool | None) -> None:
        """Check the flag in a field, None: not measured; adopt what was measured."""
        expected = getattr(self.expected, field)
        self.checks.append(unknown(name, expected) if measured is None else same(name, expected, measured))
        if measured is not None:
            self.adopt(field, measured)

    def adopt(self, field: str, value: Any) -> None:
        self.found = replace(self.found, **{field: value})


def table(checks: list[Check]) -> str:
    return "\n".join(f"  {c.verdict:8s} {c.name:32s} expected {c.expected:>14s}  found {c.found}" for c in checks)
