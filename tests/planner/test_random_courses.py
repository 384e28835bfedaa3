"""Random courses are refused, or certified and flown by both controllers without contact; `make fuzz-plans` tries many more."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gate_racer.benchmarks.planner import attempt
from gate_racer.planner.task import PlanOptions


@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(1000, 100_000))
def test_no_certified_plan_is_contradicted(seed, dcl):
    outcome = attempt(seed, dcl, PlanOptions(see=0.0, guesses=1))
    assert not outcome.contradicted, outcome
    assert "\n" not in outcome.answer
