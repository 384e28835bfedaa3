"""`gate-racer`: lists of what can be flown, checks of this machine, example programs, and completion scripts."""

import argparse
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from gate_racer.commands import COMMANDS
from gate_racer.common.command import write_json
from gate_racer.common.config import names
from gate_racer.common.errors import UserError, say
from gate_racer.common.files import read_bytes, write_file
from gate_racer.doctor import examine
from gate_racer.estimation.registry import ESTIMATORS
from gate_racer.link.msp.profile import FOLDER as MSP_PROFILES
from gate_racer.link.profile import FOLDER as PROFILES
from gate_racer.mpc.names import CONTROLLERS
from gate_racer.mpc.policy.policy import names as policies
from gate_racer.perception.registry import DETECTORS
from gate_racer.rflysim import examine_rflysim, make_scene
from gate_racer.sim.view.style import FOLDER as STYLES
from gate_racer.sim.worlds.distribution import FOLDER as WORLDS
from gate_racer.tracks.track import FOLDER as TRACKS
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES

EXAMPLES = TRACKS.parent / "examples"
PAGES = TRACKS.parent / "docs"
EXAMPLE_BYTES = 1 << 20  # largest example

FOLDERS = {  # folder of the named files, by kind and option
    "tracks": TRACKS,
    "vehicles (--vehicle)": VEHICLES,
    "wire profiles (--profile)": PROFILES,
    "flight controllers by MSP (race-sim --profile)": MSP_PROFILES,
    "worlds (--world)": WORLDS,
    "styles (world.style)": STYLES,
}
COMPLETED = {  # folders of the names of an argument
    **dict.fromkeys(("track", "tracks", "what"), (TRACKS,)),
    **dict.fromkeys(("vehicle", "vehicles"), (VEHICLES,)),
    **dict.fromkeys(("world", "worlds"), (WORLDS,)),
    "profile": (PROFILES, MSP_PROFILES),
    "style": (STYLES,),
}


def run(arguments: argparse.Namespace) -> int:
    """List names, check this machine or print a completion script; return 1 if something required for flight is missing."""
    if arguments.what == "list":
        known = {kind: names(folder) for kind, folder in FOLDERS.items()} | {
            "controllers (--controller)": list(CONTROLLERS),
            "policies (--controller)": policies(),
            "detectors (--detector)": list(DETECTORS),
            "estimators (perception.estimator)": list(ESTIMATORS),
        }
        for kind, named in known.items():
            say(f"{kind}: {', '.join(named)}")
        write_json(arguments.json, {kind.partition(" (")[0]: named for kind, named in known.items()})
        say("In place of a name, options also accept the path of a file, or a class of your own (docs/parts.md).")
        say(f"Files to copy: {TRACKS.parent} (tracks/, vehicle/, link/profiles/, sim/worlds/, mpc/)")
        return 0
    if arguments.what == "completion":
        say(completion(arguments.shell, COMMANDS))
        return 0
    if arguments.what == "examples":
        return _copy_examples(arguments.json)
    if arguments.what == "rflysim-scene":
        return make_scene(arguments)
    if arguments.what == "rflysim-bridge":
        from gate_racer.bridge import run_bridge  # slow to load

        return run_bridge(arguments)
    findings = examine(Path.cwd()) if arguments.server is None else examine_rflysim(arguments.server)
    for finding in findings:
        say(finding.line)
    write_json(arguments.json, findings)
    return 0 if all(finding.good for finding in findings if finding.needed) else 1


def completion(shell: str, commands: Mapping[str, str]) -> str:
    """Return a script by `shtab` that completes commands (module by name), options and known names. Raises UserError."""
    try:
        import shtab
    except ImportError:
        raise UserError("completion needs shtab: pip install shtab") from None
    scripts = []
    for name, module in commands.items():
        parser = import_module(module).parser()
        parser.prog = name
        for action in parser._actions:
            if action.dest in COMPLETED and action.choices is None:
                action.choices = [known for folder in COMPLETED[action.dest] for known in names(folder)]
            elif action.type is Path:
                action.complete = shtab.FILE  # attribute name defined by shtab
        scripts.append(shtab.complete(parser, shell))
    return "\n".join(scripts)


def _copy_examples(json: Path | None) -> int:
    """Copy the examples, the bootcamp's pages and those that `--help` names to the working directory; existing files are kept."""
    lessons = PAGES / "bootcamp"
    kinds = [(EXAMPLES, "*.py"), (EXAMPLES, "*.json"), (EXAMPLES / "ros", "*.*"), (lessons, "*.md"), (lessons, "*.png")]
    kinds += [(PAGES, "settings.md"), (PAGES, "rflysim.md")]
    paths = [path for folder, pattern in kinds for path in sorted(folder.rglob(pattern))]
    files = {Path(path.relative_to(EXAMPLES.parent)): path for path in paths}
    absent = [file for file in files if not file.exists()]
    for file in absent:
        write_file(file, read_bytes(files[file], EXAMPLE_BYTES))
    kept = len(files) - len(absent)
    also = f", {kept} that exist are kept" if kept else ""
    say(f"{len(absent)} files written to {EXAMPLES.name}/ and {PAGES.name}/{also}")
    write_json(json, {"written": absent, "kept": kept})
    return 0
