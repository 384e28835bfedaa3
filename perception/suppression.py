"""Each gate once: of detections of the same gate the one with most to show is kept."""

from collections.abc import Callable

from perception.detection import Detection


def suppress_duplicates(found: list[Detection], same_gate: Callable[[Detection, Detection], bool]) -> list[Detection]:
    """Detections without repeats, best first. More visible corners go first, and of as many the higher score."""
    kept: list[Detection] = []
    for one in sorted(found, key=lambda d: (-int(d.visible.sum()), -d.score)):
        if not any(same_gate(one, other) for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda d: -d.score)
