"""Write docs/api.md, the public names with their docstrings: python -m tools.api_page

They are read from the modules' source, by the table in gate_racer/__init__.py, without importing them.
"""

import ast
import inspect
import sys
from pathlib import Path

from gate_racer import HOMES

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/api.md"
HEAD = """# The public names

These are imported as `from gate_racer import load_track`; while the version begins with 0 they may change, and the changelog
says so. Each example continues those above it; `folder` is any folder, `np` is NumPy. World NED, body FRD, quaternions wxyz
body to world, SI units. Errors that a user can correct are raised as `UserError`: what, where, and what would be right.

This page is generated from the docstrings by `python -m tools.api_page`.
"""


def definition(name: str) -> ast.FunctionDef | ast.ClassDef:
    text = ROOT.joinpath(*HOMES[name].split(".")[1:]).with_suffix(".py").read_text(encoding="utf-8")
    body = ast.parse(text).body
    return next(node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name)


def signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return the signature as in a call; the fields of a class without its own `__init__`."""
    if isinstance(node, ast.FunctionDef):
        return f"{node.name}({', '.join(_arguments(node.args))}) -> {ast.unparse(node.returns) if node.returns else 'None'}"
    made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    if made:
        return f"{node.name}({', '.join(_arguments(made[0].args)[1:])})"
    fields = [ast.unparse(one) for one in node.body if isinstance(one, ast.AnnAssign)]
    return f"{node.name}({', '.join(fields)})"


def _arguments(given: ast.arguments) -> list[str]:
    defaults = [None] * (len(given.args) - len(given.defaults)) + given.defaults
    return [
        ast.unparse(one) + (f" = {ast.unparse(default)}" if default is not None else "")
        for one, default in zip(given.args, defaults, strict=True)
    ]


def example(name: str) -> str:
    """Return the example of a docstring, for doctest. Raises ValueError: the docstring has no example."""
    _, found, code = (ast.get_docstring(definition(name)) or "").partition("Examples:\n")
    if not found:
        raise ValueError(f"{name}: its docstring has no example")
    return inspect.cleandoc(code)


def page() -> str:
    parts = [HEAD]
    for name in HOMES:
        node = definition(name)
        notes = (ast.get_docstring(node) or "").partition("Examples:\n")[0].rstrip()
        made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        if made and (more := ast.get_docstring(made[0])):
            notes += f"\n\n{more}"
        parts += [
            f"\n## {name}\n",
            f"```text\n{signature(node)}\n\n{notes}\n```\n",
            f"```pycon\n{example(name)}\n```\n",
        ]
    return "\n".join(parts)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
