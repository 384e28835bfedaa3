"""Signals of PX4's ULog, from version 1.6. PX4's axes are those of this project: body FRD, world NED, quaternions wxyz.

Times are `timestamp_sample` (the sensor's sampling) where a topic fills it in, else `timestamp`: us since PX4 started.
"""

import contextlib
import io
import struct
from pathlib import Path

import numpy as np
from pyulog.core import ULog
from pyulog.exceptions import ULogException

from gate_racer.common.files import CAUSES, read_bytes
from gate_racer.link.logs import samples
from gate_racer.link.logs.samples import SignalError, Source, indexed, mean, pulses, scaled, xyz
from gate_racer.vehicle.rotation import Array

STALLED_READS = 140_000  # reads without progress: over damage pyulog goes byte by byte, up to 64 kB back each time
MOST_VOLUME, FREE_BYTES = 64, 64 << 20  # bound of the bytes read: ratio to the file, plus bytes


def valid(values: Array) -> Array:
    """Return the last three of five columns, NaN where one of the first two, PX4's flags of their validity, is 0."""
    return np.where(values[:, :2].all(axis=1, keepdims=True), values[:, 2:], np.nan)


LANDED = ("landed", "maybe_landed", "ground_contact")
UP = scaled(-1.0)  # thrust along z of the body is 0..-1 upward
TOPICS = (
    Source("force", "sensor_combined", indexed("accelerometer_m_s2")),
    Source("force", "vehicle_acceleration", indexed("xyz")),
    Source("force", "sensor_accel", xyz()),
    Source("omega", "vehicle_angular_velocity", indexed("xyz")),
    Source("omega", "sensor_combined", indexed("gyro_rad")),
    Source("omega", "vehicle_attitude", ("rollspeed", "pitchspeed", "yawspeed")),
    Source("q", "vehicle_attitude", indexed("q", 4)),
    Source("p", "vehicle_local_position", ("xy_valid", "z_valid", *xyz()), valid),
    Source("p", "vehicle_local_position", xyz()),
    Source("v", "vehicle_local_position", ("v_xy_valid", "v_z_valid", *xyz("v{}")), valid),
    Source("v", "vehicle_local_position", xyz("v{}")),
    Source("true_p", "vehicle_local_position_groundtruth", xyz()),
    Source("true_v", "vehicle_local_position_groundtruth", xyz("v{}")),
    Source("true_q", "vehicle_attitude_groundtruth", indexed("q", 4)),
    Source("throttle", "vehicle_thrust_setpoint", ("xyz[2]",), UP),
    Source("throttle", "vehicle_rates_setpoint", ("thrust_body[2]",), UP),
    Source("throttle", "actuator_controls_0", ("control[3]",)),
    Source("throttle", "vehicle_rates_setpoint", ("thrust",)),
    Source("throttle", "vehicle_attitude_setpoint", ("thrust_body[2]",), UP),
    Source("throttle", "vehicle_attitude_setpoint", ("thrust",)),
    Source("throttle", "actuator_outputs", indexed("output", 4), mean(pulses)),
    Source("omega_cmd", "vehicle_rates_setpoint", ("roll", "pitch", "yaw")),
    Source("motors", "actuator_motors", indexed("control", 4)),
    Source("motors", "actuator_outputs", indexed("output", 4), pulses),
    Source("voltage", "battery_status", ("voltage_v",)),
    Source("landed", "vehicle_land_detected", LANDED, lambda flags: flags.max(axis=1, keepdims=True)),
    Source("landed", "vehicle_land_detected", ("landed",)),
)
NAMES = sorted({source.message for source in TOPICS})


def ulog_signals(path: Path) -> samples.LoggedSignals:
    """Return all signals of a log, each from the first instance of its topic. Raises FileError, or SignalError for no ULog."""
    output = io.StringIO()  # pyulog's messages on damage, line by line
    try:
        with contextlib.redirect_stdout(output):
            log = ULog(_Finite(read_bytes(path, samples.LOG_BYTES)), NAMES)
    except (*CAUSES, ULogException, struct.error, EOFError) as error:
        raise SignalError(f"{path}: cannot be read as a ULog file ({error or type(error).__name__})") from None
    tables = {one.name: _table(one.data) for one in reversed(log.data_list) if len(one.data.get("timestamp", ()))}
    damaged = log.file_corruption or output.getvalue()
    return samples.found(tables, TOPICS, ["is damaged; the undamaged part is used"] if damaged else [])


def _table(columns: dict[str, Array]) -> samples.Table:
    sampled = columns.get("timestamp_sample", np.zeros(1))
    clock = sampled if sampled.min() < sampled.max() and sampled.min() > 0 else columns["timestamp"]
    return {**columns, "t": clock * 1e-6}


class _Finite(io.BytesIO):
    """File that raises EOFError on endless reading, since pyulog loops at the end of some damaged files."""

    def __init__(self, data: bytes):
        super().__init__(data)
        self._room, self._furthest, self._stalled = MOST_VOLUME * len(data) + FREE_BYTES, 0, 0

    def read(self, size: int | None = -1, /) -> bytes:
        data, at = super().read(size), self.tell()
        self._room -= len(data)
        self._stalled = 0 if at > self._furthest else self._stalled + 1
        self._furthest = max(self._furthest, at)
        if self._stalled > STALLED_READS or self._room < 0:
            raise EOFError("damaged")
        return data
