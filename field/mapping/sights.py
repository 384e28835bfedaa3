"""`LoggedFlight`: data of a log for a map: the IMU at rest and in flight, attitudes, and openings in images."""

import base64
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gate_racer.estimation.imu import LONGEST_STEP_S, REPEATS_S, ImuReading, plausible
from gate_racer.estimation.rest import Rest
from gate_racer.link.messages import Attitude, Imu
from gate_racer.link.record_reader import Losses
from gate_racer.perception.detection import Detection, Detector, decode
from gate_racer.pilot.records.imported import is_imported, read_any_records
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.files import reading

GAP_S = 5 * LONGEST_STEP_S  # s without IMU samples, after which dead reckoning is lost


class MapError(UserError):
    """A map that cannot be estimated from these flights."""


@dataclass(frozen=True)
class LoggedImage:
    """One image, by the time of its exposure."""

    t: float  # s
    detections: list[Detection]


@dataclass
class LoggedFlight:
    """One log, from the rest on the pad, which the first command ends, to its end; without repeated samples."""

    path: Path
    rest: list[Imu] = field(default_factory=list)
    readings: list[ImuReading] = field(default_factory=list)  # in flight
    attitudes: list[Attitude] = field(default_factory=list)
    images: list[LoggedImage] = field(default_factory=list)  # in flight, in order
    events: list[Imu | Attitude | LoggedImage] = field(default_factory=list)  # of all times, in order of arrival
    released: float = 0.0  # s, end of the rest
    cut: str = ""  # reason why the log was not used to its end

    def attitude_before(self, t: float) -> Attitude | None:
        """Return the newest attitude at or before t; None without one."""
        k = bisect_right(self.attitudes, t, key=lambda attitude: attitude.t) - 1
        return self.attitudes[k] if k >= 0 else None


def read_flight(path: Path, detector: Detector | None) -> LoggedFlight:
    """Read a log, with its own detections or those of a detector on its images.

    Raises:
        UserError: not an MCAP file.
        MapError: IMU samples, a flight or openings are missing.
    """
    if is_imported(path) and (detector or not path.is_dir()):
        hint = "use its labelled corners, without --detector" if path.is_dir() else "map-track needs gates in images"
        raise MapError(f"{path}: holds no images; {hint}")
    flight = LoggedFlight(path)
    with reading(path):
        _read(flight, detector)
    return flight


def _read(flight: LoggedFlight, detector: Detector | None) -> None:
    path, flying, frames, logged = flight.path, False, dict[int, LoggedImage](), 0

    def lost(_: Path, losses: Losses) -> None:
        flight.cut = str(losses)

    begin = "/phase" if is_imported(path) else "/command"
    for topic, record in read_any_records(path, () if detector else ("/camera",), lost):
        if topic == begin and not flying:
            flying, flight.released = True, record["t"]
        elif topic == "/imu":
            sample = Imu(record["t"], tuple(record["accel"]), tuple(record["gyro"]))
            if flying and flight.readings and sample.t - flight.readings[-1].t > GAP_S:
                flight.cut = f"the IMU's clock jumps or stops at {flight.readings[-1].t:.2f} s"
                break
            _take(flight, sample, flying)
        elif topic == "/attitude":
            attitude = Attitude(record["t"], tuple(record["q"]))
            flight.attitudes.append(attitude)
            flight.events.append(attitude)
        elif topic == "/camera" and detector is not None:
            stamp = record["timestamp"]
            found = detector.detect(decode(base64.b64decode(record["data"]), detector.camera))
            frames[logged] = LoggedImage(stamp["sec"] + 1e-9 * stamp["nsec"], found)
            flight.events.append(frames[logged])
            logged += 1
        elif topic == "/detection" and detector is None:
            if record["frame"] not in frames:
                frames[record["frame"]] = LoggedImage(record["t"], [])
                flight.events.append(frames[record["frame"]])
            frames[record["frame"]].detections.append(Detection.recorded(record))
    flight.attitudes.sort(key=lambda attitude: attitude.t)
    if not flying or len(flight.readings) < 2:
        raise MapError(f"{path}: holds {len(flight.readings)} IMU samples in flight; run-mpc writes them")
    first, last = flight.released, flight.readings[-1].t
    flight.images = sorted((one for one in frames.values() if first < one.t < last), key=lambda one: one.t)
    if not any(image.detections for image in flight.images):
        hint = (
            "no gate was detected in its images"
            if detector
            else "holds no detections; use --detector to detect gates in its images"
        )
        raise MapError(f"{path}: {hint}")


def _take(flight: LoggedFlight, sample: Imu, flying: bool) -> None:
    if not plausible(sample):
        return
    flight.events.append(sample)
    if not flying:
        flight.rest.append(sample)
        return
    reading = ImuReading(sample.t, np.array(sample.accel), np.array(sample.gyro))
    last = flight.readings[-1] if flight.readings else None
    if last is not None:
        same = np.array_equal(last.accel, reading.accel) and np.array_equal(last.gyro, reading.gyro)
        if reading.t <= last.t or (same and reading.t - last.t < REPEATS_S):
            return
    flight.readings.append(reading)


def rest_of(flight: LoggedFlight) -> Rest:
    """Return the statistics of the IMU before the flight. Raises MapError without any rest."""
    if not flight.rest:
        raise MapError(f"{flight.path}: holds no IMU samples at rest, so neither level nor biases are known")
    rest = Rest()
    for sample in flight.rest:
        rest.add(ImuReading(sample.t, np.array(sample.accel), np.array(sample.gyro)))
    return rest
