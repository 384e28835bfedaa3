"""Distribution of cases over processes of this machine or workers of a Dask scheduler.

The result of a case does not depend on where it runs. Cases of a lost worker are flown again by another.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from gate_racer.benchmarks.campaign.case import Case, Flown, Outcome
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.launch import ONE_THREAD
from gate_racer.vehicle.process import end_with_parent, shielded

Work = Callable[[Case, Any], Flown]  # (case, course) -> result
FlightJob = tuple[Case, Any]
LINE_S = 0.5  # s between updates of the progress line
CONNECT_S = 10.0  # s, time limit for a scheduler to answer


def lost(course: Any, reason: str) -> Flown:
    """Return the result of a case whose worker died."""
    return Flown(Outcome("failed", reason, "could not be flown", len(course.gates_s)), np.empty((0, 5)))


def in_processes(work: Work, jobs: list[FlightJob], workers: int) -> Iterator[tuple[Case, Flown]]:
    """Yield results as they complete, from `workers` processes of this machine.

    When a process dies, the pool does not report which case it had, so that the pending ones are repeated one by one.
    """
    waiting, suspects = deque(jobs), deque[FlightJob]()
    while waiting or suspects:
        alone = bool(suspects)
        queue = suspects if alone else waiting
        pool = _pool(1 if alone else workers)
        flying: dict[Future[Flown], FlightJob] = {}
        try:
            while queue or flying:
                while queue and len(flying) < (1 if alone else workers):
                    with shielded():  # the first submission starts the processes
                        future = pool.submit(work, *queue[0])  # may raise: the job stays in the queue
                    flying[future] = queue.popleft()
                for future in wait(flying, return_when=FIRST_COMPLETED).done:
                    flown = future.result()
                    yield flying.pop(future)[0], flown
        except BrokenProcessPool:
            for case, course in flying.values():
                if alone:
                    yield case, lost(course, "the worker process died")
                else:
                    suspects.append((case, course))
        finally:
            pool.shutdown(cancel_futures=True)


def _pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool of spawned processes, since CasADi, numba and OpenGL do not survive a fork, with one thread each."""
    for name in ONE_THREAD:
        os.environ[name] = "1"  # read by the children at start
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)


def _begin() -> None:
    """Initialise a worker process: ignore Ctrl-C, which the parent handles, and end with the parent, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _itself(course: Any) -> Any:
    return course


def on_cluster(work: Work, jobs: list[FlightJob], address: str) -> Iterator[tuple[Case, Flown]]:
    """Yield results as they complete, from the workers of a Dask scheduler, which reassigns a lost worker's cases.

    Raises:
        UserError: Dask is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise UserError("--scheduler: Dask is missing: pip install 'dask[distributed]'") from None
    try:
        client = Client(address, timeout=CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise UserError(
            f"--scheduler {address}: no scheduler answers ({error}); start one with: dask scheduler"
        ) from None
    with client:
        # As results of their own tasks, courses are sent once, and recreated when the worker that has one is lost.
        courses = {
            id(course): client.submit(_itself, course, pure=False) for course in {id(c): c for _, c in jobs}.values()
        }
        flying = {client.submit(work, case, courses[id(course)], pure=False): (case, course) for case, course in jobs}
        for future in as_completed(flying):  # type: ignore[no-untyped-call]
            case, course = flying.pop(future)
            problem = future.exception()
            yield case, future.result() if problem is None else lost(course, f"{type(problem).__name__}")
            future.release()


class CampaignProgress:
    """Progress line: cases done, failed, and time left."""

    def __init__(self, total: int):
        self._total, self._done, self._failed = total, 0, 0
        self._begin = self._reported = time.monotonic()

    def __call__(self, flown: Flown) -> None:
        self._done += 1
        self._failed += flown.outcome.status == "failed"
        now = time.monotonic()
        if now - self._reported < LINE_S and self._done < self._total:
            return
        self._reported = now
        left = round((now - self._begin) / self._done * (self._total - self._done))
        width = 30 * self._done // self._total
        line = f"[{'#' * width}{'.' * (30 - width)}] {self._done}/{self._total}"
        line += f", {self._failed} failed" if self._failed else ""
        line += f", {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        live = sys.stderr.isatty()
        end = "\n" if not live or self._done == self._total else ""
        print(f"\r\x1b[K{line}" if live else line, end=end, file=sys.stderr, flush=True)
