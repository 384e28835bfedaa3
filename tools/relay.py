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
        self.lost = 0  # datagrams that could not be sent
        self._out = 0  # those since the last one sent

    def pass_on(self, arrived: socket.socket) -> None:
        """Forward one datagram to the other side. A failed network loses datagrams, and is reported once."""
        try:
            datagram, sender = arrived.recvfrom(DATAGRAM)
            if arrived is self.near:
                self.simulator = sender
                self.far.sendto(datagram, self.target)
            elif self.simulator is not None and sender[0] == self.target[0]:
                self.near.sendto(datagram, self.simulator)
            else:
                return
        except ConnectionError:  # no receiver there (yet)
            return
        except OSError as error:  # ENETUNREACH, EHOSTUNREACH, ENOBUFS and others of a failed network
            self.lost, self._out = self.lost + 1, self._out + 1
            if self._out == 1:
                print(
                    f"{self._name}: {error.strerror}; datagrams are lost until the network is available again",
                    flush=True,
                )
            return
        if self._out:
            print(f"{self._name}: the network is available again, {self._out} datagrams were lost", flush=True)
            self._out = 0

    @property
    def _name(self) -> str:
        return f"{self.target[0]}:{self.target[1]}"

    def close(self) -> None:
        """Close both sockets."""
        self.near.close()
        self.far.close()


def main() -> None:
    """Relay datagrams until Ctrl-C."""
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
