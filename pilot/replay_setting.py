"""Given quantities of `replay-flight`: course, vehicle and gate appearance, for our own logs and those of others."""

import argparse
from dataclasses import dataclass, field, replace
from typing import Any

from gate_racer.link.logs.ratm import read_ratm
from gate_racer.perception.rims import GateAppearance
from gate_racer.pilot.records.imported import course_of
from gate_racer.pilot.records.ratm_flight import THIN, ratm_course
from gate_racer.tracks.track import Track, load_track, load_track_of
from gate_racer.vehicle.files import file_name, reading, within
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

IMPORTED_VEHICLE = "swift"  # its IMU noise and agility stand for those of a real racing quadrotor


@dataclass(frozen=True)
class ReplaySetting:
    """Given quantities of a replay."""

    track: Track
    vehicle: Vehicle
    appearance: GateAppearance = field(default_factory=GateAppearance)
    figures: dict[str, float] = field(default_factory=dict)


def setting_of_own(arguments: argparse.Namespace, about: dict[str, Any]) -> ReplaySetting:
    """Return track and vehicle as requested, or as named by the log: then by name, or within the current folder."""
    where = arguments.log
    with reading(where):
        name = file_name(about["track"], f"{where}: track")
        vehicle = arguments.vehicle or within(about["vehicle"], f"{where}: vehicle")
    return ReplaySetting(load_track_of(name, arguments.track), load_vehicle(vehicle))


def setting_of_others(arguments: argparse.Namespace) -> ReplaySetting:
    """Return the setting for a foreign log: the folder's own course, the requested track, or the start position alone."""
    vehicle = load_vehicle(arguments.vehicle or IMPORTED_VEHICLE)
    if arguments.log.is_dir():
        with reading(arguments.log):
            course = ratm_course(read_ratm(arguments.log))
        figures = {"mount_error_deg": course.mount_error_deg}
        track = load_track(arguments.track) if arguments.track else course.track
        return ReplaySetting(track, replace(vehicle, camera=course.camera), THIN, figures)
    track = load_track(arguments.track) if arguments.track else course_of(arguments.log)
    return ReplaySetting(track, vehicle)
