"""Write docs/api.md, the public names, and docs/settings.md, the keys of all commands: python -m tools.pages

Docstrings are read from the modules' source, by the table in gate_racer/__init__.py, without importing them.
"""

import argparse
import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from gate_racer import HOMES
from gate_racer.commands import COMMANDS, WITHIN
from gate_racer.common.settings import key_table

ROOT = Path(__file__).parent.parent
API_HEAD = """# The public names

These are imported as `from gate_racer import load_track`; while the version begins with 0 they may change, and the changelog
says so. Each example continues those above it; `folder` is any folder, `np` is NumPy. World NED, body FRD, quaternions wxyz
body to world, SI units. Errors that a user can correct are raised as `UserError`: what, where, and what would be right.

This page is generated from the docstrings by `python -m tools.pages`.
"""
SETTINGS_HEAD = """# Settings

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

This page is generated from the settings by `python -m tools.pages`.
"""


def definition(name: str) -> ast.FunctionDef | ast.ClassDef:
    text = ROOT.joinpath(*HOMES[name].split(".")[1:]).with_suffix(".py").read_text(encoding="utf-8")
    body = ast.parse(text).body
    return next(node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name)


def made_by(node: ast.FunctionDef | ast.ClassDef) -> ast.FunctionDef | None:
    """Return the `__init__` of a class, if it has one."""
    return next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)


def signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return the signature as in a call; the fields of a class without its own `__init__`."""
    made = node if isinstance(node, ast.FunctionDef) else made_by(node)
    if made is not None:
        given = ast.unparse(made.args).removeprefix("self, ").replace("=", " = ")
        return f"{node.name}({given})" + (f" -> {ast.unparse(made.returns)}" if made.returns else "")
    fields = [ast.unparse(one) for one in node.body if isinstance(one, ast.AnnAssign)]
    return f"{node.name}({', '.join(fields)})"


def example(name: str) -> str:
    """Return the example of a docstring, for doctest. Raises ValueError: the docstring has no example."""
    _, found, code = (ast.get_docstring(definition(name)) or "").partition("Examples:\n")
    if not found:
        raise ValueError(f"{name}: its docstring has no example")
    return inspect.cleandoc(code)


def api() -> str:
    page = [API_HEAD]
    for name in HOMES:
        node = definition(name)
        notes = (ast.get_docstring(node) or "").partition("Examples:\n")[0].rstrip()
        if (made := made_by(node)) and (more := ast.get_docstring(made)):
            notes += f"\n\n{more}"
        page += [f"\n## {name}\n", f"```text\n{signature(node)}\n\n{notes}\n```\n", f"```pycon\n{example(name)}\n```\n"]
    return "\n".join(page)


def described() -> dict[str, tuple[Any, Any]]:
    """Return settings and options of each command that has settings."""
    parsers: dict[str, Any] = {name: import_module(module).parser() for name, module in COMMANDS.items()}
    for name, of in WITHIN.items():
        (actions,) = (a for a in parsers[of]._actions if isinstance(a, argparse._SubParsersAction))
        parsers[f"gate-racer {name}"] = actions.choices[name]
    return {name: parser.described for name, parser in parsers.items() if hasattr(parser, "described")}


def settings() -> str:
    titles: dict[type, list[str]] = {}
    known = described()
    for name, (defaults, _) in known.items():
        titles.setdefault(type(defaults), []).append(name)
    parts = [f"\n## {', '.join(names)}\n\n{key_table(*known[names[0]])}\n" for names in titles.values()]
    return "".join([SETTINGS_HEAD, *parts])


PAGES = {ROOT / "docs/api.md": api, ROOT / "docs/settings.md": settings}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
