"""Relay of the simulator's UDP between machines. Run it on the simulator's machine; it needs Python only.

    python relay.py 192.168.1.20

The AI Grand Prix simulator communicates with 127.0.0.1 only. The relay acts as its client there (ports 14550 and 5600), forwards
everything to the machine that flies, and that machine's commands back to the simulator.
"""

import argparse
import contextlib
import selectors
import socket

MAVLINK, VIDEO = 14550, 5600  # UDP ports of the simulator's client
DATAGRAM = 65535  # bytes, greatest size of a datagram


class Relay:
    """Relay of one port by two sockets: one as the simulator's client, one towards the machine that flies."""

    def __init__(self, target: str, port: int, local: str = "127.0.0.1", local_port: int | None = None):
        self.target = (target, port)
        self.near, self.far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self.near.bind((local, port if local_port is None else local_port))
        self.far.bind(("0.0.0.0", 0))
        self.simulator: tuple[str, int] | None = None

    def pass_on(self, arrived: socket.socket) -> None:
        """Forward one datagram to the other side. One that cannot be sent, as in a failed network, is lost."""
        with contextlib.suppress(OSError):
            datagram, sender = arrived.recvfrom(DATAGRAM)
            if arrived is self.near:
                self.simulator = sender
                self.far.sendto(datagram, self.target)
            elif self.simulator is not None and sender[0] == self.target[0]:
                self.near.sendto(datagram, self.simulator)

    def close(self) -> None:
        self.near.close()
        self.far.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Relay the simulator's UDP to the machine of the pilot.")
    parser.add_argument("host", help="address of the machine that runs `run-mpc --live`")
    target = socket.gethostbyname(parser.parse_args().host)
    with selectors.DefaultSelector() as selector:
        for port in (MAVLINK, VIDEO):
            relay = Relay(target, port)
            for side in (relay.near, relay.far):
                selector.register(side, selectors.EVENT_READ, relay)
        print(f"127.0.0.1 ports {MAVLINK} and {VIDEO} <-> {target}; stop with Ctrl-C")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                for key, _ in selector.select(timeout=0.5):
                    key.data.pass_on(key.fileobj)


if __name__ == "__main__":
    main()
