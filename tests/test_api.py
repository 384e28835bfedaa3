"""The public names: each is where the table says, has an example that runs, and stands on its page."""

import ast
import doctest
import subprocess
import sys

import numpy as np

import gate_racer
from gate_racer import HOMES
from tests.conftest import ROOT
from tools.pages import PAGES, example


def test_every_name_comes_from_its_home_at_first_use():
    for name, home in HOMES.items():
        assert getattr(gate_racer, name).__module__ == home
    assert set(gate_racer.__all__) <= set(dir(gate_racer))


def test_type_checkers_are_told_the_same_table():
    told = {}
    for node in ast.walk(ast.parse((ROOT / "gate_racer/__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and "." in (node.module or ""):
            told |= {alias.asname: node.module for alias in node.names if alias.asname}
    assert told == HOMES


def test_the_face_loads_nothing_that_a_command_would_wait_for():
    code = "import sys; before = set(sys.modules); import gate_racer; print(*sorted(set(sys.modules) - before))"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["gate_racer"]


def test_generated_pages_are_what_their_sources_say():
    for path, page in PAGES.items():
        assert path.read_text(encoding="utf-8") == page(), "python -m tools.pages"


def test_the_examples_run_one_after_the_other(tmp_path):
    names = {"np": np, "folder": tmp_path}
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for name in HOMES:
        told = []
        test = parser.get_doctest(example(name) + "\n", names, name, None, 0)
        assert test.examples
        runner.run(test, out=told.append, clear_globs=False)
        assert not told, "".join(told)
        names = test.globs
