"""Tables and comparisons: intervals cover, known differences are found, and chance is not."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.race.campaign.case import Case, Outcome, Row
from gate_racer.race.campaign.choice import asked_world, cells_of
from gate_racer.race.campaign.compare import compare, table
from gate_racer.race.campaign.tables import cell, cells, lost_s, markdown, published, world_blocks


def row(seed, race_s=6.0, margin=0.4, controller="tracking", setting="projected", **outcome):
    case = Case("vq1", "dcl", 1, setting, controller, "given" if setting in "1234" else "drift", seed)
    stated = {"status": "finished", "gates_total": 2, "planned_s": 5.0, "bound_s": 4.0, "lap_s": [race_s]}
    stated |= {"race_s": race_s, "gate_s": [2.0, race_s], "planned_gate_s": [1.5, 5.0]}
    stated |= {"margin_m": [margin, margin + 0.2]}
    return Row(case, Outcome(**(stated | outcome)), np.empty((0, 5)))


def crash(seed, **options):
    left = {"status": "crashed", "race_s": None, "gate_s": [2.0], "margin_m": [0.1], "lap_s": []}
    return row(seed, **(left | {"rule": "tracking lost", "cause": "hit gate 1"} | options))


def test_a_cell_sums_up_its_flights():
    c = cell([row(0, 6.0, 0.3), row(1, 6.2, 0.5), crash(2)])
    assert (c.flights, c.finished, c.causes) == (3, 2, {"tracking lost (hit gate 1)": 1})
    assert c.completed == pytest.approx((1 + 1 + 0.5) / 3) and c.fastest_lap == 6.0
    assert c.race.mean == pytest.approx(6.1) and c.race.sd == pytest.approx(np.sqrt(0.02)) and c.race.n == 2
    assert c.to_plan.mean == pytest.approx(6.1 / 5) and c.to_bound.mean == pytest.approx(6.1 / 4)
    assert c.margin.n == 5 and c.margin.least == 0.1  # of crashed flights too, as far as gates were passed


def test_time_lost_on_the_legs_sums_up_to_the_time_lost():
    assert lost_s(row(0, 6.0)) == pytest.approx([0.5, 0.5]) and lost_s(crash(0)) == pytest.approx([0.5])


def test_published_rows_stand_beside_ours_marked_and_with_what_differs():
    ours = row(0, setting="1")
    swift = Row(Case("splits_swift", "swift", 3, "1", "tracking", "given", 0), ours.outcome, ours.path)
    text = markdown(cells([swift]))
    assert "published: time-optimal + MPC | fastest lap s | 4.6 |" in text and "Differs: their 870 g drone" in text
    assert "published" not in markdown(cells([ours])) and "deterministic" in text
    assert all(r.differs and r.source for r in published().rows)
    assert "| Alex Vanover (human) (Swift, Fig. 3b) | 5.76 | 17.38 | 17.956 |" in text


def jittered(n, offset=0.0, scale=0.02, seed=0, **options):
    rng = np.random.default_rng(seed)
    return [row(k, 6.0 + 0.1 * k + offset + rng.normal(0, scale), **options) for k in range(n)]


def verdicts(a, b):
    return {d.figure: d for d in compare(a, b)[1]}


def test_pairs_of_flights_tell_a_difference_from_chance():
    d = verdicts(jittered(12), jittered(12, -0.05, seed=1, controller="mpcc"))["race time s"]
    assert d.verdict == "B is better" and d.low < -0.05 < d.high < 0 and d.pairs == 12
    back = verdicts(jittered(12, -0.05, seed=1, controller="mpcc"), jittered(12))["race time s"]
    assert back.verdict == "B is worse" and back.mean == pytest.approx(-d.mean) and back.p == pytest.approx(d.p)
    false = [verdicts(jittered(10, seed=2 * k), jittered(10, seed=2 * k + 1))["race time s"].verdict for k in range(60)]
    assert sum(v.startswith("B is") for v in false) <= 6
    assert {d.verdict for d in verdicts(jittered(8), jittered(8)).values()} == {"identical"}
    few = verdicts(jittered(4), jittered(4, -1.0))["race time s"]
    assert few.p is None and few.verdict == "too few pairs: 4, at least 6 are needed"


def test_finishing_more_often_is_judged_by_the_flights_that_differ():
    a, b = [crash(k) for k in range(9)] + [row(9)], [row(k) for k in range(10)]
    d = verdicts(a, b)["share finished"]
    assert (d.a, d.b) == (0.1, 1.0) and d.verdict == "B is better" and d.p >= 2 * 0.5**9  # McNemar's exact, then Holm's
    one = verdicts([crash(0), *[row(k) for k in range(1, 10)]], b)["share finished"]
    assert one.verdict == "no significant difference"


def test_only_common_seeds_are_compared_and_intended_differences_named():
    d = verdicts(jittered(10)[2:], jittered(8))
    assert d["race time s"].pairs == 6
    with pytest.raises(UserError, match="no common case"):
        compare([row(0)], [row(1)])
    varied, _ = compare([row(0)], [row(0, controller="mpcc")])
    assert varied == ("controller",) and "intended difference: controller" in table(varied, [])


# Worlds


def in_world(row, world, **outcome):
    return replace(row, case=replace(row.case, world=world), outcome=replace(row.outcome, **outcome))


def test_each_world_has_its_cost_against_as_believed():
    alone = "unknown:camera.yaw_deg+"
    first = in_world(row(0, 6.3, 0.2), alone, at_gates_m=[0.1, 0.3], nees=12.0)
    rows = [first, in_world(crash(1), alone), row(0), row(1)]
    heads = [line for line in markdown(cells([*rows, in_world(row(1), "unknown")])).splitlines() if "###" in line]
    assert heads == ["### vq1, dcl, 1 lap, world as believed", "### vq1, dcl, 1 lap, world unknown"]
    (block,) = world_blocks(cells(rows))
    first, second = block.markdown.splitlines()[-2:]
    assert first.startswith("| as believed | 2 of 2 [34, 100 %] | 6.000 | +0.0 % |")
    assert second.startswith(
        "| camera.yaw_deg+ | 1 of 2 [9, 91 %] | 6.300 | +5.0 % | 0.10 | 0.29 | 12.0 | 1 x tracking lost"
    )


def test_factors_are_written_out_and_the_seed_draws_the_world():
    found = cells_of(["as_believed", "factors", "unknown"])
    assert found[0] == "as_believed" and found[-1] == "unknown" and "unknown:camera.yaw_deg-" in found
    assert "unknown:camera.dropout+" in found and "unknown:camera.dropout-" not in found
    assert asked_world("unknown:camera.yaw_deg-", 3) == "unknown:3:camera.yaw_deg-"
    assert asked_world("mine.yaml", 3) == "mine.yaml:3"


def of_plan(flight, plan="", residual=""):
    return replace(flight, case=replace(flight.case, plan=plan, residual=residual))


def test_plans_and_residuals_are_rows_of_their_own_in_tables_and_comparisons():
    usual, fast = jittered(8), [of_plan(r, "reserve=1", "r-1234") for r in jittered(8, -0.3, seed=1)]
    text = markdown(cells(usual + fast))
    assert "| tracking, state drift |" in text and "| tracking, state drift, plan reserve=1, residual r-1234 |" in text
    varied, found = compare(usual, fast)
    assert varied == ("plan", "residual") and found[1].verdict == "B is better"
    assert len(world_blocks(cells(usual + fast))) == 2 and "plan reserve=1" in world_blocks(cells(fast))[0].title
    ids = {r.case.id for r in usual + fast}
    assert len(ids) == 16 and {i.count("seed") for i in ids} == {1}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_the_interval_of_finishing_covers_the_truth_as_often_as_it_says(share):
    rng, covered = np.random.default_rng(0), 0
    known = [cell([row(k) if k < done else crash(k) for k in range(20)]) for done in range(21)]
    for done in rng.binomial(20, share, 2000):
        covered += known[done].finished_low <= share <= known[done].finished_high
    assert 0.92 < covered / 2000 <= 1.0
