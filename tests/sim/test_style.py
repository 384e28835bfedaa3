"""Styles: every one shows gates, and differs from the others by what its file says."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.sim.view.style import FOLDER, load_style
from tests.sim.drawn import GATE, ONE_GATE, RACE, SMOOTH, STYLES, VADR, facing, track


@pytest.mark.parametrize("name", ["vq1", "vq2"])
def test_images_are_as_dark_as_the_real_ones(draw, name):
    drawn = draw(course := track(name))
    gates = [gate for gate in course.gates if not gate.is_ball]
    grey = [drawn.image(*facing(gate, VADR, 10.0, 0.0, 0.0)) @ np.array([0.114, 0.587, 0.299]) for gate in gates]
    assert 22 < np.mean(grey) < 37
    assert all(image.std() > 15 for image in grey)


def test_no_samples_leave_staircases_and_four_smooth_them(draw):
    pose = facing(GATE, VADR, 4.0, 0.3, 0.2, (0.1, 0.0, 0.0))
    red = {style.name: draw(ONE_GATE, style=style, gates_only=True).image(*pose)[..., 2] for style in (RACE, SMOOTH)}
    between = {name: ((image > 20) & (image < 230)).mean() for name, image in red.items()}
    assert between["race"] == 0 < between["smooth"]


def test_light_runs_along_the_corridor_with_time(draw):
    vq1 = track("vq1")
    drawn, pose = draw(vq1), (vq1.start.p_wb, vq1.start.q_wb)
    assert (
        drawn.image(*pose, t=1.0).tobytes()
        == drawn.image(*pose, t=1.0).tobytes()
        != drawn.image(*pose, t=1.3).tobytes()
    )


def test_a_varied_style_differs_from_seed_to_seed():
    mixed = load_style("mixed")
    styles = [mixed.varied(seed) for seed in range(30)]
    assert styles == [mixed.varied(seed) for seed in range(30)]
    assert {style.world for style in styles} == {"neon", "hangar"}
    assert len({style.ambient for style in styles}) == 30 and all(style.ambient > 0 for style in styles)
    assert RACE.varied(5) == RACE


@pytest.mark.parametrize(
    ("change", "words"),
    [("world: cave", "world: 'cave'"), ("jpeg_quality: 0", "jpeg_quality: 0"), ("flicker: 2.0", "flicker")],
)
def test_a_look_that_cannot_be_drawn_is_refused_by_name(tmp_path, change, words):
    key = change.split(":")[0]
    lines = [line for line in (FOLDER / "race.yaml").read_text().splitlines() if not line.startswith(f"{key}:")]
    (tmp_path / "odd.yaml").write_text("\n".join([*lines, change]))
    with pytest.raises(UserError, match=words):
        load_style(str(tmp_path / "odd.yaml"))


@pytest.mark.parametrize("name", STYLES)
def test_every_look_shows_gates_on_every_course(draw, name):
    for course in (track("vq1"), track("vq2")):
        gate = course.gates[1]
        image = draw(course, style=load_style(name)).image(*facing(gate, VADR, 6.0, 0.0, 0.0))
        assert ((image[..., 2] > 200) & (image[..., 1] < 110)).mean() > 0.02


DEVELOPED = [
    (
        "softness_px",
        1.0,
        lambda a, b: np.abs(np.diff(b[..., 2].astype(int))).max() < np.abs(np.diff(a[..., 2].astype(int))).max(),
    ),
    ("bloom", 0.5, lambda a, b: (b >= a).all() and (b > a).any()),
    ("gamma", 1.3, lambda a, b: (b <= a).all() and (b < a).any()),
]


@pytest.mark.parametrize(("option", "value", "seen"), DEVELOPED, ids=[d[0] for d in DEVELOPED])
def test_other_engines_soften_glow_and_darken(draw, option, value, seen):
    pose, rest = facing(GATE, VADR, 4.0, 0.0, 0.0), np.zeros(3)
    plain, other = (draw(ONE_GATE, style=style, gates_only=True) for style in (RACE, replace(RACE, **{option: value})))
    assert seen(plain.expose(*pose, rest, rest, 0.0), other.expose(*pose, rest, rest, 0.0))
