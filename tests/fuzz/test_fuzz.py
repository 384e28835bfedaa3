"""Mutants of every kind of file and datagram: a short run of `make fuzz`, and the hostile files by name."""

import time

import pytest

from tests.fuzz.__main__ import answer, fuzz
from tests.fuzz.readers import CODECS, FILE_READERS

MUTANTS, SEED, LONGEST_S = 5, 1, 120.0
MORE = dict.fromkeys(("logs of others", "bags of ROS"), 30)  # whose forms others have made


@pytest.mark.parametrize("reader", FILE_READERS, ids=lambda reader: reader.name)
def test_the_sound_files_are_read(reader, corpus):
    assert {answer(reader, corpus / name) for name in reader.files} == {("read", "")}


@pytest.mark.parametrize("name", [*(reader.name for reader in FILE_READERS), *CODECS])
def test_every_mutant_is_answered(name, corpus):
    mutants = MORE.get(name, MUTANTS)
    tally = fuzz(name, mutants, SEED, corpus, time.monotonic() + LONGEST_S)
    assert tally.failures == [] and tally.counts.total() == mutants
