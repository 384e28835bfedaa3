"""Messages in the encoding of ROS 2, CDR, by `rosbags`: for bags and viewers, without ROS."""

from pathlib import Path
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from gate_racer.link.rflysim.ros import Message, RosMessage

PACKAGE = "rflysim_ros_pkg"  # of the messages of gimbals
DEFINITIONS = Path(__file__).parents[2] / "examples/ros" / PACKAGE / "msg"


def full_name(kind: str) -> str:
    """Return `package/msg/Name` for `package/Name`."""
    return kind.replace("/", "/msg/")


class Encoder:
    """Encoder of messages by the types of a ROS distribution and of `PACKAGE`."""

    def __init__(self, distribution: Stores = Stores.ROS2_HUMBLE) -> None:
        self.store = get_typestore(distribution)
        for path in sorted(DEFINITIONS.glob("*.msg")):
            self.store.register(get_types_from_msg(path.read_text(encoding="utf-8"), f"{PACKAGE}/msg/{path.stem}"))

    def definition(self, kind: str) -> str:
        """Return the text that defines the type called `package/msg/Name`."""
        return self.store.generate_msgdef(kind, ros_version=2)[0]

    def encode(self, message: Message) -> bytes:
        """Return the CDR of a message. Raises KeyError for a field that its type has not."""
        kind = full_name(message.kind)
        return bytes(self.store.serialize_cdr(self._typed(kind, message.values), kind))

    def _typed(self, name: str, values: RosMessage) -> Any:
        """Return the message of a type with the fields of a dictionary; all others are empty."""
        kinds: Any = dict(self.store.fielddefs[name][1])
        if unknown := values.keys() - kinds.keys():
            raise KeyError(f"{name} has no {unknown}")
        return self.store.types[name](**{field: self._valued(of, values.get(field)) for field, of in kinds.items()})

    def _valued(self, of: Any, value: Any) -> Any:
        kind, what = of
        if kind == Nodetype.NAME:
            return self._typed(what, value or {})
        if kind == Nodetype.BASE:
            return value if value is not None else "" if what[0] == "string" else 0
        item, count = what
        if item[0] == Nodetype.BASE and item[1][0] != "string":
            return np.asarray(value if value is not None else [0] * count, item[1][0])
        return [self._valued(item, one) for one in value or ()]
