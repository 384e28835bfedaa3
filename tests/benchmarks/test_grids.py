"""Grids: the pairings of races of several, as data."""

import json

import pytest

from gate_racer.common.errors import UserError
from gate_racer.race.campaign import cli, rivals, run
from gate_racer.race.campaign.rivals import GRIDS, MultiVehicleResult, load_grid, table
from gate_racer.sim.multi_vehicle import Standing


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
    lines = table(["a", "b"], races).splitlines()
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
