"""Companion's end of a simulated line in the same process: waiting advances the simulator's clock."""

from gate_racer.sim.betaflight.station import BetaflightStation
from gate_racer.sim.simulator import Exposure


class StationPort:
    """`link.msp.ports.Port` of a station, with the simulator's clock."""

    def __init__(self, station: BetaflightStation):
        self._station, self.t = station, station.t
        self._exposures: list[Exposure] = []

    def clock(self) -> float:
        """Return the simulator's time, s."""
        return self.t

    def read(self, timeout_s: float) -> bytes:
        end = self.t + timeout_s
        while self.t < end:
            self.t = min(end, max(self.t, self._station.next_t))
            said = self._station.serve(self.t)
            while self._station.tick_t <= self.t:
                exposure = self._station.tick()
                self._exposures += [exposure] if exposure is not None else []
            if said:
                return said
        return b""

    def exposures(self) -> list[Exposure]:
        """Return the exposures since the last call."""
        taken, self._exposures = self._exposures, []
        return taken

    def write(self, data: bytes) -> None:
        self._station.receive(data, self.t)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Do nothing: there are no resources to release."""
