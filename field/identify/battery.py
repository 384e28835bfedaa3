"""The battery as an input: motors see the duty times the voltage, so that thrust is a curve over throttle * (U / U_ref)^n."""

from dataclasses import dataclass, replace

import numpy as np

from gate_racer.field.identify.signals import Signals
from gate_racer.vehicle.rotation import Array

CELL_V, FULL_V = 3.7, 4.25  # V of a cell: nominal, and most
VARIES = 1.03  # -, ratio of the largest to the smallest voltage in flight above which it matters (chosen)
EXPONENTS = np.arange(0.5, 1.21, 0.05)  # tried where several logs tell; 0 of a controller that compensates is not
SEVERAL = 3  # logs from which the exponent is fitted: within one flight voltage and throttle move together


@dataclass(frozen=True)
class BatteryUse:
    """Reference voltage of a thrust curve, and the exponent of the voltage in the throttle that the motors see."""

    reference_v: float
    exponent: float = 1.0

    def seen(self, log: Signals) -> Signals:
        """Return the log with the throttle that the motors see at the reference voltage."""
        return replace(log, throttle=log.throttle * (log.voltage / self.reference_v) ** self.exponent)


def battery_of(logs: list[Signals]) -> BatteryUse | None:
    """Return the nominal voltage of the battery; None where a log lacks it, or it hardly varies."""
    flown = [log.voltage[log.valid] for log in logs if log.valid.any()]
    volts: Array = np.concatenate(flown) if flown else np.zeros(0)
    if not len(volts) or not np.isfinite(volts).all() or volts.min() <= 0:
        return None
    low, high = np.percentile(volts, [2, 98])
    if high < VARIES * low:
        return None
    most = max(float(log.voltage[log.trusted].max()) for log in logs)
    return BatteryUse(float(CELL_V * np.ceil(most / FULL_V)))
