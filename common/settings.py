"""Settings of a command: a frozen dataclass, filled from a YAML file (`--config`) and then by `--set KEY=VALUE`."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gate_racer.common.config import from_dict, parse_value, read_fields
from gate_racer.common.errors import UserError

T = TypeVar("T")


class Key(NamedTuple):
    """One setting."""

    name: str  # dotted, such as guidance.retry
    default: Any
    doc: str


def key(default: Any, doc: str) -> Any:
    """Return a dataclass field with a default and a description for the table of keys."""
    return field(default=default, metadata={"doc": doc})


def keys_of(settings: Any, prefix: str = "") -> Iterator[Key]:
    """Yield all keys of an instance with default values, depth first."""
    for one in fields(settings):
        name, value = f"{prefix}{one.name}", getattr(settings, one.name)
        if is_dataclass(value):
            yield from keys_of(value, f"{name}.")
        else:
            yield Key(name, value, one.metadata["doc"])


def key_table(settings: Any) -> str:
    """Return the keys of an instance with default values as a table in Markdown."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for one in keys_of(settings):
        shown = str(one.default).lower() if isinstance(one.default, bool) else one.default
        lines.append(f"| `{one.name}` | {'' if shown is None else f'`{shown}`'} | {one.doc} |")
    return "\n".join(lines)


def add_settings(parser: argparse.ArgumentParser, moved: Mapping[str, str]) -> None:
    """Add `--config` and `--set`.

    Args:
        moved: what replaces each former option, such as guidance.retry=false; the former option is refused with it.
    """
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of further settings, see docs/racing.md")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one such setting, after --config; repeatable"
    )
    for option, replacement in moved.items():
        parser.add_argument(option, nargs="?", action=_Moved, const=replacement, help=argparse.SUPPRESS)


def settings_of(arguments: argparse.Namespace, cls: type[T]) -> T:
    """Return the settings of the command line: the file's, then those of `--set`, else the defaults.

    Raises:
        UserError: a misspelt key or a malformed value, with the file or the option that contains it.
    """
    given: dict[str, Any] = {}
    if arguments.config is not None:
        given = read_fields(arguments.config)
        from_dict(given, cls, str(arguments.config))
    for text in arguments.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {text}: expected KEY=VALUE, such as guidance.retry=false")
        where = f"--set {text}"
        nested = parse_value(value, where)
        for part in reversed(name.split(".")):
            nested = {part: nested}
        from_dict(nested, cls, where)
        given = _merged(given, nested)
    return from_dict(given, cls, "--set")


def _merged(under: Any, over: Any) -> Any:
    """Return nested mappings with the values of `over` in place of those of `under`."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return under | {name: _merged(under.get(name), value) for name, value in over.items()}


class _Moved(argparse.Action):
    """A former option, refused with its replacement."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        raise UserError(f"{option_string}: is now --set {self.const}")
