"""Limits of squared distances, against SciPy's."""

import pytest
from scipy.special import chdtri

from gate_racer.vehicle.statistics import chi2_limit


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 8, 9, 30])
@pytest.mark.parametrize("false_alarm", [0.5, 1e-3, 1e-9])
def test_a_limit_is_exceeded_by_the_share_that_is_asked_for(dof, false_alarm):
    assert chi2_limit(dof, false_alarm) == pytest.approx(chdtri(dof, false_alarm), rel=1e-10)
