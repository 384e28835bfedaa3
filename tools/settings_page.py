"""Write docs/settings.md, the keys of all commands with their options: python -m tools.settings_page"""

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from gate_racer.commands import COMMANDS, WITHIN
from gate_racer.common.settings import key_table

PAGE = Path(__file__).parent.parent / "docs/settings.md"
HEAD = """# Settings

Each setting of a command is a key. What is changed often has an option too; all keys are set one at a time by
`--set KEY=VALUE`, and of commands with `--config FILE` in a YAML file. An option takes precedence over `--set`, and `--set`
over the file.
A misspelt key is refused with the nearest one. Log and result of a flight contain its settings, in the form of such a file.

```sh
run-mpc vq1 --set guidance.retry=false --set link.timeout_s=20
```

The same in a file, as in `run-mpc vq1 --config run.yaml`:

```yaml
guidance: {retry: false}
link: {timeout_s: 20}
```

This page is generated from the settings by `python -m tools.settings_page`.
"""


def described() -> dict[str, tuple[Any, Any]]:
    """Return settings and options of each command that has settings."""
    parsers: dict[str, argparse.ArgumentParser] = {
        name: import_module(module).parser() for name, module in COMMANDS.items()
    }
    for name, of in WITHIN.items():
        (actions,) = (a for a in parsers[of]._actions if isinstance(a, argparse._SubParsersAction))
        parsers[f"gate-racer {name}"] = actions.choices[name]
    return {name: parser.described for name, parser in parsers.items() if hasattr(parser, "described")}


def page() -> str:
    titles: dict[type, list[str]] = {}
    known = described()
    for name, (settings, _) in known.items():
        titles.setdefault(type(settings), []).append(name)
    parts = [f"\n## {', '.join(names)}\n\n{key_table(*known[names[0]])}\n" for names in titles.values()]
    return "".join([HEAD, *parts])


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
