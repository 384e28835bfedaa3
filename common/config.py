"""Strict loader from a YAML file to a frozen dataclass; errors name the file and the path of the field."""

import io
import math
import reprlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from gate_racer.common.errors import meant, nearest
from gate_racer.common.files import CAUSES, FileError, read_text, write_file

if TYPE_CHECKING:  # loaded by the first file, and not by --help
    import cattrs
    from ruamel.yaml.nodes import Node

T = TypeVar("T")
# Largest file, bytes, and number of marks that may begin a value, counted beforehand, since the parser takes at least 0.1 ms per
# value. A mapped gate has 30 marks.
YAML_BYTES, MARKS = 256 << 10, 20_000
NODES, DEPTH = 50_000, 32  # most values of a file with aliases expanded, and levels of nesting; tracks have 400 and 6
PARSED = 64  # documents cached, since a command reads its vehicle several times, each in tens of milliseconds
KINDS = ("map", "seq", "str", "int", "float", "bool", "null")
shown = reprlib.repr  # a short representation of any value, for messages


class ConfigError(FileError):
    """A file that is missing or does not match its schema."""


def load(path: str | Path, cls: type[T]) -> T:
    """Read a YAML file into a (nested) dataclass, whose fields are all its keys. Raises ConfigError."""
    return from_dict(read_fields(path), cls, str(path))


def read_fields(path: str | Path) -> dict[str, Any]:
    """Read the named fields of a YAML file, unchecked. Raises ConfigError."""
    try:
        data = deepcopy(_parse(read_text(Path(path), YAML_BYTES), str(path)))
    except FileError as error:
        raise ConfigError(str(error)) from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected named fields, found {'nothing' if data is None else shown(data)}")
    return data


def parse_value(text: str, where: str) -> Any:
    """Parse one YAML value; `where` names its origin in messages. Raises ConfigError for invalid YAML."""
    return deepcopy(_parse(text, where))


@lru_cache(PARSED)
def _parse(text: str, where: str) -> Any:
    """Parse a YAML document within the limits; cached, so do not modify. Raises ConfigError."""
    if sum(map(text.count, ",:[{-?")) > MARKS:
        raise ConfigError(f"{where}: has more than {MARKS} values")
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(text)
        if node is None:
            return None
        _require_modest(node, where)
        return yaml.constructor.construct_document(node)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: {getattr(error, 'problem', None) or 'not valid YAML'}") from None
    except RecursionError:
        raise ConfigError(f"{where}: nested deeper than {DEPTH} levels") from None
    except CAUSES as error:  # raised by the parser on unexpected input
        raise ConfigError(f"{where}: not valid YAML ({error})") from None


def _require_modest(root: "Node", where: str) -> None:
    """Check the size of a document with its aliases expanded, before it is constructed. Raises ConfigError."""
    sizes: dict[int, int] = {}  # number of values per node, with all below it

    def size(node: "Node", depth: int) -> int:
        place = f"{where}:{node.start_mark.line + 1}"
        if depth > DEPTH:
            raise ConfigError(f"{place}: nested deeper than {DEPTH} levels")
        if id(node) not in sizes:
            kind = str(node.tag).rpartition(":")[2]
            if kind not in KINDS:
                raise ConfigError(f"{place}: unsupported type {kind!r}; expected one of {', '.join(KINDS)}")
            below = [] if isinstance(node.value, str) else node.value
            for key in (item[0] for item in below if isinstance(item, tuple)):
                if str(key.tag).rpartition(":")[2] != "str":
                    raise ConfigError(f"{where}:{key.start_mark.line + 1}: the name {key.value!r} must be a text")
            parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
            sizes[id(node)] = 1 + sum(size(part, depth + 1) for part in parts)
        if sizes[id(node)] > NODES:
            raise ConfigError(f"{place}: has more than {NODES} values after expansion of aliases")
        return sizes[id(node)]

    size(root, 0)


def names(folder: Path) -> list[str]:
    """Return the names that `named_path` finds in a folder."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def named_path(name: str | Path, folder: Path, what: str, *others: Path) -> Path:
    """Return the path of a YAML file given by its path, or by its name in a folder, or in others. Raises UserError."""
    if Path(name).suffix in (".yaml", ".yml"):
        return Path(name)
    name = str(name)
    here = f"{name}.yaml"
    path = f"the path {here}" if name and Path(here).is_file() else "the path of a YAML file"
    known = {one: place for place in (folder, *others) for one in names(place)}
    found = meant(name, known, what, path)
    return known[found] / f"{found}.yaml"


def load_named(name: str | Path, folder: Path, cls: type[T], what: str) -> T:
    """Load a file given by its path, or by its name in a folder, as `load` does. Raises UserError."""
    return load(named_path(name, folder, what), cls)


def write(path: Path, fields: Any, digits: int | None = None) -> None:
    """Write named fields or a dataclass as YAML, without None, with so many significant digits. Raises FileError."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style, yaml.width = None, 120
    text = io.StringIO()
    yaml.dump(_plain(asdict(fields) if is_dataclass(fields) else fields, digits), text)  # type: ignore[arg-type]
    write_file(path, text.getvalue())


def _plain(value: Any, digits: int | None) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one, digits) for key, one in value.items() if one is not None}
    if isinstance(value, tuple | list):
        return [_plain(one, digits) for one in value]
    return float(f"{value:.{digits}g}") if digits is not None and isinstance(value, float) else value


def from_dict(data: dict[str, Any], cls: type[T], where: str) -> T:
    """Structure a mapping into a dataclass, as `load` does; `where` names the file. Raises ConfigError."""
    try:
        return _converter().structure(data, cls)
    except Exception as error:
        path, reason = _first_cause(error)
        raise ConfigError(f"{where}: {path}: {reason}" if path else f"{where}: {reason}") from None


def _number(value: Any, _: type) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {shown(value)}")
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {shown(value)}")
    return float(value)


def _only(kind: type | UnionType, what: str) -> Callable[[Any, type], Any]:
    """Return the hook of a type that takes its own values only; a flag is no number."""

    def hook(value: Any, _: type) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"expected {what}, found {shown(value)}")
        return value

    return hook


_TEXT, _LIST = _only(str, "text"), _only(list | tuple, "a list such as [1, 2, 3]")


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is tuple


@cache
def _converter() -> "cattrs.Converter":
    import cattrs
    from cattrs.gen import make_dict_structure_fn

    base = cattrs.Converter(forbid_extra_keys=True)
    base.register_structure_hook(float, _number)
    base.register_structure_hook(int, _only(int, "a whole number"))
    base.register_structure_hook(bool, _only(bool, "true or false"))
    base.register_structure_hook(str, _TEXT)
    base.register_structure_hook(Path, lambda value, _: Path(_TEXT(value, str)))

    def mapping(cls: type) -> Any:
        read: Any = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)

        def checked(value: Any, kind: type) -> Any:
            if not isinstance(value, dict):
                raise ValueError(f"expected named fields, found {shown(value)}")
            return read(value, kind)

        return checked

    base.register_structure_hook_factory(lambda cls: hasattr(cls, "__dataclass_fields__"), mapping)
    converter = base.copy()  # which does not take text for a list of characters
    converter.register_structure_hook_func(_is_list, lambda value, kind: base.structure(_LIST(value, list), kind))
    return converter


def _first_cause(error: BaseException, path: str = "") -> tuple[str, str]:
    """Descend to the first leaf of a cattrs error tree; returns its path (`gates[2].yaw_deg`) and its message."""
    from cattrs.errors import (
        AttributeValidationNote,
        BaseValidationError,
        ForbiddenExtraKeysError,
        IterableValidationNote,
    )

    if isinstance(error, BaseValidationError):
        # A misspelt field is also missing; report the spelling.
        inner = next((e for e in error.exceptions if isinstance(e, ForbiddenExtraKeysError)), error.exceptions[0])
        for note in getattr(inner, "__notes__", ()):  # notes of other origin are plain strings
            if isinstance(note, AttributeValidationNote):
                path += f".{note.name}" if path else note.name
            elif isinstance(note, IterableValidationNote):
                path += f"[{note.index}]"
        return _first_cause(inner, path)
    if isinstance(error, ForbiddenExtraKeysError):
        unknown, known = sorted(error.extra_fields), [field.name for field in fields(error.cl)]
        others = f" (and {', '.join(map(repr, unknown[1:]))})" if unknown[1:] else ""
        near = nearest(unknown[0], known) or f" known: {', '.join(known)}"
        return path, f"unknown field {unknown[0]!r}{others};{near}"
    if isinstance(error, KeyError):
        return path, "missing"
    return path, str(error) or type(error).__name__
