"""User errors give one clear line and exit code 2."""

import contextlib
import json
import shutil
import socket
import threading
from pathlib import Path

import pytest
from pymavlink.dialects.v20 import common as dialect

from tests.processes import free_port, run, run_here

FREE = ["--set", "link.listen=127.0.0.1:0", "link.video=127.0.0.1:0"]
SHORT = ["--set", "link.timeout_s=0.3"]
BF = ["pq", "--profile", "betaflight", "--vehicle", "archer"]
SPLITS, TWO = ["--controller", "splits_swift"], ["--pilots", "2"]
CONSENT = "may be a real aircraft: read docs/safety.md"
RUN, SIM = "gate_racer.race.run_mpc", "gate_racer.race.race_sim"
WRONG = [
    (RUN, ["tracks/vq9.yaml"], "tracks/vq9.yaml: cannot be read"),
    (RUN, ["tracks/vq1.yaml", "--laps", "2"], "not closed"),
    (RUN, ["PLAN", "--laps", "2"], "vq1.csv has 1; name its track"),
    ("gate_racer.race.plan_track", ["figure8", "--laps", "1000000000"], "must lie between 1 and 1000"),
    ("gate_racer.race.plan_track", ["vq1", "--set", "stop_m=-175,0,-1"], "stop_m: expected a list such as [1, 2, 3], found"),
    (RUN, ["PLAN", "--live", "--lockstep", *FREE, *SHORT], "no simulator in lock-step within 0.3 s"),
    (RUN, ["PLAN", "--lockstep", "--set", "link.video=v4l2:/dev/video0"], "needs --live without --lockstep"),
    (RUN, ["PLAN", "--live", *FREE[:-1], "link.video=film:none.avi"], "link.video film:none.avi: cannot be read"),
    (SIM, ["--lockstep", "--set", "link.realtime=2"], "exclude each other"),
    (RUN, ["--live", "--set", "link.listen=nowhere:port"], "port"),
    (RUN, ["splits_uzh", "--vehicle", "cpc", *SPLITS], "has no gate that a camera sees"),
    (RUN, ["PLAN", "--vehicle", "swift"], "made for vehicle dcl"),
    (RUN, ["OTHER"], "made for track vq1"),
    (RUN, ["EDITED", "--lockstep"], "edited.csv: its rows or its certificate were changed"),
    (RUN, ["PLAN", "--live", *FREE, *SHORT], "still missing HEARTBEAT"),
    (RUN, ["PLAN", "--live", "--set", "link.listen=127.0.0.1:0", "link.video=127.0.0.1:TAKEN"], "in use"),
    (RUN, ["--live", "--set", "link.peer=127.0.0.1:14550", "link.listen=localhost:14550"], "is the address listened on"),
    (SIM, ["--set", "link.bind=localhost:14550"], "link.bind and link.client are one address, 127.0.0.1:14550"),
    (RUN, ["--set", "link.peer=192.168.1.10"], "link.peer: needs --live"),
    (RUN, [*BF, "--set", "link.msp=tcp:127.0.0.1:1"], "needs both --live and link.msp"),
    (RUN, [*BF, "--live", "--set", "link.msp=tcp:127.0.0.1:1", "--lockstep"], "--lockstep: cannot be combined with --live"),
    (RUN, [*BF, "--set", "controller.command=attitude"], "accepts body rates only"),
    (RUN, [*BF, "--set", "link.listen=127.0.0.1:14550"], "link.listen: not available"),
    (RUN, ["vq1", "--live", "--set", "link.msp=tcp:127.0.0.1:1"], "MSP needs --profile betaflight"),
    (RUN, [*BF, "--live", "--set", "link.msp=/dev/ttyNONE"], CONSENT),
    (RUN, [*BF, "--set", "link.shadow=true"], "link.shadow: needs --live and link.msp"),
    (RUN, ["--controller", "x.onnx", "--live", "--set", "race.grid=1/2"], "flies without a plan, which race.grid needs"),
    (RUN, ["plans/vq1.csv", "--controller", "x.onnx"], "needs a track, but plans/vq1.csv is a plan"),
    (RUN, ["--lockstep", "--controller", "nothing"], "no controller 'nothing'; known:"),
    (RUN, ["vq1", *SPLITS], "the policy was trained for vehicle swift"),
    (RUN, ["splits_swift", "--vehicle", "swift", "--profile", "betaflight", *SPLITS], "trained at 60 Hz"),
    (RUN, ["vq1", "--lockstep", *SPLITS, "--set", "plan.replan=true"], "plan.replan"),
    ("gate_racer.race.explore", ["--set", "explore.opening_m=0"], "opening_m=0: must be positive"),
    ("gate_racer.race.excite", ["--set", "excite.manoeuvres=loop"], "manoeuvres loop: 'loop' is not a manoeuvre"),
    ("gate_racer.pilot.replay_flight", ["flight.mcap", "--out", "/"], "--out /: must end in a file name"),
    ("gate_racer.pilot.replay_flight", ["flight.mcap", "--out", "a" * 300], ": File name too long"),
    ("gate_racer.pilot.replay_flight", ["nothing.mcap"], "nothing.mcap: cannot be read"),
    ("gate_racer.pilot.replay_flight", ["README.md"], "README.md: is no log that is read"),
    (RUN, ["PLAN", "--lockstep", "--set", "world.style=rave"], "no rendering style 'rave'; did you mean race? known: blurred"),
    (RUN, ["PLAN", "--camera", "projected"], "needs --lockstep without --live"),
    (SIM, ["--set", "link.realtime=0"], "realtime=0: must lie"),
    (SIM, ["--set", "shot.file=shot.png", "shot.pose=1,2"], "six numbers"),
    (SIM, ["--set", "link.bind=127.0.0.1:TAKEN"], "in use"),
    (SIM, ["--set", "link.vision_protocol=airsim"], "expected something like rflysim://"),
    (SIM, ["--set", "link.vision_protocol=rflysim://?copter=one"], "must be the number of a copter, found 'one'"),
    (SIM, ["--set", "link.vision_protocol=rflysim", "link.video=127.0.0.1:5600"], "link.video: in"),
    (RUN, ["--set", "link.vision=rflysim://h?config=examples/rflysim.json"], "needs --live"),
    (RUN, ["--live", "--set", "link.vision=rflysim://h?config=docs/none.json"], "docs/none.json: cannot be read"),
    (SIM, ["--pilots", "0"], "pilots 0: must lie between 1 and 8"),
    (SIM, ["--set", "rivals.spacing_m=2"], "rivals: needs --pilots"),
    (SIM, [*TWO, "--set", "rivals.spacing_m=99"], "outside the bounds"),
    (SIM, [*TWO, "--set", "rivals.spacing_m=-1"], "-1 m apart, 0 m ahead: must be"),
    (SIM, [*TWO, "--set", "record=x.mcap"], "record: cannot be used with --pilots 2"),
    (SIM, [*TWO, "--set", "link.vision_protocol=rflysim"], "link.vision_protocol: cannot be used"),
    (SIM, [*TWO, "--set", "rivals.rotor_radius_m=2"], "rotor_radius_m=2: must lie between"),
    (SIM, [*TWO, "--set", "rivals.rotor_radius_m=0.06"], "has no `rotors` section"),
    (SIM, [*TWO, "--profile", "betaflight"], "MSP profile"),
    (SIM, [*TWO, "--set", "link.client=127.0.0.1:65535"], "127.0.0.1:65535: no port is left above it"),
    (SIM, ["--set", "shot.pose=0,0,0,0,0,0"], "shot.pose: needs shot.file"),
    (SIM, ["--profile", "betaflight", "--set", "link.msp=COM3"], "expected pty or tcp:HOST:PORT"),
    (SIM, ["--profile", "betaflight", "--lockstep"], "link.lockstep: has no meaning with the MSP profile"),
    (SIM, ["--profile", "betaflight", "--set", "residual=found.yaml"], "residual: has no meaning with the MSP"),
    (SIM, ["--set", "link.msp=tcp:127.0.0.1"], "--profile betaflight is for MSP"),
    (SIM, ["--set", "link.client=192.0.2.1"], "bind 0.0.0.0"),
    ("gate_racer.race.plan_track", ["tracks/vq1.yaml", "--margin", "0.5"], "gates[0]: the opening of 1.5 m is too small"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "arguments", "words"), WRONG, ids=[f"{m} {' '.join(a)}" for m, a, _ in WRONG])
def test_bad_input_is_one_clear_line_and_exit_code_2(module, arguments, words, plan_folder, tmp_path):
    about = json.loads((plan_folder / "vq1.json").read_text())
    (tmp_path / "other.csv").write_text((plan_folder / "vq1.csv").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**about, "track_hash": "0" * 16}))
    shutil.copy(plan_folder / "vq1.csv", tmp_path / "edited.csv")
    (tmp_path / "edited.json").write_text(json.dumps({**about, "total_time_s": about["total_time_s"] + 1.0}))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        names = {name: str(tmp_path / f"{name.lower()}.csv") for name in ("OTHER", "EDITED")}
        names["PLAN"] = str(plan_folder / "vq1.csv")
        filled = [names.get(a, a).replace("TAKEN", str(taken.getsockname()[1])) for a in arguments]
        filled += ["--log", str(tmp_path)] if module == RUN else []
        done = run_here(module, *filled)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("waiting for ", "wait_link", "\x1b"))]
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(lines) == 1 and lines[0].startswith("error: ") and words in lines[0], done.stderr
    assert not list(tmp_path.glob("*.mcap")), "a flight that has not begun"


def test_a_simulator_that_speaks_mavlink_1_is_told_of_while_waiting_and_in_the_error(plan_folder, tmp_path):
    old = dialect.MAVLink_heartbeat_message(2, 0, 0, 0, 4, 3).pack(
        dialect.MAVLink(None, srcSystem=1), force_mavlink1=True
    )
    to, ended = ("127.0.0.1", free_port()), threading.Event()

    def beat():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as simulator, contextlib.suppress(OSError):
            while not ended.wait(0.05):
                simulator.sendto(old, to)

    (beating := threading.Thread(target=beat)).start()
    keys = "--set", f"link.listen={to[0]}:{to[1]}", "link.video=127.0.0.1:0", "link.timeout_s=1"
    done = run(RUN, plan_folder / "vq1.csv", "--live", *keys, "--log", tmp_path)
    ended.set()
    beating.join()
    said = [line for line in done.stderr.splitlines() if "messages are of MAVLink 1: " in line]
    assert done.returncode == 2 and [line.split(":")[0] for line in said] == ["warning", "error"], done.stderr


@pytest.mark.parametrize("solver", ["auto", "acados"])
def test_missing_acados_is_one_clear_line(hop_plans, tmp_path, monkeypatch, undrawn, solver):
    """Asked for, it is an error; else CasADi flies the race, by camera and attitude targets here, and says so."""
    monkeypatch.setattr("gate_racer.mpc.solvers.acados.WHEEL", Path("/nowhere"))
    monkeypatch.delenv("ACADOS_SOURCE_DIR", raising=False)
    result, keys = tmp_path / "result.json", [f"controller.solver={solver}", "controller.command=attitude"]
    flags = ["--lockstep", "--camera", "projected", "--log", tmp_path, "--json", result, "--set", *keys]
    done = run_here(RUN, hop_plans / "hop.csv", *flags)
    if solver == "acados":
        assert done.returncode == 2 and done.stderr.startswith("error: acados is missing")
        assert done.stderr.count("\n") == 1
        return
    told = [line for line in done.stderr.splitlines() if "acados" in line]
    assert done.returncode == 0 and len(told) == 1 and told[0].startswith("using the CasADi solver")
    flown = json.loads(result.read_text())
    assert flown["status"] == "finished" and flown["mpc_fallbacks"] == 0 and flown["min_margin_m"] > 0.2
