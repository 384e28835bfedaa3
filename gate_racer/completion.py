"""Shell completion of every command, its options and known names, as a script by `shtab`."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from gate_racer.common.config import names
from gate_racer.common.errors import UserError
from gate_racer.link.msp.profile import FOLDER as MSP_PROFILES
from gate_racer.link.profile import FOLDER as PROFILES
from gate_racer.sim.view.look import FOLDER as LOOKS
from gate_racer.sim.worlds.distribution import FOLDER as WORLDS
from gate_racer.tracks.track import FOLDER as TRACKS
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES

SHELLS = ("bash", "zsh", "fish")
FOLDERS = {  # folders of the names of an argument
    "track": (TRACKS,),
    "vehicle": (VEHICLES,),
    "profile": (PROFILES, MSP_PROFILES),
    "world": (WORLDS,),
    "look": (LOOKS,),
}
ALSO = {"what": "track", "tracks": "track", "vehicles": "vehicle", "worlds": "world"}  # other names of such arguments


def completion(shell: str, commands: Mapping[str, str]) -> str:
    """Return a script for one of SHELLS.

    Args:
        commands: module by command; each has a `parser`.

    Raises:
        UserError: shtab is not installed.
    """
    try:
        import shtab
    except ImportError:
        raise UserError("completion needs shtab: pip install shtab") from None
    scripts = []
    for name, module in commands.items():
        parser = import_module(module).parser()
        parser.prog = name
        for action in parser._actions:
            kind = ALSO.get(action.dest, action.dest)
            if kind in FOLDERS and action.choices is None:
                action.choices = [known for folder in FOLDERS[kind] for known in names(folder)]
            elif action.type is Path:
                action.complete = shtab.FILE  # attribute name defined by shtab
        scripts.append(shtab.complete(parser, shell))
    return "\n".join(scripts)
