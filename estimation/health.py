"""Health of an estimator: counts of rejected measurements, and the normalised innovation squared (NIS).

NIS = r' S^-1 r / M of the gates used has mean 1 in a consistent filter. While images show only gates that cannot be associated,
the covariance is inflated, and with it the association gate, until one of them fits: so a diverged filter recovers.
"""

from dataclasses import dataclass

NIS_GATES = 30  # gates, time constant of the mean NIS
DOUBT_AFTER_S, DOUBT_AFTER = 0.3, 4  # s and consecutive images without a fitting gate before inflation (chosen)
DOUBT_P, DOUBT_V = 0.3, 0.3  # m and m/s, standard deviations added per such image (chosen)
LOST_M = 0.75  # m, standard deviation of the position beyond which a gate can be missed


@dataclass
class Health:
    """Counts since the start."""

    samples_refused: int = 0  # IMU, attitude and position samples: not finite, implausible, old or repeated
    gaps: int = 0  # intervals without IMU samples that were bridged
    images_late: int = 0  # images older than the filter's state, or from the future
    gates_used: int = 0
    gates_refused: int = 0  # rejected by the filter, after the association
    singular: int = 0  # updates with a singular innovation covariance
    inflations: int = 0  # images after which the covariance was inflated
    misfits: int = 0  # consecutive images with gates, none of which fits
    nis: float = 1.0  # -, running mean of the gates used
    last_used: float = 0.0  # s, exposure of the last image that was used

    def used(self, t: float, nis: list[float]) -> None:
        """Record that gates of an image at t (s) were used, each with its NIS."""
        self.gates_used += len(nis)
        self.last_used = t
        for value in nis:
            self.nis += (value - self.nis) / NIS_GATES

    def should_inflate(self, t: float, used: int, unexplained: int) -> bool:
        """Count an image at t (s) with `used` and `unexplained` gates; return whether to inflate the covariance."""
        misfit = used == 0 and unexplained > 0
        self.misfits = 0 if used else self.misfits + misfit
        should_inflate = misfit and self.misfits >= DOUBT_AFTER and t - self.last_used > DOUBT_AFTER_S
        self.inflations += should_inflate
        return should_inflate
