"""Command lines of campaigns, `race-bench`, and of its sub-commands, of which `board` is also one of `gate-racer`."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.command import add_common, settings_parser
from gate_racer.common.settings import add_settings, key
from gate_racer.estimation.registry import ESTIMATORS
from gate_racer.mpc.names import CONTROLLERS
from gate_racer.race.campaign.choice import USUAL, BenchSettings

WORK = "gate_racer.race.campaign.run"
OPTIONS = {
    "axes, whose combinations are all flown": {
        "--tracks": "tracks",
        "--settings": "settings",
        "--controllers": "controllers",
        "--worlds": "worlds",
    },
    "campaign": {"--seeds": "seeds", "--out": "out"},
}
BOARD_OPTIONS = {"configurations": {"--controllers": "controllers"}, "board": {"--seeds": "seeds", "--out": "out"}}
FIRST_SEED = 50_000  # of a board; none below was flown while the stack was made
OFFICIAL = 20  # runs of the leaderboard lsy_drone_racing, of which half have to finish


@dataclass(frozen=True)
class BoardSettings:
    controllers: tuple[str, ...] = key((CONTROLLERS[0],), "as of race-bench", "NAME")
    estimators: tuple[str, ...] = key((ESTIMATORS[0],), "as of race-bench", choices=tuple(ESTIMATORS), part=True)
    plans: tuple[str, ...] = key((USUAL,), "as of race-bench")
    levels: tuple[str, ...] = key((), "names in race/campaign/board.yaml; else all that can be flown here")
    seeds: int = key(5, "flights in each level of each course", "N", least=1)
    first_seed: int = key(FIRST_SEED, "seed of the first", least=0)
    beside: tuple[str, ...] = key((), "JSON files of other boards, whose rows stand beside")
    retry: bool = key(False, "repeat failed flights")
    workers: int | None = key(None, "number of processes on this machine; else one per core", least=1)
    out: Path | None = key(None, "folder, which is continued if it exists; else logs/board-COMMIT", "FOLDER")


def parser() -> argparse.ArgumentParser:
    about = "Fly campaigns, and continue interrupted ones."
    arguments = settings_parser("race-bench", about, BenchSettings(), OPTIONS, "the tables")
    commands = arguments.add_subparsers(dest="command", metavar="COMMAND")
    versus = commands.add_parser("compare", help="compare two campaigns on their common seeds, with significance tests")
    versus.add_argument("a", type=Path, help="first campaign, folder or file")
    versus.add_argument("b", type=Path, help="second campaign, folder or file")
    fit = commands.add_parser("fit-residuals", help="fit residual models of odometry and plant to logs with truth")
    make = commands.add_parser("make-errors", help="write observation errors of a chosen size, for race-bench")
    for one, file in ((fit, "residual.npz"), (make, "errors.npz")):
        one.add_argument("vehicle", help="name or YAML file of the vehicle")
        one.add_argument("--out", type=Path, default=Path(file), metavar="FILE", help=f"output (default: {file})")
    fit.add_argument("logs", nargs="+", type=Path, metavar="LOG", help=".mcap log of run-mpc or race-bench, with truth")
    make.add_argument("track", help="name or YAML file of the track")
    sizes = "name in race/campaign/published.yaml, or deviations per axis as M,M/S,RAD (default: swift)"
    make.add_argument("size", nargs="?", default="swift", help=sizes)
    open_board = commands.add_parser("lsy", help="fly the levels of the open leaderboard lsy_drone_racing in crazyflow")
    open_board.add_argument("level", type=int, choices=range(4))
    open_board.add_argument("--seeds", type=int, default=OFFICIAL, metavar="N", help="number of races, from seed 0")
    open_board.add_argument("checkout", type=Path, nargs="?", help="fly in the environment of this checkout instead")
    about = "fly the fixed levels of race/campaign/board.yaml by some configurations, and compare them"
    add_settings(commands.add_parser("board", help=about), BoardSettings(), BOARD_OPTIONS, file=False)
    again = commands.add_parser("report", help="rewrite tables and report of a campaign")
    again.add_argument("folder", type=Path)
    for command in commands.choices.values():
        add_common(command, "the tables", within=True)
    return arguments
