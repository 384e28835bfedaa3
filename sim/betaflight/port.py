"""The pilot's end of a simulated line in one process: waiting is what moves the simulator's clock."""

from sim.betaflight.station import BetaflightStation
from sim.simulator import Exposure


class StationPort:
    """A `link.msp.ports.Port` of a station, and the clock by which it waits."""

    def __init__(self, station: BetaflightStation):
        self._station, self.t = station, station.t
        self._exposures: list[Exposure] = []

    def clock(self) -> float:
        """s, of the simulator."""
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
        """The images asked for since the last call."""
        taken, self._exposures = self._exposures, []
        return taken

    def write(self, data: bytes) -> None:
        self._station.hear(data, self.t)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        """Nothing to give back."""
