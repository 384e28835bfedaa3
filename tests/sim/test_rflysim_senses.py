"""Rays hit what stands there, and every sensor finds the surfaces where they are."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate_racer.link.rflysim.config import pinhole
from gate_racer.link.rflysim.fragments import Payload, fragments
from gate_racer.link.rflysim.payloads import LOCAL, RAW, WORLD, depth_m
from gate_racer.link.rflysim.stream import Stream, reader
from gate_racer.sim.physics.contact import NO_RAY as NOTHING
from gate_racer.sim.physics.contact import Colliders, cast
from gate_racer.sim.view.sensing import Mount, open_sense, surroundings
from gate_racer.sim.view.style import load_style
from gate_racer.vehicle.rotation import exp, from_euler, matrix, product, to_euler
from tests.sim.rflysim_requests import at, request


@pytest.fixture(scope="module")
def world(vq1):
    made = surroundings(vq1, load_style("race"), 0)
    cast(made.solids, np.zeros(3), np.eye(3), 1.0)  # compiles
    return made


@pytest.fixture(scope="module")
def course(vq1):
    return Colliders(vq1)


unit = st.builds(lambda seed: np.random.default_rng(seed).normal(size=3), st.integers(0, 10_000)).map(
    lambda d: d / np.linalg.norm(d)
)


@settings(deadline=None)
@given(unit, st.floats(0.1, 60.0))
def test_a_ray_ends_on_the_first_surface(course, direction, range_m):
    solids, p = course.solids, np.array([0.0, 0.0, -2.0])
    (s,), (box,) = cast(solids, p, direction[None], range_m)

    def beyond(point, i):
        """Return the distance outside of box i, m; negative inside."""
        return float((np.abs((point - solids.centre[i]) @ solids.axes[i]) - solids.half[i]).max())

    if box != NOTHING:
        assert abs(beyond(p + s * direction, box)) < 1e-9 and s <= range_m
    for fraction in np.linspace(0, 1, 50)[:-1]:
        point = p + fraction * min(s, range_m) * direction
        assert all(beyond(point, i) > -1e-9 for i in range(len(solids.half)))


def test_a_gate_is_seen_by_its_frame_and_through_its_opening(vq1, world):
    gate = vq1.gates[0]
    before, ahead = gate.p_wg - 3.0 * gate.R_wg[:, 0], gate.R_wg[:, :1].T
    (through,), _ = cast(world.solids, before, ahead, 3.5)
    bar = before + gate.R_wg[:, 1] * (gate.opening_m + gate.outer_m) / 4
    (frame,), (box,) = cast(world.solids, bar, ahead, 3.5)
    assert through == math.inf and frame == pytest.approx(3.0 - gate.depth_m / 2)
    assert Colliders(vq1).things[world.solids.thing[box]] == ("gate", 0)


def off_surface(world, points):
    """Return the distances of points (N, 3) from the nearest surface, m."""
    local = np.einsum("nmi,mij->nmj", points[:, None] - world.solids.centre, world.solids.axes)
    return np.abs((np.abs(local) - world.solids.half).max(-1)).min(-1)


def test_a_depth_cloud_as_coarse_as_can_be_asked_for_has_a_point(vq1, world):
    sense = open_sense(request(7, other=(100.0, 3e38), euler=(0.0, -90.0, 0.0)), vq1, world, load_style("race"), 0)
    stream = Stream(request(7), lambda line: None, reader(request(7)))
    (datagram,) = fragments(Payload(0.0, 1, sense.payload(at(vq1))))
    sample = stream.feed(datagram, "sim", 0.0)
    assert sample is not None and len(sample.value.points) == 1


def test_every_sensor_finds_the_surfaces_where_they_are(vq1, world):
    """Depth image, clouds and rangefinder agree with the world through mount, attitude and the frames of the protocol."""
    exposure, style = at(vq1, yaw=2.0), load_style("race")
    down = (10.0, -50.0, 20.0)

    def sensed(about):
        told = []
        sense, stream = open_sense(about, vq1, world, style, 0), Stream(about, told.append, reader(about))
        (sample,) = (stream.feed(d, "sim", 0.0) for d in fragments(Payload(0.0, 1, sense.payload(exposure))))
        assert sample is not None, told
        return sample.value

    R_wb = matrix(exposure.q_wb)
    R_bs = matrix(from_euler(*np.radians(down)))
    for type_id in (7, 20, 22, 23):
        other = (100.0, 1.0, -20.0, 20.0, -20.0, 20.0) if type_id == 20 else (100.0, 1.0)
        cloud = sensed(request(type_id, other=other, euler=down))
        points = exposure.p_wb + (cloud.points * [1, -1, -1]) @ (R_wb @ R_bs).T
        assert len(points) > 500 and off_surface(world, points).max() < 1e-3
        np.testing.assert_allclose((*cloud.p_wb, *cloud.rpy), (*exposure.p_wb, *to_euler(exposure.q_wb)), rtol=1e-6)
        assert cloud.axes == LOCAL
    world_cloud = sensed(request(21, other=(100.0, 1.0, -20.0, 20.0, -20.0, 20.0), euler=down))
    assert (
        world_cloud.axes == WORLD
        and len(world_cloud.points) > 500
        and off_surface(world, world_cloud.points).max() < 1e-3
    )
    laser = sensed(request(5, other=(100.0,), euler=down))
    assert off_surface(world, np.array([laser.hit_w]))[0] < 1e-4
    assert laser.distance_m == pytest.approx(math.dist(laser.origin_w, laser.hit_w), rel=1e-5)
    about = request(2, mode=RAW, euler=down)
    depth, camera = depth_m(sensed(about), about), pinhole(about)
    v, u = np.mgrid[: camera.height_px, : camera.width_px]
    rays_c = np.stack([(u - camera.cx_px) / camera.fx_px, (v - camera.cy_px) / camera.fy_px, np.ones(u.shape)], -1)
    points = exposure.p_wb + (rays_c * depth[..., None]) @ (R_wb @ R_bs @ camera.R_bc).T
    seen = points[np.isfinite(depth)]
    assert len(seen) > 500 and off_surface(world, seen).max() < 2e-3


def test_a_mount_turns_and_carries_the_sensor(vq1):
    exposure = replace(at(vq1), v_w=np.array([1.0, 2.0, 3.0]), omega_b=np.array([0.3, -0.2, 0.5]))
    p_bs, q_bs = np.array([0.3, -0.1, 0.2]), from_euler(0.3, 0.2, 0.1)
    seen, dt = Mount(p_bs, q_bs, 0).seen(exposure), 1e-6
    later = replace(
        exposure,
        p_wb=exposure.p_wb + exposure.v_w * dt,
        q_wb=np.array(product(exposure.q_wb, exp(exposure.omega_b * dt))),
    )
    moved = Mount(p_bs, q_bs, 0).seen(later)
    np.testing.assert_allclose((moved.p_wb - seen.p_wb) / dt, seen.v_w, atol=1e-5)
    np.testing.assert_allclose(moved.q_wb, product(seen.q_wb, exp(seen.omega_b * dt)), atol=1e-9)
    fixed = Mount(p_bs, q_bs, 3).seen(exposure)
    assert (fixed.q_wb == q_bs).all() and (fixed.p_wb == seen.p_wb).all()
