"""`read_log_signals`: the signals of a log of any kind, selected by file suffix."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from gate_racer.link.logs.one_clock import finite, one_clock
from gate_racer.link.logs.rows import LoggedSignals, SignalError
from gate_racer.vehicle.files import reading

# Module and function by suffix; loaded when needed, since pymavlink alone takes half a second.
READERS = {
    ".mcap": ("own_logs", "mcap_signals"),
    ".csv": ("own_logs", "csv_signals"),
    ".tlog": ("mavlink_logs", "tlog_signals"),
    ".bin": ("mavlink_logs", "dataflash_signals"),
    ".ulg": ("ulog", "ulog_signals"),
    ".bbl": ("betaflight", "betaflight_signals"),
    ".bfl": ("betaflight", "betaflight_signals"),
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
    module, function = READERS[path.suffix.lower()]
    read: Callable[[Path], LoggedSignals] = getattr(import_module(f".{module}", __package__), function)
    with reading(path):
        log = read(path)
        rows, note = one_clock(finite(log.rows))
        return replace(log, rows=rows, note="; ".join(filter(None, (log.note, note))))
