"""One line of a probe's table: expected and measured value, and the verdict."""

from dataclasses import dataclass
from enum import StrEnum


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


def table(checks: list[Check]) -> str:
    """Return one line per check."""
    return "\n".join(f"  {c.verdict:8s} {c.name:32s} expected {c.expected:>14s}  found {c.found}" for c in checks)
