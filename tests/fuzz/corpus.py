"""The files that mutants are made of: one sound and small file of every kind, the same on every machine."""

import json
import math
import shutil
from pathlib import Path

import cv2
import numpy as np
from mcap.records import Channel, Message
from mcap.stream_reader import StreamReader
from mcap.writer import Writer
from pymavlink.dialects.v20 import common as dialect

from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.floor import GroundCamera
from gate_racer.bootcamp.scenario import make_scenario
from gate_racer.bootcamp.stages import FlightRecord
from gate_racer.link.msp.preflight import write_preflight
from gate_racer.link.record import RecordFile
from gate_racer.perception.detection import Detection
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.planner.plan import COLUMNS, Plan, write_plan
from gate_racer.race.campaign.case import Case, Outcome, Row, Store
from gate_racer.sim.physics.residual import Kernel, ObservationModel, ResidualAcceleration, Residuals
from gate_racer.sim.report import RunReport, write_report
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X
from gate_racer.vehicle.vehicle import load_vehicle
from tests.link.log_writers import dataflash, tlog, write_bag
from tests.link.test_log_formats import as_file, hovering, px4
from tests.mpc.policy_files import write_onnx
from tests.preflights import made

ROOT = Path(__file__).parent.parent.parent
STEP_S, SAMPLES, GATES = 0.02, 160, 6
LEVEL = (1.0, 0.0, 0.0, 0.0)


def gate_image(width: int = 640, height: int = 360) -> np.ndarray:
    image = np.full((height, width, 3), 25, np.uint8)
    image[80:260, 200:380] = (25, 60, 245)
    image[120:220, 240:340] = 25
    return image


def jpeg(quality: int = 60) -> bytes:
    return cv2.imencode(".jpg", gate_image(), [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def motion(k: int) -> tuple[float, list[float], list[float], float, float]:
    """Time, velocity, specific force, throttle and roll rate of sample k: a throttle that steps, a body that rolls."""
    t = STEP_S * k
    v, force = [2.0 * t, 0.1 * k % 1, -1.0 - math.sin(t)], [0.1 * (k % 3), 0.0, -GRAVITY - math.cos(t)]
    return t, v, force, 0.3 + 0.2 * (k // 20 % 2), math.sin(5 * t)


def make_corpus(folder: Path) -> dict[str, Path]:
    """Write all files, and return them by name; names are those that `readers` asks for."""
    files = {
        "track.yaml": ROOT / "tracks/vq1.yaml",
        "vehicle.yaml": ROOT / "vehicle/kolibri.yaml",
        "profile.yaml": ROOT / "link/profiles/dcl.yaml",
        "betaflight.yaml": ROOT / "link/msp/profiles/betaflight.yaml",
        "style.yaml": ROOT / "sim/view/styles/race.yaml",
        "settings.yaml": ROOT / "mpc/mpcc.yaml",
        "Config.json": ROOT / "examples/rflysim.json",
    }
    for name, source in files.items():
        shutil.copy(source, folder / name)
    write_preflight(folder / "preflight.yaml", made())
    (folder / "gate.jpg").write_bytes(jpeg())
    (folder / "gate.png").write_bytes(cv2.imencode(".png", gate_image())[1].tobytes())
    depth = np.arange(360 * 640, dtype=np.uint16).reshape(360, 640)
    (folder / "depth.png").write_bytes(cv2.imencode(".png", depth)[1].tobytes())
    plan = _plan(folder / "plan.csv")
    _flight(folder / "flight.mcap", plan)
    _recorded(folder / "recorded.mcap")
    for name in ("flight", "recorded"):
        _bare(folder / f"{name}.mcap", folder / f"{name}-bare.mcap")
    _table(folder / "log.csv")
    _tlog(folder / "log.tlog")
    _dataflash(folder / "log.bin")
    px4(folder / "log.ulg", count=SAMPLES)
    as_file(folder / "log.bbl", hovering(SAMPLES))
    for kind, name in (("ROS 1", "log.bag"), ("MCAP", "ros.mcap"), ("SQLite", "log.db3")):
        write_bag(folder, kind).rename(folder / name)
    _bootcamp(folder / "bootcamp.log")
    x = np.zeros((40, 14))
    result = RunReport("finished", "", 1.0, [1.0, 2.0], [0.4, 0.3], 2, [], np.arange(40) * 0.1, x)
    write_report(folder / "report.json", result)
    _campaign(folder / "campaign.sqlite")
    _residual(folder / "residual.npz")
    track, vehicle = load_track(ROOT / "tracks/vq1.yaml"), load_vehicle("dcl")
    write_onnx(folder / "policy.onnx", track, vehicle)
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}


def _residual(path: Path) -> None:
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(30, 13)), Kernel(np.full(15, 2.0), 0.5, 0.3)
    observation = ObservationModel(x, rng.normal(size=(30, 9)), np.zeros(30, int), [kernel] * 9)
    acceleration = ResidualAcceleration(x, rng.normal(size=30), rng.normal(size=(30, 3)))
    Residuals(load_vehicle("dcl").hash, False, acceleration, observation).save(path)


def _plan(path: Path) -> Plan:
    """A flight along straight lines from gate to gate, which no certificate would pass: readers look at its form."""
    track, vehicle = load_track(ROOT / "tracks/vq1.yaml"), load_vehicle("dcl")
    t = np.linspace(0.0, 6.0, 40)
    x = np.zeros((40, len(COLUMNS["rates"]) - 8))
    x[:, RATES_X["q"].at.start] = 1.0
    nodes = tuple(range(6, 40, 6))[:GATES]
    through = [track.start.position_m, *(gate.centre_m for gate in track.gates), np.add(track.gates[-1].centre_m, 1.0)]
    x[:, :3] = np.column_stack([np.interp(range(40), (0, *nodes, 39), column) for column in np.transpose(through)])
    u = np.tile([0.0, 0.0, 0.0, GRAVITY], (40, 1))
    facts = (track.name, track.file, track.hash, vehicle.name, vehicle.hash)
    plan = Plan(*facts, "rates", 1, t, x, u, nodes)
    about = {"track_hash": track.hash, "vehicle_hash": vehicle.hash, "options": {"reserve": 0.8}, "gate_times_s": [1.0]}
    write_plan(path, plan, vehicle, {**about, "point_mass_bound_s": 5.0})
    return plan


def _flight(path: Path, plan: Plan) -> None:
    """A log of `run-mpc`: rest, launch, race, images, openings, verdict."""
    log = FlightLog(path)
    about = {"track": "vq1", "vehicle": "dcl", "plan_hash": plan.hash, "seed": 0, "profile": "spec"}
    world = {"name": "windy", "deviations": {"air": {"wind_north_m_s": 3.0}, "plant": {"thrust_scale": 0.9}}}
    log.write("flight", 0.0, **about, planned_gate_times_s=[0.4, 0.9], world=world)
    log.write("phase", 0.0, phase="ready", reason="")
    corners = np.array([[240.0, 120.0], [340.0, 120.0], [340.0, 220.0], [240.0, 220.0]])
    seen = Detection.whole(corners, 0.3, 0.9).record()
    for k in range(SAMPLES):
        t, v, force, throttle, rate = motion(k)
        if k == 50:
            log.write("phase", t, phase="launch", reason="")
        still = k < 50
        log.write("imu", t, accel=[0, 0, -GRAVITY] if still else force, gyro=[0.0 if still else rate, 0, 1e-4 * k])
        log.write("attitude", t, q=LEVEL)
        if still:
            continue
        log.write("state", t, p=[t, 0, -1], q=LEVEL, v=v, w=[rate, 0, 0], sigma_p=[0.1] * 3, drift=0.0)
        log.write("reference", t, theta=t, p=[t, 0, -1], q=LEVEL, v=v)
        log.write("truth", t, p=[t, 0, -1], q=LEVEL, v=v, w=[rate, 0, 0])
        log.write("command", t, q=LEVEL, w=[rate, 0, 0], throttle=throttle, source="solved", status=0, solve_ms=1.0)
        if k % 10 == 0:
            log.image(t, jpeg(20))
            log.write("detection", t, frame=k, **seen)
            log.write("sighting", t, frame=k, gate=0, range_m=5.0, p=[t, 0, -1], sigma_p=[0.1] * 3, corners_px=corners)
            log.write("link", t, counters={"malformed": k})
    log.write("fallback", t, source="spare solver", reason="no iterate")
    log.write("learned", t, thrust_scale=0.9, drag_scale=1.1, delay_s=0.04, rate_lag_scale=1.0)
    log.write("counters", t, frames=30, frames_dropped=2, late=1, fallbacks=1, lost=0)
    log.write("referee", t, status="finished", gate_times_s=[0.5, 1.0], gate_margins_m=[0.4, 0.3])
    log.close()


def _recorded(path: Path) -> None:
    """A log of `race-sim --record`: raw bytes beside JSON."""
    file, anything = RecordFile(path), {"type": "object"}
    truth, command = file.json_channel("truth", "t", anything), file.json_channel("command", "c", anything)
    sent = file.raw_channel("sent", "mavlink2")
    for k in range(SAMPLES):
        t, v, force, throttle, rate = motion(k)
        file.add(
            truth, t, {"t": t, "p": [t, 0, 0], "q": LEVEL, "v": v, "w": [rate, 0, 0], "accel": force, "armed": True}
        )
        values = {"throttle": throttle, "omega": [rate, 0, 0], "by_rates": True}
        file.add(command, t, {"t": t, "kind": "AttitudeTarget", "values": values})
        file.add_raw(sent, t, bytes(range(64)))
    file.close()


def _bare(source: Path, path: Path) -> None:
    """The same records without chunks and checksums, so that a mutant's records are read, and not lost with their chunk."""
    with source.open("rb") as read, path.open("wb") as file:
        writer = Writer(file, use_chunking=False, enable_crcs=False, enable_data_crcs=False)
        writer.start(profile="", library="")
        channels = {}
        for item in StreamReader(read).records:
            if isinstance(item, Channel) and item.id not in channels:
                channels[item.id] = writer.register_channel(item.topic, item.message_encoding, 0)
            elif isinstance(item, Message):
                writer.add_message(channels[item.channel_id], item.log_time, item.data, item.publish_time)
        writer.finish()


def _table(path: Path) -> None:
    names = "t,throttle,v_x,v_y,v_z,q_w,q_x,q_y,q_z,a_x,a_y,a_z,w_x,w_y,w_z,w_cmd_x,w_cmd_y,w_cmd_z"
    rows = []
    for k in range(SAMPLES):
        t, v, force, throttle, rate = motion(k)
        rows.append([t, throttle, *v, *LEVEL, *force, rate, 0, 0, rate, 0, 0])
    path.write_text(
        "\n".join(["# a comment", names, *(",".join(f"{value:.5g}" for value in row) for row in rows)]) + "\n"
    )


def _tlog(path: Path) -> None:
    packets = []
    for k in range(SAMPLES):
        t, v, force, throttle, rate = motion(k)
        ms = round(1e3 * t)
        packets += [(1000 * ms, 1, 1, message) for message in (
            dialect.MAVLink_highres_imu_message(1000 * ms, *force, rate, 0, 0, 0, 0, 0, 0, 0, 0, 0, 63),
            dialect.MAVLink_attitude_message(ms, 0.1, 0.2, 0.3, rate, 0, 0),
            dialect.MAVLink_local_position_ned_message(ms, t, 0, -1, *v),
            dialect.MAVLink_set_attitude_target_message(ms, 1, 1, 128, LEVEL, rate, 0, 0, throttle),
        )]  # fmt: skip
    tlog(path, packets)


def _dataflash(path: Path) -> None:
    kinds = {
        "IMU": ("QBffffff", "TimeUS,I,GyrX,GyrY,GyrZ,AccX,AccY,AccZ"),
        "ATT": ("Qfff", "TimeUS,Roll,Pitch,Yaw"),
        "XKF1": ("QBfff", "TimeUS,C,VN,VE,VD"),
        "CTUN": ("Qf", "TimeUS,ThO"),
    }
    rows = []
    for k in range(SAMPLES):
        t, v, force, throttle, rate = motion(k)
        us = round(1e6 * t)
        rows += [
            ("IMU", us, 0, rate, 0, 0, *force),
            ("ATT", us, 1.0, 2.0, 3.0),
            ("XKF1", us, 0, *v),
            ("CTUN", us, throttle),
        ]
    dataflash(path, kinds, rows)


def _bootcamp(path: Path) -> None:
    scenario = make_scenario("pads", 3)
    drone, camera, log = Drone(scenario), GroundCamera(scenario), FlightRecord(path, scenario)
    for _ in range(3):
        report = drone.step(None)
        log.step(None, report, drone.digest(), camera.frame(drone.p_wb, report))
    log.close()


def _campaign(path: Path) -> None:
    store = Store(path)
    store.require({"commit": "abc", "gates:vq1": json.dumps([[[0, 0, 0]] * 4])}, "commit")
    for seed in range(3):
        times = [1.0, 2.0]
        outcome = Outcome(
            "finished", gates_total=2, race_s=2.0, gate_s=times, planned_gate_s=times, margin_m=[0.4, 0.3]
        )
        store.add(Row(Case("vq1", "dcl", 1, "projected", "mpcc", "eskf", seed), outcome, np.ones((20, 5))))
    store.close()
