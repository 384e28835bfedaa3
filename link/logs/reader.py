"""`read_log_signals`: the signals of a log of any kind, selected by file suffix."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gate_racer.common.files import reading
from gate_racer.link.logs.rows import LoggedSignals, SignalError, finite, one_clock

# Function of `formats` by suffix, which is loaded when needed, since pymavlink alone takes half a second.
READERS = {
    ".mcap": "mcap_signals",
    ".csv": "csv_signals",
    ".tlog": "tlog_signals",
    ".bin": "dataflash_signals",
    ".ulg": "ulog_signals",
    ".bbl": "betaflight_signals",
    ".bfl": "betaflight_signals",
}
AUTOPILOT = (".tlog", ".bin", ".ulg", ".bbl", ".bfl")  # logs of autopilots, whatever flew them


def read_log_signals(path: Path) -> LoggedSignals:
    """Read one log; damaged parts are skipped and noted.

    Raises:
        UserError: unknown suffix, or the file cannot be read.
    """
    if path.suffix.lower() not in READERS:
        raise SignalError(f"{path}: logs end in {', '.join(READERS)}")
    if not path.is_file():
        raise SignalError(f"{path}: no such file")
    from gate_racer.link.logs import formats

    read: Callable[[Path], LoggedSignals] = getattr(formats, READERS[path.suffix.lower()])
    with reading(path):
        log = read(path)
        rows, note = one_clock(finite(log.rows))
        return replace(log, rows=rows, note="; ".join(filter(None, (log.note, note))))
