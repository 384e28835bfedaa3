"""A pilot passes a slower rival on VQ1: true state; the rival flies the plan at a share of its pace and yields to nobody."""

import pytest

from gate_racer.benchmarks.campaign.choice import PreparedCourse
from gate_racer.benchmarks.passing import duel

UNTIL_S = 2.6


@pytest.mark.parametrize(("share", "passed"), [(0.8, True), (1.04, False)])
def test_a_slower_rival_is_passed_without_contact_and_one_as_fast_is_followed(vq1, dcl, plan, share, passed):
    flown = duel(PreparedCourse(vq1, dcl, plan, (), None, None), share, 0, UNTIL_S)
    assert flown.least_m > 2 * dcl.half_diagonal + 0.1
    assert flown.gates >= 1 and flown.margin_m > 0.3
    assert (flown.lead_m > 1.0) is passed and (flown.lead_m < -1.0) is not passed
