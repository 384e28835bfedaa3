"""A full, slow or too small disk affects the log and nothing else."""

import os
import random
import resource
import threading

from gate_racer.link.record import read_records
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder


def test_a_full_disk_ends_the_log_with_one_warning_and_keeps_what_was_written_before(tmp_path):
    told = []
    log = FlightLog(tmp_path / "flight.mcap", tell=told.append)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, before[1]))
    try:
        for k in range(200):
            log.image(0.03 * k, os.urandom(40_000))
            log.write("phase", 0.03 * k, phase="race", reason="")
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert log.problem.endswith("flight.mcap: File too large") and len(told) == 1
    assert log.records_dropped > 100, "what comes after the end is counted"
    assert 5 < sum(1 for _ in read_records(tmp_path / "flight.mcap", only=["/phase"])) < 200


def test_a_disk_that_hangs_costs_images_first_and_no_time(tmp_path, monkeypatch):
    monkeypatch.setattr("gate_racer.pilot.records.flight_log.CLOSE_S", 0.2)
    told, hangs = [], threading.Event()
    log = FlightLog(tmp_path / "log.mcap", patient=False, tell=told.append)
    log._file.add_raw = lambda *_: hangs.wait()
    for k in range(300):
        log.image(0.03 * k, bytes(50_000))
        log.write("phase", 0.03 * k, phase="race", reason="x" * 500)
    assert log.images_dropped > 100 and log.records_dropped == 0
    log.close()
    assert "the disk has not responded" in log.problem and len(told) == 1
    hangs.set()


def test_a_patient_log_loses_nothing(tmp_path):
    log = FlightLog(tmp_path / "flight.mcap")
    for k in range(150):
        log.image(0.03 * k, random.Random(k).randbytes(100_000))
    log.close()
    assert sum(1 for _ in read_records(tmp_path / "flight.mcap", only=["/camera"])) == 150 and not log.images_dropped


def test_a_limit_leaves_out_images_and_keeps_records(tmp_path):
    log = FlightLog(tmp_path / "flight.mcap", limit_mb=4.0)
    for k in range(200):
        log.image(0.03 * k, os.urandom(40_000))
        log.write("phase", 0.03 * k, phase="race", reason="")
    log.close()
    kept = [topic for topic, _ in read_records(tmp_path / "flight.mcap")]
    assert kept.count("/phase") == 200 and kept.count("/camera") + log.images_dropped == 200 and log.images_dropped
    assert (tmp_path / "flight.mcap").stat().st_size < 5_500_000


def test_records_missing_in_the_log_are_counted_in_the_result(tmp_path):
    folder = tmp_path / "logs"
    recorder = Recorder(FlightLog(folder / "flight.mcap"))
    (folder / "flight.mcap").unlink()
    folder.rmdir()
    recorder.log.write("link", 0.0, counters={})
    recorder.close()
    assert recorder.troubles["log"].endswith("flight.mcap: was removed in flight")
