"""The tuner changes what it should, keeps a file's comments, and shares of thrust below one."""

import shutil

import numpy as np

from gate_racer.mpc.problem import FOLDER, load_settings
from tools.tune_mpc import FRACTIONS, tuned, with_values, write


def test_shares_of_thrust_stay_shares():
    settings = load_settings("tracking")
    most = with_values(settings, np.full(len(tuned(settings)), 3.0))
    assert all(getattr(most, name) <= 1.0 for name in FRACTIONS) and most.weights.position > settings.weights.position


def test_a_written_file_is_read_back_with_its_comments(tmp_path):
    path = tmp_path / "mpcc.yaml"
    shutil.copy(FOLDER / "mpcc.yaml", path)
    settings = load_settings("mpcc")
    new = with_values(settings, np.linspace(-0.5, 0.5, len(tuned(settings))))
    write(path, new, "how")
    text, back = path.read_text(), load_settings(str(path))
    assert text.startswith("# how\ncontroller: mpcc\n") and "# 1/rad^2" in text
    for name in tuned(settings):
        a, b = (getattr(s if name in FRACTIONS else s.weights, name) for s in (new, back))
        assert abs(a - b) <= 0.006 * a
