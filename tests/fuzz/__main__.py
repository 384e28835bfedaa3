"""`make fuzz`: mutants of a small corpus through every reader and codec; prints counts, exits 1 after any failure.

A file's mutant passes when the reader returns or raises a `UserError` whose line names the file, within 10 s of the
processor and 1 GB. A datagram's mutant passes when nothing is raised. Readers run in a process of their own, so that one
that dies or hangs is named, and the rest goes on.
"""

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from gate_racer.common.errors import UserError, one_line
from tests.fuzz.corpus import make_corpus
from tests.fuzz.mutate import mutant
from tests.fuzz.readers import CODECS, FILE_READERS, Codecs, FileReader

SLOW_S, LARGE_MB, HUNG_S = 10.0, 1024, 30.0


@dataclass
class MutantCounts:
    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    grown_mb: int = 0
    failures: list[str] = field(default_factory=list)


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def answer(reader: FileReader, path: Path) -> tuple[str, str]:
    """Return a reader's answer to a file: "read", "refused", or "failed" with the reason."""
    try:
        reader.read(path)
    except UserError as error:
        line = one_line(str(error))
        named = path.stem in line
        return ("refused", "") if named else ("failed", f"the file is not named: {line}")
    except (Exception, RecursionError) as error:
        return "failed", f"{type(error).__name__}: {one_line(str(error))}"
    return "read", ""


def _work(name: str, count: int, seed: int, corpus: Path, first: int, pipe: Connection) -> None:
    """Mutants `first` to `count` of one reader, in a process of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the image libraries tell there what is wrong with each mutant
    begin_mb = _peak_mb()
    reader = next((one for one in FILE_READERS if one.name == name), None)
    codecs = None if reader else Codecs()
    with tempfile.TemporaryDirectory() as folder:
        for k in range(first, count):
            rng, begin = random.Random(f"{name} {seed} {k}"), time.process_time()
            if reader is not None:
                file = corpus / reader.files[k % len(reader.files)]
                path = Path(folder) / file.name
                path.unlink(missing_ok=True)
                path.write_bytes(mutant(file.read_bytes(), rng))
                if reader.beside:
                    shutil.copy(corpus / reader.beside, folder)
                kind, why = answer(reader, path)
            else:
                kind, why = "read", ""
                try:
                    codecs.feed(name, lambda data, rng=rng: mutant(data, rng)[:65535], rng)
                except Exception as error:
                    kind, why = "failed", f"{type(error).__name__}: {one_line(str(error))}"
            pipe.send((kind, why, time.process_time() - begin, _peak_mb() - begin_mb))


def fuzz(name: str, count: int, seed: int, corpus: Path, until: float) -> MutantCounts:
    """All mutants of one reader; stops at `until` (steady clock) and after 20 failures."""
    tally, done = MutantCounts(), 0
    while done < count and len(tally.failures) < 20 and time.monotonic() < until:
        ours, theirs = multiprocessing.Pipe()
        given = (name, count, seed, corpus, done, theirs)
        process = multiprocessing.get_context("fork").Process(target=_work, args=given)
        process.start()
        theirs.close()
        why = ""
        while done < count and time.monotonic() < until and not why:
            try:
                kind, why, seconds, grown = ours.recv() if ours.poll(HUNG_S) else ("failed", "hangs", HUNG_S, 0)
            except EOFError:
                process.join()
                kind, why, seconds, grown = "failed", f"the process died ({process.exitcode})", 0.0, 0
            if kind != "failed" and (seconds > SLOW_S or grown > LARGE_MB):
                kind, why = "failed", f"took {seconds:.1f} s, {grown} MB"
            tally.counts[kind] += 1
            tally.slowest_s, tally.grown_mb = max(tally.slowest_s, seconds), max(tally.grown_mb, grown)
            if kind == "failed":
                tally.failures.append(f"{name}, seed {seed}, mutant {done}: {why}")
            done += 1
        process.kill()
        process.join()
    return tally


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    names = (*(reader.name for reader in FILE_READERS), *CODECS)
    arguments.add_argument("--mutants", type=int, default=200, help="of each reader and codec (default: 200)")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=300.0, help="stop after so many (default: 300)")
    arguments.add_argument("--only", choices=names, nargs="+", default=names)
    a = arguments.parse_args()
    until, failures, total = time.monotonic() + a.seconds, [], Counter()
    with tempfile.TemporaryDirectory() as folder:
        make_corpus(Path(folder))
        print(f"{'':18s} {'mutants':>8s} {'read':>7s} {'refused':>8s} {'failed':>7s} {'slowest':>9s} {'memory':>8s}")
        for name in a.only:
            share = next((reader.share for reader in FILE_READERS if reader.name == name), 1.0)
            tally = fuzz(name, round(a.mutants * share), a.seed, Path(folder), until)
            c = tally.counts
            numbers = f"{c.total():8d} {c['read']:7d} {c['refused']:8d} {c['failed']:7d}"
            print(f"{name:18s} {numbers} {tally.slowest_s:7.2f} s {tally.grown_mb:5d} MB", flush=True)
            failures += tally.failures
            total += c
    print(
        f"{total.total()} mutants, seed {a.seed}: {total['read']} read, {total['refused']} refused, {total['failed']} failed"
    )
    for line in failures:
        print(line, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
