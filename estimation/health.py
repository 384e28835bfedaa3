"""How an estimator is doing: counts of what it refused, the normalised innovations, and whether it is lost.

NIS = r' S^-1 r / M of the gates used has mean 1 in a consistent filter. While images show gates that nothing explains,
doubt grows, and with it the reach of the association, until one of them fits: so a filter that was led astray finds back.
"""

from dataclasses import dataclass

NIS_GATES = 30  # gates over which the mean NIS is formed
DOUBT_AFTER_S, DOUBT_AFTER = 0.3, 4  # so long and so many images with gates, none of which fits
DOUBT_P, DOUBT_V = 0.3, 0.3  # m and m/s of more doubt per such image
LOST_M = 0.75  # standard deviation of the position beyond which a gate can be missed


@dataclass
class Health:
    """Counts since the start."""

    samples_refused: int = 0  # IMU and attitude samples: no numbers, absurd, old or repeated
    gaps: int = 0  # stretches without IMU that were flown through
    images_late: int = 0  # older than the last one used, or from the future
    gates_used: int = 0
    gates_refused: int = 0  # by the filter, after the association
    singular: int = 0  # updates that numbers did not allow
    doubts: int = 0  # images that added doubt
    misfits: int = 0  # images in succession with gates, none of which fits
    nis: float = 1.0
    last_used: float = 0.0  # s, exposure of the last image that was used

    def used(self, t: float, nis: list[float]) -> None:
        """Gates of an image at t were used, each with its NIS."""
        self.gates_used += len(nis)
        self.last_used = t
        for value in nis:
            self.nis += (value - self.nis) / NIS_GATES

    def doubtful(self, t: float, used: int, unexplained: int) -> bool:
        """Whether an image at t, of whose gates so many were used and so many not, should add doubt."""
        misfit = used == 0 and unexplained > 0
        self.misfits = 0 if used else self.misfits + misfit
        doubtful = misfit and self.misfits >= DOUBT_AFTER and t - self.last_used > DOUBT_AFTER_S
        self.doubts += doubtful
        return doubtful
