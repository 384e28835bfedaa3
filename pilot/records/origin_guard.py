"""Proxy that passes WebSocket handshakes to a server unless a foreign web page makes them.

Any page in a browser may connect to ports of this machine, and the browser names the page in the header Origin (RFC 6455,
10.2); programs send none. Foxglove's SDK does not check it.
"""

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator

from gate_racer.link.peer import Address

HEAD_BYTES, HEAD_S = 16 << 10, 10.0  # largest handshake, bytes, and its time-out, s
BLOCK_BYTES = 64 << 10  # bytes read at a time (chosen)
# The viewers themselves, and pages of this machine. Sandboxed frames of any page send "null".
ALLOWED_ORIGINS = re.compile(r"file://|https://app\.foxglove\.dev|https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def welcome(head: bytes) -> bool:
    """Return whether a handshake may pass: a WebSocket upgrade with no or an allowed Origin, and no ambiguous header."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
    if any(line[:1] in (b" ", b"\t") or set(line) & set(b"\0\r\n") for line in lines):
        return False
    fields = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    origins = [value.decode("latin-1") for name, value in fields if name == b"origin"]
    upgrades = any(name == b"upgrade" and value.lower() == b"websocket" for name, value in fields)
    return upgrades and len(origins) <= 1 and all(map(ALLOWED_ORIGINS.fullmatch, origins))


class OriginGuard:
    """Proxy from an address to the server behind it, in a thread of its own."""

    def __init__(self, address: Address, server: Address):
        """Start listening. Raises OSError when the address is unavailable."""
        self._server, self._loop = server, asyncio.new_event_loop()
        self._listening = self._loop.run_until_complete(asyncio.start_server(self._accept, *address, limit=HEAD_BYTES))
        self.port: int = self._listening.sockets[0].getsockname()[1]
        threading.Thread(target=self._loop.run_forever, name="origin guard", daemon=True).start()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = OSError, EOFError, asyncio.LimitOverrunError, TimeoutError
        with contextlib.suppress(*gone), _closing(writer):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            if not welcome(head):
                writer.write(FORBIDDEN)
                await writer.drain()
                return
            from_server, to_server = await asyncio.open_connection(*self._server)
            with _closing(to_server):
                to_server.write(head)
                directions = {
                    asyncio.ensure_future(_pass(*ends)) for ends in ((reader, to_server), (from_server, writer))
                }
                _, running = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
                for task in running:
                    task.cancel()


@contextlib.contextmanager
def _closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(BLOCK_BYTES):
            writer.write(data)
            await writer.drain()
