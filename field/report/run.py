"""`fly-report`: one flight, or a comparison of several, as a self-contained HTML page with all data of the logs."""

import argparse
from pathlib import Path
from typing import Any

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.files import reading, require_named, write_file
from gate_racer.common.settings import settings_of
from gate_racer.field.report.cli import ReportSettings
from gate_racer.field.report.film import write_film
from gate_racer.field.report.findings import figures, findings
from gate_racer.field.report.flight import ReportedFlight, passed, read_logged_flight
from gate_racer.field.report.pages import compared_page, flight_page
from gate_racer.pilot.records.imported import course_of, is_imported
from gate_racer.tracks.track import load_track_of


def run(arguments: argparse.Namespace) -> int:
    """Write the page, and a film if requested, and return the exit code. Raises UserError for unusable logs."""
    settings = settings_of(arguments, ReportSettings)
    logs: list[Path] = arguments.log
    first, film = logs[0], settings.film
    if film is not None and len(logs) > 1:
        raise UserError(f"film {film}: needs a single log")
    require_named(first)
    out = settings.out or first.with_name(f"{first.stem}{'-compared' if len(logs) > 1 else ''}.html")
    require_outputs((out, film, arguments.json), *logs, settings.track or None)
    flights = [read_logged_flight(log) for log in logs]
    with reading(first):
        named = settings.track or not is_imported(first)
        track = load_track_of(flights[0].track, settings.track or None) if named else course_of(first)
        flights = [passed(flight, track) for flight in flights]
        text = flight_page(flights[0], track) if len(flights) == 1 else compared_page(flights, track)
    write_file(out, text)
    if film is not None:
        remark(f"{write_film(film, flights[0], track, settings.slower)} images in {film}")
    write_json(arguments.json, {"page": out, "flights": [_summary(flight) for flight in flights]})
    remark(f"wrote {out}")
    return 0


def _summary(flight: ReportedFlight) -> dict[str, Any]:
    return {
        "log": flight.path,
        "status": flight.status,
        "gate_times_s": flight.gate_times_s,
        "figures": figures(flight),
        "findings": findings(flight),
    }
