"""Who races whom, as data."""

import pytest

from benchmarks.rivals import GRIDS, Race, load_grid, table
from sim.heat.standings import Standing
from vehicle.errors import UserError


@pytest.mark.parametrize("name", sorted(path.stem for path in GRIDS.glob("*.yaml")))
def test_every_grid_is_one(name):
    grid = load_grid(name)
    assert 2 <= grid.at_once <= len(grid.pilots)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pilots: [{name: a}, {name: a}]", "two pilots have one name"),
        ("pilots: [{name: a}]", "at_once must lie between 2"),
        ("pilots: [{name: a}, {name: b, rivals: heard}]", "must be one of unknown, told, seen"),
        ("pilots: [{name: a}, {name: b, plam: x}]", "plam"),
    ],
)
def test_what_is_no_grid_is_refused_in_a_line(tmp_path, text, said):
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=said) as refused:
        load_grid(str(file))
    assert "\n" not in str(refused.value)


def test_a_grid_that_there_is_not_names_those_that_there_are():
    with pytest.raises(UserError, match=r"no grid 'trio'; known: .*duel"):
        load_grid("trio")


def standing(rank, pilot, times):
    return Standing(rank, pilot, "finished", "", len(times), 2, times[-1], 0, times, [0.4] * len(times))


def test_a_table_counts_ranks_by_name_wherever_one_stood():
    races = [
        Race(0, ["a", "b"], [standing(1, 1, [1.0, 2.0]), standing(2, 2, [1.1, 2.2])], [], []),
        Race(1, ["b", "a"], [standing(1, 2, [1.2, 2.0]), standing(2, 1, [1.1, 2.4])], [0.5], [3.0]),
    ]
    assert races[1].leaders == ["b", "a"]
    lines = table(["a", "b"], races).splitlines()
    assert lines[0] == "a - b: 1 of 2 races with contacts, 0.50 in each; 2 finished by all"
    assert "ranks 2 0, mean 2.000 s" in lines[1] and "ranks 0 2, mean 2.300 s" in lines[2]
