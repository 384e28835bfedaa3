"""Settings of a command: frozen dataclasses, filled from a YAML file (`--config`), by `--set KEY=VALUE`, and by options.

Each setting is a key. An option is the short form of a frequent one, and takes precedence over `--set`, which does over the file.
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from gate_racer.common.config import from_dict, parse_value, read_fields
from gate_racer.common.errors import UserError
from gate_racer.common.parts import is_part

T = TypeVar("T")
UNIT = re.compile(r"(_m|_s|_mb)+$")


class About(NamedTuple):
    """Description of a setting, and the values that it can have."""

    doc: str
    metavar: str | None = None  # of its option
    choices: tuple[Any, ...] = ()  # all values; empty for any
    suffix: str = ""  # of files that are values as well
    ending: str = ""  # suffix that a file must have
    part: bool = False  # whether the name of a user's class is a value as well
    least: float = -inf
    most: float = inf
    positive: bool = False
    const: Any = None  # value of its option without an argument; None: it needs one
    typed: bool = False  # whether it must be typed, and cannot stand in a file

    def objection(self, value: Any) -> str:
        """Return what a value has to be; empty if it is that."""
        more = [f"FILE{self.suffix}"] * bool(self.suffix) + ["file.py:Class"] * self.part
        fits = (self.suffix and str(value).endswith(self.suffix)) or (self.part and is_part(str(value)))
        if self.choices and value not in self.choices and not fits:
            return f"must be one of {', '.join(map(str, [*self.choices, *more[:-1]]))}" + (
                f", or {more[-1]}" if more else ""
            )
        if self.ending and value is not None and Path(value).suffix != self.ending:
            return f"must end in {self.ending}"
        if value is None or not isinstance(value, float | int):
            return ""
        if self.positive and not value > 0:
            return "must be positive"
        if not self.least <= value <= self.most:
            between = f"must lie between {max(self.least, 0.0) if self.positive else self.least:g} and {self.most:g}"
            return between if self.most < inf else f"must be at least {self.least:g}"
        return ""


class Key(NamedTuple):
    name: str  # dotted, such as guidance.retry
    kind: Any  # its type
    default: Any
    about: About

    @property
    def listed(self) -> bool:
        return ... in get_args(self.kind)

    def parsed(self, text: Any, where: str) -> Any:
        """Return the value that a command line means. Raises UserError for a malformed one."""
        if not isinstance(text, str):
            return text
        if self.listed:
            parts = parse_value(text, where) if text.startswith("[") else text.split()
            return [str(one) if isinstance(one, int | float) else one for one in parts]
        return text if {str, Path} & {self.kind, *get_args(self.kind)} else parse_value(text, where)


def key(default: Any, doc: str, metavar: str | None = None, **limits: Any) -> Any:
    """Return a dataclass field with a default and what `About` says of it."""
    return field(default=default, metadata={"about": About(doc, metavar, **limits)})


def limited(default: Any = MISSING, **limits: Any) -> Any:
    """Return a field of a `Limited` dataclass with limits as of `About`."""
    return field(default=default, metadata={"limits": About("", **limits)})


class Limited:
    """Base class of dataclasses that checks their fields made by `limited`, each entry of tuples. Raises ValueError."""

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            given = getattr(self, one.name)
            for value in given if isinstance(given, tuple) else (given,):
                if "limits" in one.metadata and (objection := one.metadata["limits"].objection(value)):
                    raise ValueError(f"{one.name}: {value!r} {objection}")


_kinds = cache(get_type_hints)


def keys_of(settings: Any, prefix: str = "") -> Iterator[Key]:
    """Yield all keys of an instance with default values, depth first."""
    kinds = _kinds(settings.__class__)
    for one in fields(settings):
        name, value = f"{prefix}{one.name}", getattr(settings, one.name)
        if "about" in one.metadata:
            yield Key(name, kinds[one.name], value, one.metadata["about"])
        elif is_dataclass(value):
            yield from keys_of(value, f"{name}.")


def key_table(settings: Any, options: Mapping[str, Mapping[str, str]]) -> str:
    """Return the keys of an instance with default values, and their options, as a table in Markdown."""
    short = {name: option for group in options.values() for option, name in group.items()}
    lines = ["| key | option | default | meaning |", "|---|---|---|---|"]
    for one in keys_of(settings):
        option = f"`{short[one.name]}`" if one.name in short else ""
        default = f"`{_shown(one.default)}`" if _shown(one.default) else ""
        own = ", or `file.py:Class`" if one.about.part else ""
        among = f" ({', '.join(one.about.choices)}{own})" if one.about.choices else ""
        lines.append(f"| `{one.name}` | {option} | {default} | {one.about.doc}{among} |")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return " ".join(value)
    return "" if value is None or is_dataclass(value) else str(value)


def add_settings(
    parser: argparse.ArgumentParser, settings: Any, options: Mapping[str, Mapping[str, str]], file: bool = True
) -> None:
    """Add `--config` (unless not `file`), `--set`, and options, in titled groups, of some keys of default settings."""
    parser.described = settings, options  # type: ignore[attr-defined]  # for the page of all settings
    known = {one.name: one for one in keys_of(settings)}
    for title, group in options.items():
        section = parser.add_argument_group(title)
        for option, name in group.items():
            section.add_argument(option, action=_Option, **_form(known[name]))
    if file:
        parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings, by their keys")
    further = ", ".join(name for name in known if all(name not in group.values() for group in options.values()))
    parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help="settings, one each")
    parser.epilog = f"Further keys, described in docs/settings.md: {further}."
    parser.set_defaults(given=(), **({} if file else {"config": None}))


def spelled(name: str) -> str:
    """Return the option that a user may expect for a key, by the last part of its name without the unit."""
    return "--" + UNIT.sub("", name.rpartition(".")[2].lstrip("-").replace("-", "_")).replace("_", "-")


def instead(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return what sets the keys of a command without an option of their own, by the option that a user may expect."""
    settings, _ = getattr(parser, "described", (None, None))
    sets: dict[str, str] = {}
    for one in keys_of(settings) if settings is not None else ():
        if (option := spelled(one.name)) not in parser._option_string_actions:
            sets[option] = " or ".join(filter(None, (sets.get(option), f"--set {one.name}=VALUE")))
    return sets


def _form(one: Key) -> dict[str, Any]:
    flag = one.kind is bool
    default = "" if flag or not _shown(one.default) else f" (default: {_shown(one.default)})"
    told = one.about.doc.replace("%", "%%") + default
    form: dict[str, Any] = {"const": one, "default": argparse.SUPPRESS, "help": told}
    if flag:
        return form | {"nargs": 0}
    if one.about.choices and not (one.listed or one.about.suffix or one.about.part):
        form["choices"] = one.about.choices
    if Path in (one.kind, *get_args(one.kind)):
        form["type"] = Path
    if one.about.const is not None or one.listed:
        form["nargs"] = "+" if one.listed else "?"
    return form | {"metavar": one.about.metavar}


def settings_of(arguments: argparse.Namespace, cls: type[T]) -> T:
    """Return the settings: those of options, else of `--set`, else of the file, else the defaults. Raises UserError."""
    return from_dict(given_fields(arguments, cls), cls, "settings")


def given_fields(arguments: argparse.Namespace, cls: type) -> dict[str, Any]:
    """Return the settings that the command line gives, as nested fields. Raises UserError as `settings_of`."""
    known = {one.name: one for one in keys_of(cls())}
    given: dict[str, Any] = {}
    if arguments.config is not None:
        given = read_fields(arguments.config)
        for one in _require(given, cls, str(arguments.config)):
            if one.about.typed and one.default != known[one.name].default:
                raise UserError(f"{arguments.config}: {one.name}: must be typed, by --set")
    steps = []  # the settings with each further one
    for where, name, value in (*(_assigned(text) for text in arguments.set), *arguments.given):
        nested = known[name].parsed(value, where) if name in known else parse_value(str(value), where)
        for part in reversed(name.split(".")):
            nested = {part: nested}
        given = _merged(given, nested)
        steps.append((where, given))
    try:
        _require(given, cls, "settings")
    except UserError:
        for where, so_far in steps:  # the first one that is at fault
            _require(so_far, cls, where)
        raise
    return given


def _assigned(text: str) -> tuple[str, str, str]:
    """Return place, name and value of `--set`. Raises UserError for any other text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set {text}: expected KEY=VALUE; a track or file comes before --set")
    return f"--set {text}", name, value


def _require(given: Any, cls: type, where: str) -> list[Key]:
    """Return the keys with the values given at one place, else their defaults. Raises UserError with that place."""
    return require_allowed(from_dict(given, cls, where), f"{where}: ")


def require_allowed(settings: Any, where: str = "") -> list[Key]:
    """Return the keys of settings with their values. Raises UserError for one that its key does not allow."""
    found = list(keys_of(settings))
    for one in found:
        for value in one.default if one.listed else (one.default,):
            if objection := one.about.objection(value):
                told = f"{value:g}" if isinstance(value, float) else value
                names_both = where.startswith("--") and "{" not in where  # an option of one value
                named = "" if names_both else f"{one.name} {told}: "
                raise UserError(f"{where}{named}{objection}")
    return found


def require_usual(settings: Any, names: Iterable[str], why: str, section: str = "") -> None:
    """Raise UserError for a key of these that has not its default value, since it has no meaning here."""
    for name in names:
        if getattr(settings, name) != getattr(type(settings)(), name):
            raise UserError(f"{section}{name}: {why}")


def _merged(under: Any, over: Any) -> Any:
    """Return nested mappings with the values of `over` in place of those of `under`."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return under | {name: _merged(under.get(name), value) for name, value in over.items()}


class _Option(argparse.Action):
    """An option of a key: stores its place, the key's name and the value."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        one: Key = self.const
        if one.kind is bool:
            shown, value = option_string, True
        else:
            value = one.about.const if values is one else values
            shown = f"{option_string} {_shown(tuple(value) if one.listed else value)}"
        namespace.given = (*namespace.given, (shown, one.name, str(value) if isinstance(value, Path) else value))
