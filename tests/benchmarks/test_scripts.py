"""Every benchmark can at least be begun."""

import importlib

import pytest

from tests.conftest import ROOT

SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_finds_all_that_it_imports(name):
    importlib.import_module(f"gate_racer.benchmarks.{name}")
