"""Write ULog files (docs.px4.io/main/en/dev_log/ulog_file_format): definitions, subscriptions, data."""

import struct

HEAD = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0)


def message(kind: str, content: bytes) -> bytes:
    return struct.pack("<HB", len(content), ord(kind)) + content


class ULogWriter:
    """Topics of float fields after the stamp; a field of several values is written `name[3]`."""

    def __init__(self, topics: dict[str, str]):
        """Topics by name with their fields, such as `float[3] xyz`, separated by semicolons."""
        self._ids = {name: k for k, name in enumerate(topics)}
        self.definitions = HEAD + message("B", bytes(40))
        for name, fields in topics.items():
            self.definitions += message("F", f"{name}:uint64_t timestamp;{fields};".encode())
        self.data = b"".join(message("A", struct.pack("<BH", 0, k) + name.encode()) for name, k in self._ids.items())

    def write(self, topic: str, t: float, *values: float) -> None:
        stamp = struct.pack("<HQ", self._ids[topic], round(t * 1e6))
        self.data += message("D", stamp + struct.pack(f"<{len(values)}f", *values))

    def bytes(self) -> bytes:
        return self.definitions + self.data
