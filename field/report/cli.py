"""`fly-report`: one flight, or a comparison of several, as a self-contained HTML page with all data of the logs."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gate_racer.common.command import add_common, perform, remark, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.files import reading, require_named, require_output, write_file
from gate_racer.field.report.film import write_film
from gate_racer.field.report.findings import figures, findings
from gate_racer.field.report.flight import ReportedFlight, passed, read_logged_flight
from gate_racer.field.report.pages import compared_page, flight_page
from gate_racer.pilot.records.imported import course_of, is_imported
from gate_racer.planner.plan import PlanError, read_plan
from gate_racer.tracks.track import load_track_of
from gate_racer.vehicle.rotation import Array

SLOWER = 0.1, 20.0  # range of a film's slow-down factor


def parser() -> argparse.ArgumentParser:
    """Return the command line of `fly-report`."""
    arguments = argparse.ArgumentParser(
        prog="fly-report",
        description="Write one HTML page about a flight, or comparing several flights of one track with the first.",
    )
    arguments.add_argument(
        "log",
        type=Path,
        nargs="+",
        help="flight log (MCAP of run-mpc, or another format); further logs are compared with the first",
    )
    arguments.add_argument("--track", type=Path, help="name or YAML file (default: the log's)")
    arguments.add_argument(
        "--plans", type=Path, default=Path("plans"), help="folder of the plans of older logs (default: plans)"
    )
    arguments.add_argument(
        "--out", type=Path, help="page to write (default: the log's name with .html, or -compared.html)"
    )
    arguments.add_argument(
        "--film", type=Path, metavar="FILE.webm", help="also write a film with images, detections, map and estimate"
    )
    arguments.add_argument("--slower", type=float, default=1.0, help="slow-motion factor of the film (default: 1)")
    add_common(arguments, "figures and findings of the flights")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Write the page, and a film if requested, and return the exit code. Raises UserError for unusable logs."""
    logs: list[Path] = arguments.log
    _require_one_to_film(arguments)
    first = logs[0]
    require_named(first)
    out = arguments.out or (
        first.with_suffix(".html") if len(logs) == 1 else first.with_name(f"{first.stem}-compared.html")
    )
    for output in (out, *filter(None, [arguments.json, arguments.film])):
        require_output(output, *logs, arguments.track, *arguments.plans.glob("*.csv"), *arguments.plans.glob("*.json"))
    flights = [_with_plan(read_logged_flight(log), arguments.plans) for log in logs]
    with reading(first):
        named = arguments.track or not is_imported(first)
        track = load_track_of(flights[0].track, arguments.track) if named else course_of(first)
        flights = [passed(flight, track) for flight in flights]
        text = flight_page(flights[0], track) if len(flights) == 1 else compared_page(flights, track)
    write_file(out, text)
    if arguments.film:
        remark(f"{write_film(arguments.film, flights[0], track, arguments.slower)} images in {arguments.film}")
    write_json(arguments.json, {"page": out, "flights": [_summary(flight) for flight in flights]})
    remark(f"wrote {out}")
    return 0


def _require_one_to_film(arguments: argparse.Namespace) -> None:
    """Check the options of a film. Raises UserError for several flights, an unknown format, or a speed out of range."""
    if arguments.film and (len(arguments.log) > 1 or arguments.film.suffix != ".webm"):
        raise UserError(f"--film {arguments.film}: needs a single log, and a file name that ends in .webm")
    if not SLOWER[0] <= arguments.slower <= SLOWER[1] or (arguments.slower != 1 and not arguments.film):
        raise UserError(
            f"--slower {arguments.slower:g}: must lie between {SLOWER[0]:g} and {SLOWER[1]:g}, and needs --film"
        )


def _summary(flight: ReportedFlight) -> dict[str, Any]:
    return {
        "log": flight.path,
        "status": flight.status,
        "gate_times_s": flight.gate_times_s,
        "figures": figures(flight),
        "findings": findings(flight),
    }


def _with_plan(flight: ReportedFlight, folder: Path) -> ReportedFlight:
    """Return the flight with the planned gate times of its plan, from the folder if the log lacks them and the plan exists."""
    if len(flight.planned_s):
        return flight
    planned = _gate_times_s(folder, flight.track, str(flight.about.get("plan_hash")))
    return flight if planned is None else replace(flight, planned_s=planned)


def _gate_times_s(folder: Path, track: str, plan_hash: str) -> Array | None:
    for path in sorted(folder.glob(f"{track}*.csv")):
        try:
            plan = read_plan(path)
        except PlanError:
            continue
        if plan.hash == plan_hash:
            return plan.gate_times_s
    return None


def main() -> None:
    """Run `fly-report` and exit with its code."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
