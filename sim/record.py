"""The simulator's own log of its runs (MCAP): truth, commands received, verdicts, and every MAVLink byte."""

from dataclasses import asdict
from pathlib import Path

from gate_racer.link.messages import Command
from gate_racer.link.record import RecordFile, record, vector
from gate_racer.sim.simulator import Simulator, Tick

SCHEMAS = {
    "truth": record(
        p=vector(3, "m, world NED"),
        q=vector(4, "body to world, wxyz"),
        v=vector(3, "m/s, world NED"),
        w=vector(3, "rad/s, body FRD"),
        accel=vector(3, "m/s^2, specific force, body FRD"),
        armed={"type": "boolean"},
    ),
    "command": record(kind={"type": "string"}, values={"type": "object"}),
    "contact": record(struck={"type": "string"}, impulse={"type": "number", "description": "kg m/s"}),
    "referee": record(
        status={"type": "string"},
        cause={"type": "string"},
        gate_times_s={"type": "array", "items": {"type": "number"}},
        gate_margins_m={"type": "array", "items": {"type": "number"}},
    ),
}


class SimulatorRecord:
    """A `sim.wire.station.TrafficRecorder`: topics /truth, /command, /contact, /referee; /sent and /heard as raw MAVLink 2."""

    def __init__(self, path: Path):
        """Open the file. Raises UserError when it cannot be written."""
        self._file = RecordFile(path)
        self._channels = {name: self._file.json_channel(name, f"race_sim.{name}", s) for name, s in SCHEMAS.items()}
        self._sent, self._received = (self._file.raw_channel(name, "mavlink2") for name in ("sent", "heard"))
        self._verdict: tuple[str, int] = ("", 0)

    def sent(self, t: float, datagram: bytes) -> None:
        self._file.add_raw(self._sent, t, datagram)

    def received(self, t: float, datagram: bytes) -> None:
        self._file.add_raw(self._received, t, datagram)

    def commanded(self, t: float, command: Command) -> None:
        self._file.add(
            self._channels["command"], t, {"t": t, "kind": type(command).__name__, "values": asdict(command)}
        )

    def ticked(self, simulator: Simulator, tick: Tick) -> None:
        truth, race = simulator.truth, simulator.referee.race
        x = {"p": truth.x[:3], "q": truth.x[3:7], "v": truth.x[7:10], "w": truth.x[10:13], "accel": truth.accel_b}
        self._file.add(self._channels["truth"], tick.t, {"t": tick.t, **x, "armed": simulator.armed})
        for contact in tick.contacts:
            struck = {"t": tick.t, "struck": contact.kind.value, "impulse": contact.impulse}
            self._file.add(self._channels["contact"], tick.t, struck)
        verdict = race.status.value, len(race.gate_times_s)
        if verdict != self._verdict:
            self._verdict = verdict
            row = {"status": race.status.value, "cause": race.cause, "gate_times_s": race.gate_times_s}
            self._file.add(
                self._channels["referee"], tick.t, {"t": tick.t, **row, "gate_margins_m": race.gate_margins_m}
            )

    def close(self) -> None:
        self._file.close()
