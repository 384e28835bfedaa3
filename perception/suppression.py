"""Suppression of duplicates: of detections of the same gate the most complete one is kept."""

from collections.abc import Callable

from gate_racer.perception.detection import Detection


def suppress_duplicates(found: list[Detection], same_gate: Callable[[Detection, Detection], bool]) -> list[Detection]:
    """Return detections without duplicates, best first. More visible corners take precedence, then the higher score."""
    kept: list[Detection] = []
    for one in sorted(found, key=lambda d: (-int(d.visible.sum()), -d.score)):
        if not any(same_gate(one, other) for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda d: -d.score)
