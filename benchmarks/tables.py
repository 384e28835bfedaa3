"""Results of the benchmarks as small JSON files, and the tables of the pages that are generated from them.

python -m gate_racer.benchmarks.tables                       rewrite the tables of all pages from benchmarks/results/*.json
python -m gate_racer.benchmarks.tables logs/x results/x.json  store the flights of a campaign of race-bench as a result

A page has its tables between `<!-- table NAME -->`, or `<!-- table NAME: COLUMN, COLUMN -->`, and `<!-- end -->`.
"""

import argparse
import json
import math
import re
import sys
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from gate_racer.common.errors import UserError, exit_code
from gate_racer.common.files import write_file
from gate_racer.race.campaign.campaign import commit
from gate_racer.race.campaign.case import Store
from gate_racer.race.campaign.tables import by_world, cells

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
PAGES = [ROOT / "README.md", ROOT / "benchmarks/README.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLE = re.compile(r"(<!-- table (\w+)(?:: ([^>]+))? -->\n).*?(?=<!-- end -->)", re.S)
OF_CAMPAIGN = "track", "vehicle", "laps", "setting", "controller", "estimator", "plan", "world"  # of a row
Cell = str | float | Decimal | None  # one number, a text, or None where nothing was measured


@dataclass(frozen=True)
class Result:
    """Table, and where its figures come from."""

    title: str
    command: str
    commit: str
    world: str
    seeds: str
    columns: list[str]
    rows: list[list[Cell]]

    @classmethod
    def of(cls, title: str, rows: list[dict[str, Any]], world: str = "", seeds: str = "", digits: int = 3) -> "Result":
        """Return the result of the present program, whose rows have the columns as keys, with numbers of so many digits."""
        command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
        found = [[_plain(cell, digits) for cell in row.values()] for row in rows]
        return cls(title, command, commit(), world, seeds, list(rows[0]) if rows else [], found)

    @classmethod
    def load(cls, file: Path) -> "Result":
        """Return a stored result, whose numbers keep the digits that the file has. Raises UserError."""
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8"), parse_float=Decimal))
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{file}: {error}") from None

    def texts(self, columns: list[str]) -> list[list[str]]:
        """Return heads and rows of the columns as text. Raises UserError for an unknown column."""
        if unknown := set(columns) - set(self.columns):
            raise UserError(f"{self.title}: no column {min(unknown)!r}, but {', '.join(self.columns)}")
        at = [self.columns.index(name) for name in columns]
        return [columns, *(["" if row[k] is None else str(row[k]) for k in at] for row in self.rows)]

    def markdown(self, columns: list[str]) -> str:
        """Return the table of these columns, with a line that says where it comes from."""
        head, *rows = ["| " + " | ".join(row) + " |" for row in self.texts(columns)]
        about = [self.world, self.seeds and f"seeds {self.seeds}", self.commit and f"commit {self.commit}"]
        source = "; ".join(filter(None, [f"`{self.command}`", *about]))
        return "\n".join([f"{self.title} ({source}):", "", head, "|---" * len(columns) + "|", *rows, ""])

    def __str__(self) -> str:
        rows = self.texts(self.columns)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.rjust(n) for cell, n in zip(row, widths, strict=True)) for row in rows)


def _plain(cell: Any, digits: int) -> Cell:
    """Return a cell as JSON has it; None for what is not a number."""
    if cell is None or isinstance(cell, str | int):
        return cell
    return round(float(cell), digits) if math.isfinite(cell) else None


def conclude(file: Path | None, *results: Result) -> None:
    """Print results, and write them: the first to `file`, further ones beside it, with a number."""
    for k, result in enumerate(results):
        print(f"\n{result.title}\n{result}", flush=True)
        if file is not None:
            path = file.with_stem(f"{file.stem}-{k + 1}") if k else file
            write_file(path, json.dumps(asdict(result), indent=1) + "\n")


def script(text: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark described by `text`, with `--json`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as in benchmarks/results")
    return parser


def of_campaign(folder: Path) -> Result:
    """Return the flights of a campaign by configuration and world. Raises UserError without a campaign."""
    store = Store.existing(folder)
    rows = []
    for one in (one for group in by_world(cells(store.rows())) for one in group):
        row = {name: getattr(one.configuration, name) for name in OF_CAMPAIGN}
        row |= {"finished": one.finished, "of": one.flights, "median time s": one.race and one.race.median}
        row |= {"least margin m": one.margin and one.margin.least, "p95 at the gates m": one.at_gates_p95}
        rows.append({"course": row.pop("track"), **row, "NEES of 9": one.nees and one.nees.mean})
    seeds = sorted({row.case.seed for row in store.rows()})
    found = Result.of(folder.name, rows, "", f"{seeds[0]} to {seeds[-1]}")
    return Result(**asdict(found) | {"command": "race-bench", "commit": store.about().get("commit", "")})


def rendered(page: str) -> str:
    """Return a page with its tables as the results say. Raises UserError for a table without a result."""

    def table(found: re.Match[str]) -> str:
        result = Result.load(RESULTS / f"{found[2]}.json")
        return found[1] + result.markdown(found[3].split(", ") if found[3] else result.columns)

    return TABLE.sub(table, page)


def run(arguments: argparse.Namespace) -> int:
    """Rewrite the pages, or store a campaign; returns the exit code."""
    if arguments.campaign is not None:
        conclude(arguments.result, of_campaign(arguments.campaign))
        return 0
    for page in PAGES:
        write_file(page, rendered(page.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", type=Path, nargs="?", help="folder of a campaign")
    parser.add_argument("result", type=Path, nargs="?", help="file to write")
    sys.exit(exit_code(lambda: run(parser.parse_args())))
