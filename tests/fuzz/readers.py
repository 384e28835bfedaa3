"""Everything that reads what others wrote: files by path, codecs by datagrams."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gate_racer.bootcamp.stages import replay as fly_again
from gate_racer.common.files import read_bytes, reading
from gate_racer.common.images import IMAGE_BYTES, decode_image
from gate_racer.estimation.registry import make_estimator
from gate_racer.field.identify.signals import read_signals
from gate_racer.field.mapping.flight import read_flight
from gate_racer.field.report.flight import read_logged_flight
from gate_racer.field.report.pages import compared_page, flight_page
from gate_racer.link.client import ClientCodec
from gate_racer.link.logs.reader import read_log_signals
from gate_racer.link.logs.ros import ros_images
from gate_racer.link.messages import Arm, Attitude, AttitudeTarget, Heartbeat, Imu, VideoFrame
from gate_racer.link.msp.messages import Code, MspCodec
from gate_racer.link.msp.preflight import load_preflight
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.link.profile import load_profile
from gate_racer.link.record import read_records
from gate_racer.link.rflysim.request import load_sensors
from gate_racer.link.rflysim.stream import Payload, Stream, fragments, reader
from gate_racer.link.server import ServerCodec
from gate_racer.link.video import datagrams, image_reassembler
from gate_racer.model.rims import GateAppearance
from gate_racer.mpc.policy.policy import load_policy
from gate_racer.mpc.problem import load_settings
from gate_racer.pilot.gates_in_images import images
from gate_racer.pilot.records.imported import read_any_records
from gate_racer.pilot.replay import read_log, replay
from gate_racer.planner.imported import AS_PUBLISHED, read_peer_plan
from gate_racer.planner.plan import read_plan
from gate_racer.planner.task import Task
from gate_racer.race.campaign.case import Store
from gate_racer.race.campaign.tables import cells, markdown
from gate_racer.sim.betaflight.station import BetaflightStation
from gate_racer.sim.physics.residual import Residuals
from gate_racer.sim.report import read_report
from gate_racer.sim.view.style import load_style
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.fuzz.corpus import LEVEL, ROOT, jpeg

DCL = load_vehicle("dcl")
VQ1 = load_track(ROOT / "tracks/vq1.yaml")
PROFILE = load_profile("dcl")


def _quiet(*_: object) -> None:
    """No line about what was lost."""


def _records(path: Path) -> None:
    for _ in read_records(path, report=_quiet):
        pass


def _replay(path: Path) -> None:
    log = read_log(path)
    with reading(path):
        replay(log, VQ1, DCL, make_estimator("eskf", VQ1.start, DCL, GateAppearance()), None)


def _page(path: Path) -> None:
    flight = read_logged_flight(path, report=_quiet)
    with reading(path):
        flight_page(flight, VQ1)
        compared_page([flight, flight], VQ1)


def _campaign(path: Path) -> None:
    store = Store.existing(path)
    try:
        markdown(cells(store.rows()))
        store.about(), store.done()
    finally:
        store.close()


def _images(path: Path) -> None:
    for _, data in images([path]):
        decode_image(data, (640, 360))


def _bag(path: Path) -> None:
    read_log_signals(path)
    for _ in ros_images(path):
        pass


@dataclass(frozen=True)
class FileReader:
    """One reader with the corpus files that it takes in turn; `beside` is copied unchanged next to the mutant."""

    name: str
    files: tuple[str, ...]
    read: Callable[[Path], object]
    beside: str = ""
    share: float = 1.0  # of the mutants of the others; less where each takes long


FILE_READERS = (
    FileReader("track", ("track.yaml",), load_track),
    FileReader("vehicle", ("vehicle.yaml",), lambda path: load_vehicle(str(path))),
    FileReader("wire profile", ("profile.yaml",), lambda path: load_profile(str(path))),
    FileReader("MSP profile", ("betaflight.yaml",), lambda path: load_betaflight(str(path))),
    FileReader("preflight", ("preflight.yaml",), load_preflight),
    FileReader("style", ("style.yaml",), lambda path: load_style(str(path))),
    FileReader("controller", ("settings.yaml",), lambda path: load_settings(str(path))),
    FileReader("sensors", ("Config.json",), load_sensors),
    FileReader("plan", ("plan.csv",), read_plan, "plan.json"),
    FileReader("certificate", ("plan.json",), lambda path: read_plan(path.with_suffix(".csv")), "plan.csv"),
    FileReader("peer's plan", ("plan.csv",), lambda path: read_peer_plan(path, Task(VQ1, DCL, AS_PUBLISHED))),
    FileReader("records", ("flight.mcap", "flight-bare.mcap", "recorded.mcap"), _records),
    FileReader("replay-flight", ("flight.mcap", "flight-bare.mcap"), _replay),
    FileReader("fly-report", ("flight.mcap", "flight-bare.mcap"), _page),
    FileReader("map-track", ("flight.mcap", "flight-bare.mcap"), lambda path: read_flight(path, None)),
    FileReader(
        "identify-vehicle", ("recorded-bare.mcap", "log.csv", "log.tlog", "log.bin", "flight-bare.mcap"), read_signals
    ),
    FileReader(
        "logs of others", ("log.ulg", "log.bbl"), lambda path: list(read_any_records(path, report=_quiet)), share=0.3
    ),
    FileReader("bags of ROS", ("log.bag", "ros.mcap", "log.db3"), _bag, share=0.3),
    FileReader("detect-gates", ("gate.jpg", "gate.png", "flight-bare.mcap"), _images),
    FileReader("images", ("gate.jpg", "gate.png"), lambda path: decode_image(read_bytes(path, IMAGE_BYTES))),
    FileReader("bootcamp log", ("bootcamp.log",), fly_again, share=0.1),
    FileReader("sim report", ("report.json",), read_report),
    FileReader("campaign", ("campaign.sqlite",), _campaign),
    FileReader("policy", ("policy.onnx",), lambda path: load_policy(str(path))),
    FileReader("residual", ("residual.npz",), Residuals.load),
)


class Codecs:
    """Both ends of every wire protocol, fed with mutants of what the other end sends, and at the end with sound datagrams."""

    def __init__(self) -> None:
        simulator, client = ServerCodec(PROFILE), ClientCodec(PROFILE)
        self.telemetry = [
            packet
            for message in (Imu(1.0, (0, 0, -9.8), (0, 0, 0)), Attitude(1.0, LEVEL), Heartbeat(1.0, True))
            for packet in simulator.encode(message)
        ]
        self.commands = [
            client.encode(Arm(), 0.0),
            client.encode(AttitudeTarget(LEVEL, (0, 0, 0), 0.5), 1.0),
            client.heartbeat(),
        ]
        self.video = datagrams(VideoFrame(1.0, 1, jpeg(20)), PROFILE)
        self.image, self.cloud = (
            load_sensors(ROOT / "examples/rflysim.json")[0],
            load_sensors(ROOT / "examples/rflysim.json")[2],
        )
        self.fragments = fragments(Payload(1.0, 1, jpeg(20)), 1400)
        self.client, self.server, self.reassembler = ClientCodec(PROFILE), ServerCodec(PROFILE), image_reassembler()
        self.streams = [Stream(sensor, _quiet, reader(sensor)) for sensor in (self.image, self.cloud)]
        self.msp, betaflight = MspCodec(), load_betaflight("betaflight")
        self.msp_requests = [
            self.msp.poll(betaflight.polled),
            self.msp.request(Code.RC_TUNING),
            self.msp.sticks((1500, 1500, 1000, 1500)),
        ]
        self.flight_controller = BetaflightStation(as_believed(VQ1, DCL), betaflight, 0)
        self.number = 0

    def feed(self, kind: str, mutant: Callable[[bytes], bytes], rng: random.Random) -> None:
        """One mutant datagram of a kind; in video and RflySim among the sound ones of its frame."""
        self.number += 1
        if kind == "telemetry":
            self.client.decode(mutant(rng.choice(self.telemetry)))
        elif kind == "commands":
            self.server.decode(mutant(rng.choice(self.commands)))
            self.server.replies()
        elif kind == "video":
            for datagram in rng.sample(self.video, k=min(4, len(self.video))):
                frame = self.reassembler.feed(mutant(datagram) if rng.random() < 0.5 else datagram)
                if frame is not None:
                    decode_image(mutant(frame.jpeg), (640, 360))
        elif kind == "msp":
            self._converse(mutant, rng)
        else:
            data = mutant(jpeg(20)) if rng.random() < 0.5 else rng.randbytes(rng.randrange(3000))
            for datagram in fragments(Payload(self.number / 30, self.number, data), 1400):
                if rng.random() < 0.2:
                    datagram = mutant(datagram)
                for stream in self.streams:
                    stream.feed(datagram, self.number / 30)

    def _converse(self, mutant: Callable[[bytes], bytes], rng: random.Random) -> None:
        """A mutant of a request to the simulated flight controller, and one of what it answers to a sound one."""
        station, t = self.flight_controller, self.number / 20
        station.receive(mutant(rng.choice(self.msp_requests)), t - 0.04)
        station.receive(rng.choice(self.msp_requests), t - 0.02)
        self.msp.feed(mutant(station.serve(t) or rng.randbytes(20)))


CODECS = ("telemetry", "commands", "video", "rflysim", "msp")
