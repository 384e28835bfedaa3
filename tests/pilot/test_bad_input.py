"""User errors give one clear line and exit code 2."""

import json
import shutil
import socket
from pathlib import Path

import pytest

from tests.processes import run_here

FREE = ["--listen", "127.0.0.1:0", "--video", "127.0.0.1:0"]
SHORT = ["--set", "link.timeout_s=1"]
WRONG = [
    ("gate_racer.race.cli", ["tracks/vq9.yaml"], "tracks/vq9.yaml: cannot be read"),
    ("gate_racer.race.cli", ["tracks/vq1.yaml", "--vehicle", "dlc"], "no vehicle 'dlc'; known: archer, cpc, dcl, kolibri"),
    ("gate_racer.race.cli", ["tracks/vq1.yaml", "--profile", "sped"], "no wire profile 'sped'"),
    ("gate_racer.race.cli", ["tracks/vq1.yaml", "--laps", "2"], "not closed"),
    ("gate_racer.race.cli", ["PLAN", "--laps", "2"], "vq1.csv has 1; name its track"),
    ("gate_racer.race.plan_track", ["figure8", "--laps", "1000000000"], "must lie between 1 and 1000"),
    ("gate_racer.race.race_sim", ["--track", "figure8", "--laps", "1000000000"], "must lie between 1 and 1000"),
    ("gate_racer.race.cli", ["tracks/vq1.yaml", "--seed", "-1"], "--seed -1"),
    ("gate_racer.race.cli", ["PLAN", "--live", "--lockstep", *FREE, *SHORT], "no simulator in lock-step within 1 s"),
    ("gate_racer.race.race_sim", ["--lockstep", "--realtime", "2"], "exclude each other"),
    ("gate_racer.race.cli", ["--live", "--listen", "nowhere:port"], "port"),
    ("gate_racer.race.cli", ["splits_uzh", "--vehicle", "cpc", "--policy", "splits_swift"], "has no gate that a camera sees"),
    ("gate_racer.race.cli", ["PLAN", "--vehicle", "swift"], "made for vehicle dcl"),
    ("gate_racer.race.cli", ["OTHER"], "made for track vq1"),
    ("gate_racer.race.cli", ["MOVED", "--lockstep"], "its rows differ from those that were certified; plan again with "),
    ("gate_racer.race.cli", ["EDITED", "--lockstep"], "its certificate edited.json was changed after it was written"),
    ("gate_racer.race.cli", ["PLAN", "--live", *FREE, *SHORT], "still missing HEARTBEAT"),
    ("gate_racer.race.cli", ["PLAN", "--live", "--listen", "127.0.0.1:TAKEN"], "in use"),
    ("gate_racer.race.cli", ["PLAN", "--live", "--listen", "127.0.0.1:0", "--video", "127.0.0.1:TAKEN"], "in use"),
    ("gate_racer.race.cli", ["PLAN", "--live", *FREE, "--set", "link.timeout_s=.nan"], "link.timeout_s: expected"),
    ("gate_racer.race.cli", ["--peer", "192.168.1.10"], "--peer: needs --live"),
    ("gate_racer.race.cli", ["--opening", "nan"], "--opening nan: must be positive"),
    ("gate_racer.race.cli", ["--explore", "--room", "9,9,9"], "--room '9,9,9': expected NORTH,EAST,SOUTH,WEST,UP,DOWN"),
    ("gate_racer.race.cli", ["--room", "9,9,9,9,3,0"], "--room: needs --explore"),
    ("gate_racer.pilot.replay", ["flight.mcap", "--out", "/"], "--out /: must end in a file name"),
    ("gate_racer.pilot.replay", ["flight.mcap", "--out", "a" * 300], ": File name too long"),
    ("gate_racer.race.plan_track", ["tracks/vq1.yaml", "--warm", ""], ".: cannot be read"),
    ("gate_racer.race.plan_track", ["tracks/vq1.yaml", "--warm", "a" * 300], ": File name too long"),
    ("gate_racer.pilot.replay", ["nothing.mcap"], "nothing.mcap: cannot be read"),
    ("gate_racer.pilot.replay", ["README.md"], "README.md: is no log that is read"),
    ("gate_racer.race.race_sim", ["--track", "tracks/vq9.yaml"], "tracks/vq9.yaml: cannot be read"),
    ("gate_racer.race.cli", ["PLAN", "--lockstep", "--look", "rave"], "no look 'rave'; known: blurred, bright, dark"),
    ("gate_racer.race.cli", ["PLAN", "--lockstep", "--camera", "infrared"], "no camera 'infrared'; known: rendered, projected"),
    ("gate_racer.race.cli", ["PLAN", "--camera", "projected"], "needs --lockstep without --live"),
    ("gate_racer.race.race_sim", ["--realtime", "0"], "--realtime 0"),
    ("gate_racer.race.race_sim", ["--look", "rave"], "no look 'rave'"),
    ("gate_racer.race.race_sim", ["--shot", "shot.jpg"], "must end in .png"),
    ("gate_racer.race.race_sim", ["--shot", "shot.png", "--pose-at", "1,2"], "six numbers"),
    ("gate_racer.race.race_sim", ["--bind", "127.0.0.1:TAKEN"], "in use"),
    ("gate_racer.race.race_sim", ["--vision-protocol", "airsim"], "expected something like rflysim://"),
    ("gate_racer.race.race_sim", ["--vision-protocol", "rflysim", "--video", "127.0.0.1:5600"], "--video"),
    ("gate_racer.race.cli", ["--vision", "rflysim://h?config=examples/rflysim.json"], "needs --live"),
    ("gate_racer.race.cli", ["--live", "--vision", "rflysim://127.0.0.1"], "expected something like rflysim://"),
    ("gate_racer.race.cli", ["--live", "--vision", "rflysim://h?config=docs/none.json"], "docs/none.json: cannot be read"),
    ("gate_racer.race.race_sim", ["--client", "192.0.2.1"], "bind 0.0.0.0"),
    ("gate_racer.race.plan_track", ["tracks/vq9.yaml"], "tracks/vq9.yaml: cannot be read"),
    ("gate_racer.race.plan_track", ["tracks/vq1.yaml", "--reserve", "7"], "--reserve 7"),
    ("gate_racer.race.plan_track", ["tracks/vq1.yaml", "--margin", "0.5"], "gates[0]: the opening of 1.5 m is too small"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "arguments", "words"), WRONG, ids=[f"{m} {' '.join(a)}" for m, a, _ in WRONG])
def test_bad_input_is_one_clear_line_and_exit_code_2(module, arguments, words, plan_folder, tmp_path):
    about = json.loads((plan_folder / "vq1.json").read_text())
    (tmp_path / "other.csv").write_text((plan_folder / "vq1.csv").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**about, "track_hash": "0" * 16}))
    shutil.copy(plan_folder / "vq1.csv", tmp_path / "edited.csv")
    (tmp_path / "edited.json").write_text(json.dumps({**about, "total_time_s": about["total_time_s"] + 1.0}))
    rows = [line.split(",") for line in (plan_folder / "vq1.csv").read_text().splitlines()]
    rows[50][1] = repr(float(rows[50][1]) + 1.0)  # one node, by a metre
    (tmp_path / "moved.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    shutil.copy(plan_folder / "vq1.json", tmp_path / "moved.json")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        names = {name: str(tmp_path / f"{name.lower()}.csv") for name in ("OTHER", "MOVED", "EDITED")}
        names["PLAN"] = str(plan_folder / "vq1.csv")
        filled = [names.get(a, a).replace("TAKEN", str(taken.getsockname()[1])) for a in arguments]
        filled += ["--log", str(tmp_path)] if module == "gate_racer.race.cli" else []
        done = run_here(module, *filled)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("waiting for ", "wait_link", "\x1b"))]
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(lines) == 1 and lines[0].startswith("error: ") and words in lines[0], done.stderr


@pytest.mark.parametrize("solver", ["auto", "acados"])
def test_missing_acados_is_one_clear_line(sprint, tmp_path, monkeypatch, solver):
    """Asked for, it is an error; else CasADi flies the race, by camera and attitude targets here, and says so."""
    monkeypatch.setattr("gate_racer.mpc.solvers.acados.WHEEL", Path("/nowhere"))
    monkeypatch.delenv("ACADOS_SOURCE_DIR", raising=False)
    result = tmp_path / "result.json"
    flags = [
        "--lockstep",
        "--camera",
        "projected",
        "--set",
        f"controller.solver={solver}",
        "--set",
        "controller.command=attitude",
    ]
    done = run_here("gate_racer.race.cli", sprint / "sprint.csv", *flags, "--log", tmp_path, "--json", result)
    if solver == "acados":
        assert (
            done.returncode == 2 and done.stderr.startswith("error: acados is missing") and done.stderr.count("\n") == 1
        )
        return
    told = [line for line in done.stderr.splitlines() if "acados" in line]
    assert done.returncode == 0 and len(told) == 1 and told[0].startswith("using the CasADi solver")
    flown = json.loads(result.read_text())
    assert flown["status"] == "finished" and flown["mpc_fallbacks"] == 0 and flown["min_margin_m"] > 0.2
