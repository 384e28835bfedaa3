"""Tables, grids and pages say what their flights and stored results say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gate_racer.benchmarks.risk_calibration import LEVELS, calibrate
from gate_racer.benchmarks.tables import PAGES, RESULTS, TABLE, Result, conclude, rendered
from gate_racer.common.errors import UserError
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.planner.uncertainty.prediction import predict
from gate_racer.race.campaign import cli, rivals, run
from gate_racer.race.campaign.case import Case, Outcome, Row
from gate_racer.race.campaign.choice import asked_world, cells_of
from gate_racer.race.campaign.compare import compare, table
from gate_racer.race.campaign.rivals import GRIDS, MultiVehicleResult, load_grid
from gate_racer.race.campaign.rivals import table as grid_table
from gate_racer.race.campaign.tables import cell, cells, lost_s, markdown, published, world_blocks
from gate_racer.sim.multi_vehicle import Standing
from gate_racer.vehicle.uncertainty import Doubt


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


# Grids: the pairings of races of several, as data.


@pytest.mark.parametrize("name", sorted(path.stem for path in GRIDS.glob("*.yaml")))
def test_every_grid_is_one(name):
    grid = load_grid(name)
    assert 2 <= grid.at_once <= len(grid.pilots)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pilots: [{name: a}, {name: a}]", "two pilots have one name"),
        ("pilots: [{name: a}]", "at_once must lie between 2"),
        ("pilots: [{name: a}, {name: b, rivals: heard}]", "must be one of unknown, told"),
        ("pilots: [{name: a}, {name: b, plam: x}]", "plam"),
    ],
)
def test_a_malformed_grid_is_refused_in_one_line(tmp_path, text, said):
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=said) as refused:
        load_grid(str(file))
    assert "\n" not in str(refused.value)


def standing(rank, pilot, times):
    return Standing(rank, pilot, "finished", "", len(times), 2, times[-1], 0, times, [0.4] * len(times))


def test_a_table_counts_ranks_by_name_wherever_one_stood():
    races = [
        MultiVehicleResult(0, ["a", "b"], [standing(1, 1, [1.0, 2.0]), standing(2, 2, [1.1, 2.2])], [], []),
        MultiVehicleResult(1, ["b", "a"], [standing(1, 2, [1.2, 2.0]), standing(2, 1, [1.1, 2.4])], [0.5], [3.0]),
    ]
    assert str(races[1]) == "seed 1, b-a: a 2.000 s, b 2.400 s; 1 contacts"
    lines = grid_table(["a", "b"], races).splitlines()
    assert lines[0] == "a - b: 1 of 2 races with contacts, 0.50 in each; 2 finished by all"
    assert "ranks 2 0, mean 2.000 s" in lines[1] and "ranks 0 2, mean 2.300 s" in lines[2]


def test_places_turn_from_seed_to_seed_and_all_settings_and_worlds_are_written(monkeypatch, capsys, tmp_path):
    ends, worlds = {"spec": 1.0, "dcl": 2.0}, set()  # s, by profile

    def race(pilots, profile, world, seed, setup):
        assert setup.ahead_m == 1.0
        worlds.add(world)
        names, end = [entrant.name for entrant, _ in pilots], ends[profile.name]
        return MultiVehicleResult(seed, names, [standing(1, 1, [end]), standing(2, 2, [end + 0.5])], [], [])

    monkeypatch.setattr(rivals, "race", race)
    monkeypatch.setattr(rivals, "prepare", lambda *_, **__: None)
    asked = ["--settings", "projected", "dcl-projected", "--seeds", "3", "--out", str(tmp_path)]
    keys = ["--set", "rivals.grid=duel", "rivals.ahead_m=1", "first_seed=4"]
    assert run.run(cli.parser().parse_args([*asked, *keys])) == 0
    told = capsys.readouterr().out
    assert "fast - slow: 0 of 3 races with contacts" in told and "finished 3, ranks 2 1" in told
    written = json.loads((tmp_path / "rivals-vq1-dcl-duel.json").read_text())
    places = [(4, ["fast", "slow"]), (5, ["slow", "fast"]), (6, ["fast", "slow"])]
    assert [(one["seed"], one["names"]) for one in written] == 2 * places and worlds == {"as_believed"}
    assert [one["order"][0]["time_s"] for one in written] == [1.0] * 3 + [2.0] * 3
    assert run.run(cli.parser().parse_args([*asked, "--worlds", "factors", *keys])) == 0
    assert "unknown:camera.yaw_deg+" in worlds


def test_races_of_several_are_flown_by_projected_corners_alone():
    arguments = cli.parser().parse_args(["--settings", "rendered", "--set", "rivals.grid=duel"])
    with pytest.raises(UserError, match=r"--settings rendered: .* projected or dcl-projected"):
        run.run(arguments)


# The pages' tables are what the stored results say, and a result is complete: one number or text in a cell.


NAMES = sorted(path.stem for path in RESULTS.glob("*.json"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_the_results_say(page):
    text = page.read_text(encoding="utf-8")
    assert text == rendered(text), "python -m gate_racer.benchmarks.tables"


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_complete_and_in_a_page(name):
    result = Result.load(RESULTS / f"{name}.json")
    assert result.title and result.command and len(set(result.columns)) == len(result.columns)
    assert result.commit or "commit" in result.columns
    for column in zip(*result.rows, strict=True):
        kinds = {isinstance(cell, str) for cell in column if cell is not None}
        assert len(kinds) == 1, column
        assert not any(" / " in cell for cell in column if isinstance(cell, str)), column
    assert any(name == found[1] for page in PAGES for found in TABLE.findall(page.read_text(encoding="utf-8")))


def test_numbers_keep_the_digits_of_the_file_and_what_was_not_measured_is_empty(tmp_path, capsys):
    rows = [{"course": "VQ1", "time s": 6.58749, "of": 9}, {"course": "VQ2", "time s": float("nan"), "of": 10}]
    conclude(tmp_path / "one.json", Result.of("Two", rows))
    assert "6.587" in capsys.readouterr().out
    (tmp_path / "one.json").write_text((tmp_path / "one.json").read_text().replace("6.587", "6.580"))
    kept = Result.load(tmp_path / "one.json")
    assert kept.markdown(["time s", "of"]).splitlines()[2:] == [
        "| time s | of |", "|---|---|", "| 6.580 | 9 |", "|  | 10 |"
    ]  # fmt: skip


@pytest.mark.parametrize("asked", ["nothing", "races: no such column"])
def test_a_table_without_a_result_or_with_an_unknown_column_is_one_line(asked):
    with pytest.raises(UserError, match=r"nothing\.json|no column 'no such column'"):
        rendered(f"<!-- table {asked} -->\n<!-- end -->")


# Flights that err as predicted are found calibrated, and such as err twice as much are not.


@pytest.fixture(scope="module")
def crossings(plan, vq1, dcl):
    """The predicted ones in their likeliest case, without one-sided laws."""
    predicted = predict(plan, Task(vq1, dcl, PlanOptions()), Doubt()).crossings
    plain = [replace(one.cases[0], probability=1.0, free_m=1e3) for one in predicted]
    return tuple(
        replace(one, short_m=0.0 * one.short_m, cases=(case,)) for one, case in zip(predicted, plain, strict=True)
    )


def flights(crossings, count, wider):
    """Rows that cross the gates as predicted, so many times as wide."""
    rng, rows = np.random.default_rng(5), []
    for seed in range(count):
        off = [wider * rng.multivariate_normal([0, 0], one.cov_across) + one.drawn_m for one in crossings]
        places = [one.planned_m + part for one, part in zip(crossings, off, strict=True)]
        margins = [
            float((one.gate.edges[:, 2] - one.gate.edges[:, :2] @ at).min())
            for one, at in zip(crossings, places, strict=True)
        ]
        pairs = [(float(right), float(down)) for right, down in places]
        outcome = Outcome("finished", margin_m=margins, crossing_m=pairs, misjudged_m=[(0.0, 0.0)] * len(pairs))
        rows.append(Row(Case("vq1", "dcl", 1, "projected", "mpcc", "eskf", seed), outcome, np.empty((0, 5))))
    return rows


def test_margins_as_predicted_are_calibrated_and_such_of_wider_flights_are_not(crossings):
    right, _ = calibrate("right", flights(crossings, 200, 1.0), crossings)
    wrong, _ = calibrate("wrong", flights(crossings, 200, 2.0), crossings)
    for predicted in (100 * level for level in LEVELS):
        name = f"{predicted:g} %"
        assert right[f"{name} low"] - 2 <= predicted <= right[f"{name} high"] + 2
        assert right[f"{name} in band"] >= len(crossings) - 1
        if 1 <= predicted <= 16:
            assert wrong[f"{name} low"] > predicted and wrong[f"{name} in band"] < len(crossings)
