"""Signals of Betaflight's blackbox logs. Its body axes are x forward, y left, z up; its world is z up.

Position and velocity are not available: GPS frames are skipped, since they are too coarse and late for a vehicle's dynamics.

A file holds consecutive flights: header lines in text, then frames, each a letter and its fields. The header gives the names
of the fields of every kind of frame, their encoding, and their predictor: I-frames are independent, P-frames are differences
from the two main frames before, S- and G-frames hold slow values and GPS, and E-frames are events. A frame that is not followed
by another is damaged; then P-frames are dropped up to the next I-frame. Format:
betaflight.com/docs/development/Blackbox-Internals.

A decoder takes bytes, a position and a number of fields. It returns that many values and the position behind them, and raises
IndexError at the end of the file, and FrameError for bytes that the firmware never writes.
"""

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.common.files import read_bytes
from gate_racer.link.logs import samples
from gate_racer.link.logs.samples import FRD, LOG_BYTES, SignalError, Source, indexed, pulses, scaled
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

VB_BYTES = 5  # longest variable-byte number: 32 bit, 7 per byte
END_TEXT = b"End of log\0"

Values = list[int]
Decoded = tuple[Values, int]
Decoder = Callable[[bytes, int, int], Decoded]


class FrameError(Exception):
    """The bytes are not a frame."""


def signed(value: int, bits: int) -> int:
    """Return the lowest bits of a number, in two's complement."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def unsigned_vb(data: bytes, at: int, count: int = 1) -> Decoded:
    """Decode seven bits per byte, the lowest first; the eighth marks that more follow."""
    value = 0
    for k in range(VB_BYTES):
        byte = data[at + k]
        value |= (byte & 0x7F) << 7 * k
        if byte < 0x80:
            return [value], at + k + 1
    raise FrameError


def signed_vb(data: bytes, at: int, count: int = 1) -> Decoded:
    """Decode an unsigned number as zigzag: 0, -1, 1, -2, 2."""
    (value,), at = unsigned_vb(data, at)
    return [(value >> 1) ^ -(value & 1)], at


def neg_14bit(data: bytes, at: int, count: int = 1) -> Decoded:
    """Decode an unsigned number as the negative of 14 bits."""
    (value,), at = unsigned_vb(data, at)
    return [-signed(value, 14)], at


def tag8_8svb(data: bytes, at: int, count: int) -> Decoded:
    """Decode a byte of flags for up to eight nonzero fields, then these fields; a single field has no such byte."""
    if count == 1:
        return signed_vb(data, at)
    tag, at, values = data[at], at + 1, []
    for k in range(count):
        value = 0
        if tag >> k & 1:
            (value,), at = signed_vb(data, at)
        values.append(value)
    return values, at


def tag2_3s32(data: bytes, at: int, count: int) -> Decoded:
    """Decode three fields of 2, 4 or 6 bit each, by the upper two bits; or of one to four bytes each, the lowest first."""
    lead = data[at]
    kind = lead >> 6
    if kind == 0:
        values, at = [signed(lead >> shift, 2) for shift in (4, 2, 0)], at + 1
    elif kind == 1:
        values, at = [signed(lead, 4), signed(data[at + 1] >> 4, 4), signed(data[at + 1], 4)], at + 2
    elif kind == 2:
        values, at = [signed(data[at + k], 6) for k in range(3)], at + 3
    else:
        at, values = at + 1, []
        for k in range(3):
            size = (lead >> (2 * k) & 3) + 1
            data[at + size - 1]  # raises IndexError at the end of the file
            values.append(int.from_bytes(data[at : at + size], "little", signed=True))
            at += size
    return values[:count], at


def tag8_4s16(data: bytes, at: int, count: int) -> Decoded:
    """Decode four fields of 0, 1, 2 or 4 nibbles, two bits of the first byte each; the nibbles follow, the upper first."""
    tag, nibbles, values = data[at], 2 * (at + 1), []
    for k in range(4):
        size = (0, 1, 2, 4)[tag >> (2 * k) & 3]
        value = 0
        for _ in range(size):
            byte = data[nibbles >> 1]
            value = value << 4 | (byte & 15 if nibbles & 1 else byte >> 4)
            nibbles += 1
        values.append(signed(value, 4 * size) if size else 0)
    return values[:count], (nibbles + 1) >> 1


def null(data: bytes, at: int, count: int) -> Decoded:
    return [0], at


# Decoder and the most fields that it decodes together, by the number in the header.
DECODERS: dict[int, tuple[Decoder, int]] = {
    0: (signed_vb, 1),
    1: (unsigned_vb, 1),
    3: (neg_14bit, 1),
    6: (tag8_8svb, 8),
    7: (tag2_3s32, 3),
    8: (tag8_4s16, 4),
    9: (null, 1),
}
# Numbers behind an event: sync beep, adjustment, resume, disarm, flight mode.
EVENTS = {0: 1, 13: 2, 14: 2, 15: 1, 30: 2}
ADJUSTMENT, END_OF_LOG = 13, 255

START = b"H Product:Blackbox"  # first line of a flight
KINDS = b"IPGHSE"
KIND = re.compile(b"[" + KINDS + b"]")
LINE_BYTES = 16 << 10  # longest header line
FIELDS_MOST = 256  # most fields of a frame
TIME_LEAP_US = 10_000_000  # us, longest time between a frame and the one that predicts it


@dataclass(frozen=True)
class FrameLayout:
    names: tuple[str, ...]
    predictors: tuple[int, ...]
    groups: tuple[tuple[Decoder, int], ...]  # decoder, number of fields

    def read(self, data: bytes, at: int) -> Decoded:
        """Return the values before prediction, and where the next frame begins. Raises IndexError at the end, and FrameError."""
        values: Values = []
        for decode, count in self.groups:
            part, at = decode(data, at, count)
            values += part
        return values, at


@dataclass(frozen=True)
class BlackboxFlight:
    headers: dict[str, str]
    names: tuple[str, ...]
    values: Array  # (N, fields) of main frames, integers
    damaged: int  # number of damaged parts of the file

    def number(self, header: str, otherwise: float) -> float:
        text = self.headers.get(header, "").split(",")[0]
        return float(text) if text else otherwise


def flights(data: bytes) -> Iterator[BlackboxFlight]:
    begin = data.find(START)
    while begin >= 0:
        end = data.find(START, begin + 1)
        flight = data[begin : end if end >= 0 else len(data)]
        headers, at = _headers(flight)
        layouts = _layouts(headers)
        if ord("I") in layouts:
            yield _frames(flight, at, headers, layouts)
        begin = end


def _headers(data: bytes) -> tuple[dict[str, str], int]:
    headers, at = {}, 0
    while data[at : at + 2] == b"H ":
        end = data.find(b"\n", at, at + LINE_BYTES)
        if end < 0:
            break
        name, _, text = data[at + 2 : end].decode("ascii", "replace").partition(":")
        headers[name] = text.strip()
        at = end + 1
    return headers, at


def _layouts(headers: dict[str, str]) -> dict[int, FrameLayout]:
    """Return layouts by letter of the frame; P-frames use the names of I-frames. Raises ValueError for an inconsistent header."""
    layouts = {}
    for kind in "IPSGH":
        names = headers.get(f"Field {'I' if kind == 'P' else kind} name")
        encodings, predictors = (headers.get(f"Field {kind} {what}") for what in ("encoding", "predictor"))
        if names is None or encodings is None or predictors is None:
            continue
        fields, codes = tuple(names.split(",")), [int(one) for one in encodings.split(",")]
        predicted = tuple(int(one) for one in predictors.split(","))
        if not len(fields) == len(predicted) == len(codes) <= FIELDS_MOST:
            raise ValueError(f"the header names {len(fields)} fields of {kind}-frames and {len(codes)} encodings")
        layouts[ord(kind)] = FrameLayout(fields, predicted, _groups(codes))
    return layouts


def _groups(codes: list[int]) -> tuple[tuple[Decoder, int], ...]:
    """Return the groups of fields that are encoded together. Raises ValueError for an unknown encoding."""
    groups, k = [], 0
    while k < len(codes):
        if codes[k] not in DECODERS:
            raise ValueError(f"unknown encoding {codes[k]}")
        decode, most = DECODERS[codes[k]]
        count = 1
        while count < most and codes[k + count : k + count + 1] == [codes[k]]:
            count += 1
        groups.append((decode, count))
        k += count
    return tuple(groups)


def _frames(data: bytes, at: int, headers: dict[str, str], layouts: dict[int, FrameLayout]) -> BlackboxFlight:
    intra = layouts[ord("I")]
    predict = FramePredictor(intra.names, headers)
    rows: list[Values] = []
    damaged, whole = 0, True
    while at < len(data):
        try:
            kind, after = data[at], at + 1
            if kind == ord("E"):
                if data[after] == END_OF_LOG and data.startswith(END_TEXT, after + 1):
                    break
                after = _behind_event(data, after)
                values: Values = []
            else:
                values, after = layouts[kind].read(data, after)
            if after < len(data) and data[after] not in KINDS:
                raise FrameError
        except IndexError:
            damaged += 1  # truncated
            break
        except (FrameError, KeyError):
            damaged += whole
            following = KIND.search(data, at + 1)
            whole, at = False, following.start() if following else len(data)
            predict.forget()
            continue
        whole, at = True, after
        if kind in b"IP":
            row = predict(kind, layouts[kind].predictors, values)
            if row:
                rows.append(row)
    table = np.array(rows, float).reshape(len(rows), len(intra.names))
    return BlackboxFlight(headers, intra.names, table, damaged)


def _behind_event(data: bytes, at: int) -> int:
    """Return the position behind an event. Raises KeyError for an unknown one, IndexError at the end of the file."""
    event, at = data[at], at + 1
    if event == ADJUSTMENT and data[at] > 127:  # of a float
        return at + 5
    for _ in range(EVENTS[event]):
        _, at = unsigned_vb(data, at)
    return at


class FramePredictor:
    """Predictor of main frames from the encoded values and the two previous frames."""

    def __init__(self, names: tuple[str, ...], headers: dict[str, str]):
        self._time = names.index("time")
        self._motor = names.index("motor[0]") if "motor[0]" in names else self._time
        limits = [int(headers.get(name, "0").split(",")[0] or 0) for name in ("minthrottle", "motorOutput", "vbatref")]
        self._constants = {0: 0, 4: limits[0], 8: 1500, 9: limits[2], 11: limits[1]}
        self._last: Values = []
        self._before: Values = []

    def forget(self) -> None:
        self._last = []

    def __call__(self, kind: int, predictors: tuple[int, ...], values: Values) -> Values:
        """Return the frame as logged; empty where it cannot be decoded. Raises ValueError for an unknown predictor."""
        last, before = self._last, self._before
        if kind == ord("I"):
            last = before = [0] * len(values)
        elif not last:
            return []
        constants, motor = self._constants, self._motor
        row: Values = []
        for k, (predictor, value) in enumerate(zip(predictors, values, strict=True)):
            if predictor == 1:
                value += last[k]
            elif predictor == 3:
                total = last[k] + before[k]
                value += (total + (total < 0)) >> 1  # rounds towards zero, as in C
            elif predictor == 2:
                value += 2 * last[k] - before[k]
            elif predictor == 5:
                value += row[motor]
            elif predictor == 6:
                value += last[k] + 1
            elif predictor in constants:
                value += constants[predictor]
            else:
                raise ValueError(f"unknown predictor {predictor}")
            row.append(value)
        if kind == ord("I"):
            row = [value if k == self._time else signed(value, 32) for k, value in enumerate(row)]
            self._before = row
        else:
            if not 0 < row[self._time] - last[self._time] < TIME_LEAP_US:
                self.forget()
                return []
            self._before = last
        self._last = row
        return row


def header_float(text: str, otherwise: float) -> float:
    """Return a number that the header stores as the bits of a float, e.g. 0x3f800000."""
    try:
        return float(struct.unpack("<f", struct.pack("<I", int(text, 16)))[0])
    except (ValueError, struct.error):
        return otherwise


HIGH_RESOLUTION = 10.0  # factor on rates and sticks in that mode
QUATERNION_PARTS, THROTTLE_PARTS = 32767.0, 1000.0
# V per count, now and before 4.0, and the counts of a cell below which it is the latter.
VOLTAGE_V, FORMER_VOLTAGE_V, FORMER_CELL = 0.01, 0.1, 100.0
LEAST_FRAMES = 2  # frames, least number in a log


def betaflight_signals(path: Path) -> samples.LoggedSignals:
    """Return the signals of the longest flight in a file. Raises FileError, or SignalError if it holds no flight."""
    found_flights = [flight for flight in flights(read_bytes(path, LOG_BYTES)) if len(flight.values) >= LEAST_FRAMES]
    if not found_flights:
        raise SignalError(f"{path}: holds no flight of a Betaflight blackbox")
    longest = max(found_flights, key=lambda flight: len(flight.values))
    notes = [f"holds {len(found_flights)} flights, of which the longest is used"] if len(found_flights) > 1 else []
    if longest.damaged:
        notes.append(f"{longest.damaged} stretches damaged; the undamaged parts are used")
    columns: dict[str, Array] = dict(zip(longest.names, longest.values.T, strict=True))
    log = samples.found({"": {**columns, "t": columns["time"] * 1e-6}}, _sources(longest), notes)
    return replace(log, names={**log.names, "p": "not logged", "v": "not logged"})


def _sources(flight: BlackboxFlight) -> list[Source]:
    fine = HIGH_RESOLUTION if flight.number("blackbox_high_resolution", 0) else 1.0
    rate = math.radians(header_float(flight.headers.get("gyro_scale", ""), 1.0)) / fine
    low, _, high = flight.headers.get("motorOutput", "").partition(",")
    span = (float(low), float(high) - float(low)) if low and high else (0.0, 0.0)
    one_g = flight.number("acc_1G", 1.0)  # 0: without accelerometer
    volts = FORMER_VOLTAGE_V if flight.number("vbatcellvoltage", math.inf) < FORMER_CELL else VOLTAGE_V
    motors = tuple(name for name in flight.names if name.startswith("motor["))
    sources = [
        Source("omega", "", indexed("gyroADC"), scaled(*(FRD * rate))),
        Source("q", "", indexed("imuQuaternion"), _quaternions),  # since 2025.12
        Source("omega_cmd", "", indexed("setpoint"), scaled(*(FRD * samples.RAD / fine))),
        Source("throttle", "", ("setpoint[3]",), lambda parts: np.clip(parts / THROTTLE_PARTS, 0.0, 1.0)),
        Source("throttle", "", ("rcCommand[3]",), lambda us: pulses(us / fine)),
        Source("voltage", "", ("vbatLatest",), scaled(volts)),
    ]
    if one_g > 0:
        sources.append(Source("force", "", indexed("accSmooth"), scaled(*(FRD * GRAVITY / one_g))))
    if motors and span[1] > 0:
        sources.append(Source("motors", "", motors, lambda raw: (raw - span[0]) / span[1]))
    return sources


def _quaternions(xyz: Array) -> Array:
    xyz = xyz * FRD / QUATERNION_PARTS
    return np.column_stack([np.sqrt(np.clip(1.0 - np.sum(xyz * xyz, axis=1), 0.0, 1.0)), xyz])
