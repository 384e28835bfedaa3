"""CopterSim's IMU service: sends the vehicle's IMU samples to each requester at its own rate."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from gate_racer.link.messages import Imu
from gate_racer.link.peer import Address
from gate_racer.link.profile import Profile, RateDivider
from gate_racer.link.rflysim.copter import ImuRequest, ImuSample, decode_imu_request
from gate_racer.link.rflysim.request import reply_host
from gate_racer.link.rflysim.udp import to_stderr
from gate_racer.link.sockets import LinkError
from gate_racer.sim.wire.request_port import RequestPort

MOST_SUBSCRIPTIONS = 8  # largest number of subscriptions (chosen)


@dataclass(slots=True)
class _Subscription:
    rate_hz: int
    beat: RateDivider
    sent: int = 0


class CopterSimImu(RequestPort):
    """IMU service on its own socket. A subscription ends only when newer ones displace it: the protocol has no release."""

    def __init__(self, own: Address, profile: Profile):
        """Bind `own`, the address for requests. Raises LinkError when the port is in use."""
        self._hz, self._epoch_s = profile.imu_hz, profile.video_epoch_s
        self._subscriptions = dict[Address, _Subscription]()  # by target address, most recent request last
        self._count = 0
        super().__init__(own, "IMU, ")

    def serve(self, measured: Iterable[Imu]) -> None:
        """Process requests and send the samples of a tick. Their clock is that of the frames: s since the start of CopterSim."""
        self._process_requests()
        for imu in measured:
            self._count += 1
            self._send(imu)

    def _send(self, imu: Imu) -> None:
        for target, subscription in self._subscriptions.items():
            if subscription.beat(self._count):
                subscription.sent = (subscription.sent + 1) % 0x80000000
                datagram = ImuSample(subscription.sent, self._epoch_s + imu.t, imu.accel, imu.gyro).encode()
                with contextlib.suppress(OSError):  # no listener there any more
                    self._socket.sendto(datagram, target)

    def _receive(self, datagram: bytes, sender: Address) -> None:
        request = decode_imu_request(datagram)
        if (wrong := _fault(request)) is not None:
            self._refuse(sender, wrong[0], ": ".join(wrong))
        else:
            self._grant(request, sender)

    def _grant(self, request: ImuRequest, sender: Address) -> None:
        target = reply_host(request.address, sender[0]), request.port
        known = self._subscriptions.pop(target, None)
        if known is None and len(self._subscriptions) == MOST_SUBSCRIPTIONS:
            self._subscriptions.pop(next(iter(self._subscriptions)))
        if request.rate_hz > self._hz:
            self._say(f"rate {request.rate_hz}", f"{request.rate_hz} Hz were requested, limited to {self._hz:g} Hz")
        if known is None or known.rate_hz != request.rate_hz:
            beat = RateDivider(min(request.rate_hz, self._hz), self._hz)
            known = _Subscription(request.rate_hz, beat, known.sent if known is not None else 0)
        self._subscriptions[target] = known


def _fault(request: ImuRequest) -> tuple[str, str] | None:
    """Return the invalid field of a request and its valid values; None if the request is valid."""
    if request.sensor_type != 0:
        return "sensor type", f"must be 0, the IMU, found {request.sensor_type}"
    if not request.rate_hz:
        return "rate", "must be at least 1 Hz, found 0"
    return None if request.port else ("port", "must be 1 to 65535, found 0")


def open_imu(own: Address, profile: Profile, chosen: bool) -> CopterSimImu | None:
    """Open CopterSim's IMU service; None, with a message on stderr, where another program has the default port.

    Raises:
        LinkError: the port is in use and was `chosen` by the user.
    """
    try:
        return CopterSimImu(own, profile)
    except LinkError as error:
        if chosen:
            raise
        to_stderr(f"{error}: CopterSim's IMU is not simulated (rflysim://HOST:PORT?imu=PORT names another)")
        return None
