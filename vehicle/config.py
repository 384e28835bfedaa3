"""The strict loader: YAML file in, frozen dataclass out, or one line that names file and path of what is wrong."""

import math
import reprlib
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import cattrs
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import Node, ScalarNode

from vehicle.errors import UserError
from vehicle.files import FileError, read_text

T = TypeVar("T")
# The parser takes 0.1 ms a value and more: what may begin one is counted beforehand. A mapped gate has 30 such marks.
YAML_BYTES, MARKS = 256 << 10, 20_000
NODES, DEPTH = 50_000, 32  # most values of a file once aliases are written out, and levels; tracks have 400 and 6
PARSED = 64  # documents that are kept: a command reads its vehicle several times, and each takes tens of milliseconds
NUMBER_DIGITS = 400  # a float64 written out has 309 digits before the point
KINDS = ("map", "seq", "str", "int", "float", "bool", "null")


class ConfigError(FileError):
    """A file that cannot be read as what it should be."""


def load(path: str | Path, cls: type[T]) -> T:
    """Reads a YAML file into the dataclass `cls`.

    Args:
        path: the file.
        cls: a (nested) dataclass; every key must be a field, every number finite.

    Raises:
        ConfigError: the file is missing, is no YAML, or holds a misspelt, duplicate, missing or malformed field.
    """
    try:
        data = deepcopy(_parse(read_text(Path(path), YAML_BYTES), str(path)))
    except FileError as error:
        raise ConfigError(str(error)) from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected named fields, found {type(data).__name__}")
    return from_dict(data, cls, str(path))


@lru_cache(PARSED)
def _parse(text: str, where: str) -> Any:
    """Plain dictionaries, lists, texts and numbers of a YAML document that stays within the limits; not to be changed."""
    if sum(map(text.count, ",:[{-?")) > MARKS:
        raise ConfigError(f"{where}: has more than {MARKS} values")
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
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # of a parser that meets what it did not expect
        raise ConfigError(f"{where}: not valid YAML ({error})") from None


def _require_modest(root: Node, where: str) -> None:
    """Limits what a document becomes once its aliases are written out, before anything is built of it.

    Raises:
        ConfigError: it is too deep or too large, has a tag, or a scalar that is no text, number or flag.
    """
    sizes: dict[int, int] = {}  # of each node, once all below it are counted

    def size(node: Node, depth: int) -> int:
        place = f"{where}:{node.start_mark.line + 1}"
        if depth > DEPTH:
            raise ConfigError(f"{place}: nested deeper than {DEPTH} levels")
        if id(node) not in sizes:
            kind = str(node.tag).rpartition(":")[2]
            if kind not in KINDS:
                raise ConfigError(f"{place}: {kind!r} is none of {', '.join(KINDS)}")
            if kind in ("int", "float") and len(node.value) > NUMBER_DIGITS:
                raise ConfigError(f"{place}: a number of {len(node.value)} digits")
            below = [] if isinstance(node, ScalarNode) else node.value
            parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
            sizes[id(node)] = 1 + sum(size(part, depth + 1) for part in parts)
        if sizes[id(node)] > NODES:
            raise ConfigError(f"{place}: has more than {NODES} values, written out")
        return sizes[id(node)]

    size(root, 0)


def names(folder: Path) -> list[str]:
    """What `named_path` finds there."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def named_path(name: str, folder: Path, what: str) -> Path:
    """A YAML file by its own path, or by its name in a folder.

    Raises:
        UserError: no such name; the message lists the known.
    """
    if Path(name).suffix in (".yaml", ".yml"):
        return Path(name)
    if name not in (known := names(folder)):
        raise UserError(f"no {what} {shown(name)}; known: {', '.join(known)}, or the path of a YAML file")
    return folder / f"{name}.yaml"


def load_named(name: str, folder: Path, cls: type[T], what: str) -> T:
    """Like `load`, from a file's path or from the name of one in a folder.

    Raises:
        UserError: no such name, or a malformed file.
    """
    return load(named_path(name, folder, what), cls)


def write(path: Path, fields: dict[str, Any]) -> None:
    """Writes fields as YAML that the loader reads back to the same numbers; what is None is left out."""
    yaml = YAML()
    yaml.default_flow_style, yaml.width = None, 120
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(_plain(fields), file)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def from_dict(data: dict[str, Any], cls: type[T], where: str) -> T:
    """Like `load`, from a mapping already read; `where` stands for the file in messages."""
    try:
        return _CONVERTER.structure(data, cls)
    except Exception as error:
        path, reason = _first_cause(error)
        raise ConfigError(f"{where}: {path}: {reason}" if path else f"{where}: {reason}") from None


def shown(value: Any) -> str:
    """A value as a message can hold it: short, whatever it is."""
    return reprlib.repr(value)


def _number(value: Any, _: type) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {shown(value)}")
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {shown(value)}")
    return float(value)


def _whole(value: Any, _: type) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, found {shown(value)}")
    return value


def _flag(value: Any, _: type) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {shown(value)}")
    return value


def _text(value: Any, _: type) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, found {shown(value)}")
    return value


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for cls, hook in ((float, _number), (int, _whole), (bool, _flag), (str, _text)):
        converter.register_structure_hook(cls, hook)

    def mapping(cls: type) -> Any:
        read: Any = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)

        def checked(value: Any, kind: type) -> Any:
            if not isinstance(value, dict):
                raise ValueError(f"expected named fields, found {shown(value)}")
            return read(value, kind)

        return checked

    converter.register_structure_hook_factory(lambda cls: hasattr(cls, "__dataclass_fields__"), mapping)
    return converter


_CONVERTER = _converter()


def _first_cause(error: BaseException, path: str = "") -> tuple[str, str]:
    """Descends to the first leaf of a cattrs error tree, collecting the path (`gates[2].yaw_deg`)."""
    if isinstance(error, BaseExceptionGroup):
        # A misspelt field is missing as well; the spelling is the cause to name.
        inner = next((e for e in error.exceptions if isinstance(e, ForbiddenExtraKeysError)), error.exceptions[0])
        for note in getattr(inner, "__notes__", ()):  # others' are plain strings
            if isinstance(note, AttributeValidationNote):
                path += f".{note.name}" if path else note.name
            elif isinstance(note, IterableValidationNote):
                path += f"[{note.index}]"
        return _first_cause(inner, path)
    if isinstance(error, ForbiddenExtraKeysError):
        return path, f"unknown field {', '.join(sorted(map(repr, error.extra_fields)))}"
    if isinstance(error, KeyError):
        return path, "missing"
    return path, str(error) or type(error).__name__
