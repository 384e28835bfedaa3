"""Command line of campaigns, `race-bench`: fly, report, compare, race several pilots, fit residual models."""

import argparse
import hashlib
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path

from gate_racer.common.command import add_common, perform, remark, write_json
from gate_racer.common.errors import UserError
from gate_racer.common.files import write_file
from gate_racer.estimation.registry import ESTIMATORS
from gate_racer.mpc.problem import CONTROLLERS
from gate_racer.race.campaign import fit_residuals, make_errors, rivals
from gate_racer.race.campaign.campaign import campaign, commit, fly_again, worst
from gate_racer.race.campaign.choice import SETTINGS, USUAL, Choice
from gate_racer.race.campaign.compare import compare, table
from gate_racer.race.campaign.report import write_report
from gate_racer.race.campaign.store import Row, Store
from gate_racer.race.campaign.tables import as_json, cells, markdown
from gate_racer.race.campaign.worlds import costs
from gate_racer.race.campaign.worlds import markdown as worlds_markdown
from gate_racer.sim.physics.residual import Residuals
from gate_racer.sim.worlds.world import NOMINAL


def add_choices(arguments: argparse.ArgumentParser, settings: list[str]) -> None:
    """Add the options of a campaign's axes and of its execution."""
    add = arguments.add_argument
    add("--vehicles", nargs="+", default=["dcl"], metavar="NAME", help="names or YAML files of vehicles (default: dcl)")
    known = f"from {', '.join(SETTINGS)}, or a range such as 1-4 (default: {' '.join(settings)})"
    add("--settings", nargs="+", default=settings, metavar="S", help=known)
    for option, names in (("--controllers", CONTROLLERS), ("--estimators", ESTIMATORS)):
        also = ", or a learned policy (name or .npz file)" if names is CONTROLLERS else ""
        add(option, nargs="+", default=[next(iter(names))], metavar="NAME", help=f"from {', '.join(names)}{also}")
    add(
        "--worlds",
        nargs="+",
        default=[NOMINAL],
        metavar="W",
        help="names or files of worlds, drawn by the flight's seed; factors: each factor of unknown alone (default: as_believed)",
    )
    add(
        "--plans",
        nargs="+",
        default=[USUAL],
        metavar="P",
        help=f"planning options, such as reserve=1,margin=0,see=0 for the time-optimal plan (default: {USUAL})",
    )
    add(
        "--residual",
        type=Path,
        metavar="FILE",
        help="file of fit-residuals or make-errors: accelerations added to the plant, errors added to the observation",
    )
    add("--laps", type=int, default=1, help="number of laps (default: 1)")
    add("--seeds", type=int, default=10, help="flights per configuration with random elements (default: 10)")
    add("--first-seed", type=int, default=0, metavar="N", help="seed of the first of them (default: 0)")
    add(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="number of processes on this machine (default: one per core)",
    )
    add("--scheduler", default="", metavar="tcp://HOST:PORT", help="fly on the workers of this Dask scheduler")
    out = Path("logs") / f"campaign-{commit()}"
    add(
        "--out",
        type=Path,
        default=out,
        help="folder of the campaign; an existing campaign is continued (default: logs/campaign-COMMIT)",
    )
    add("--uncertified", action="store_true", help="fly plans without a valid certificate")
    add("--retry", action="store_true", help="repeat failed cases")


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser of `race-bench`."""
    arguments = argparse.ArgumentParser(prog="race-bench", description="Fly campaigns, and continue interrupted ones.")
    arguments.add_argument(
        "--tracks", nargs="+", default=["vq1"], metavar="TRACK", help="names or YAML files of tracks"
    )
    add_choices(arguments, ["projected"])
    arguments.add_argument("--worst", type=int, default=3, help="number of worst flights to log and draw (default: 3)")
    rivals.add_options(arguments)
    commands = arguments.add_subparsers(dest="command", metavar="")
    versus = commands.add_parser("compare", help="compare two campaigns on their common seeds, with significance tests")
    versus.add_argument("a", type=Path, help="first campaign, folder or file")
    versus.add_argument("b", type=Path, help="second campaign, folder or file")
    fit_residuals.add_parser(commands)
    make_errors.add_parser(commands)
    again = commands.add_parser("report", help="rewrite tables and report of a campaign")
    again.add_argument("folder", type=Path)
    add_common(arguments, "the tables")
    for command in commands.choices.values():
        add_common(command, "the tables", within=True)
    return arguments


def expand(settings: list[str]) -> list[str]:
    """Return the names with ranges such as 1-4 expanded."""
    found: list[str] = []
    for name in settings:
        span = re.fullmatch(r"(\d)-(\d)", name)
        found += [str(k) for k in range(int(span[1]), int(span[2]) + 1)] if span else [name]
    return list(dict.fromkeys(found))


def residuals_of(path: Path | None) -> tuple[str, Residuals | None]:
    """Return name, with a hash of the content, and content of a residual file. Raises UserError."""
    if path is None:
        return "", None
    residuals = Residuals.load(path)
    return f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}", residuals


def fly(arguments: argparse.Namespace, tracks: list[str]) -> tuple[Store, list[Row]]:
    """Fly a campaign; return its file and the requested rows, in order. Raises UserError for invalid options."""
    a = arguments
    name, residuals = residuals_of(a.residual)
    axes = (a.vehicles, expand(a.settings), a.controllers, a.estimators, a.laps, a.seeds, a.worlds)
    choice = Choice(*axes, a.uncertified, tuple(a.plans), name, a.first_seed)
    if a.workers < 1:
        raise UserError(f"--workers {a.workers}: must be at least 1")
    try:
        store, requested = campaign(tracks, choice, a.out, a.workers, a.scheduler, a.retry, residuals)
    except KeyboardInterrupt:
        remark(f"\ncompleted flights are kept in {a.out}; repeat the command to continue")
        raise
    by_id = {row.case.id: row for row in store.rows()}
    return store, [by_id[name] for name in requested]


def write(store: Store, json_file: Path | None) -> None:
    """Write tables and report beside the store, the tables to `json_file` too, and print the table."""
    folder, rows, about = store.path.parent, store.rows(), store.about()
    found, cost = cells(rows), costs(rows)
    text = f"commit {about.get('commit', '?')}, {about.get('machine', '?')}\n\n{markdown(found)}"
    if any(row.case.world != NOMINAL for row in rows):
        text += f"\n## Cost of each world\n\n{worlds_markdown(cost)}"
    write_file(folder / "tables.md", text)
    for path in (folder / "tables.json", json_file):
        write_json(path, as_json(about, found, cost))
    write_report(folder, about, rows, found)
    print(text.replace("±", "+-"))
    remark(f"written: {folder}/tables.md, tables.json, report.html")


def run(arguments: argparse.Namespace) -> int:
    """Run the requested command; returns the exit code, 1 if a flight failed."""
    if arguments.command == "compare":
        varied, found = compare(Store.existing(arguments.a).rows(), Store.existing(arguments.b).rows())
        print(table(varied, found))
        differences = [asdict(one) | {"mean": one.mean, "verdict": one.verdict} for one in found]
        write_json(arguments.json, {"differs_by_intent": varied, "differences": differences})
        return 0
    for making in (fit_residuals, make_errors):
        if arguments.command == making.NAME:
            making.run(arguments)
            return 0
    if arguments.command == "report":
        write(Store.existing(arguments.folder), arguments.json)
        return 0
    if arguments.rivals:
        return rivals.run(arguments, expand(arguments.settings))
    if len(sys.argv) < 2:
        parser().print_help()
        return 2
    store, rows = fly(arguments, arguments.tracks)
    _, residuals = residuals_of(arguments.residual)
    fly_again(worst(rows, arguments.worst), arguments.tracks, arguments.out, arguments.uncertified, residuals)
    write(store, arguments.json)
    return 1 if any(row.outcome.status == "failed" for row in rows) else 0


def main() -> None:
    """Run `race-bench`."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
