"""`race-bench`: fly campaigns, report, compare, race several pilots, fit residual models."""

import argparse
from dataclasses import asdict
from pathlib import Path

from gate_racer.common.command import remark, write_json
from gate_racer.common.files import write_file
from gate_racer.common.settings import settings_of
from gate_racer.race.campaign import board, residuals, rivals
from gate_racer.race.campaign.campaign import campaign, commit, fly_again, worst
from gate_racer.race.campaign.case import Store
from gate_racer.race.campaign.choice import BenchSettings
from gate_racer.race.campaign.cli import parser
from gate_racer.race.campaign.compare import as_csv, compare, entries_of, table
from gate_racer.race.campaign.tables import cells, markdown, world_blocks, write_report
from gate_racer.sim.worlds.world import NOMINAL


def write(store: Store, json_file: Path | None) -> None:
    """Write tables and report beside the store, the tables to `json_file` too, and print the table."""
    folder, rows, about = store.path.parent, store.rows(), store.about()
    found = cells(rows)
    text = f"commit {about.get('commit', '?')}, {about.get('machine', '?')}\n\n{markdown(found)}"
    if any(row.case.world != NOMINAL for row in rows):
        text += "\n## Cost of each world\n\n" + "\n".join(block.markdown for block in world_blocks(found))
    write_file(folder / "tables.md", text)
    for path in (folder / "tables.json", json_file):
        write_json(path, {"about": about, "cells": found})
    standing = entries_of(
        rows, about.get("commit", "?"), lambda case: f"{case.setting}, {case.world}".replace(NOMINAL, "as believed")
    )
    write_file(folder / "tables.csv", as_csv(standing))
    write_report(folder, about, rows, found, standing)
    print(text.replace("±", "+-"))
    remark(f"written: {folder}/tables.md, tables.json, tables.csv, report.html")


def _compare(arguments: argparse.Namespace) -> int:
    varied, found = compare(Store.existing(arguments.a).rows(), Store.existing(arguments.b).rows())
    print(table(varied, found))
    differences = [asdict(one) | {"mean": one.mean, "verdict": one.verdict} for one in found]
    write_json(arguments.json, {"differs_by_intent": varied, "differences": differences})
    return 0


def _lsy(arguments: argparse.Namespace) -> int:
    from gate_racer.race.lsy.bench import run  # with a solver of its own, which no other command waits for

    return run(arguments)


COMMANDS = {
    "compare": _compare,
    "fit-residuals": residuals.fit_residuals,
    "make-errors": residuals.make_errors,
    "lsy": _lsy,
    "board": board.run,
}


def run(arguments: argparse.Namespace) -> int:
    """Run the requested command; returns the exit code, 1 if a flight failed."""
    if arguments.command == "report":
        write(Store.existing(arguments.folder), arguments.json)
        return 0
    if arguments.command:
        return COMMANDS[arguments.command](arguments)
    if not (arguments.given or arguments.set or arguments.config):
        parser().print_help()
        return 2
    settings = settings_of(arguments, BenchSettings)
    folder = settings.out or Path("logs") / f"campaign-{commit()}"
    if settings.rivals.grid:
        return rivals.run(settings, folder, arguments.json)
    store, rows = campaign(settings.tracks, [settings], folder, settings.workers, settings.retry)
    fly_again(worst(rows, settings.worst), settings, folder)
    write(store, arguments.json)
    return 1 if any(row.outcome.status == "failed" for row in rows) else 0
