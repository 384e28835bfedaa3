"""Rays hit what stands there; sensors of RflySim find the surfaces, cameras agree with them, gimbals obey."""

import math
from contextlib import closing
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate_racer.link.rflysim.desk import DOCUMENT, SDK306, STATE_PORT, GimbalOrder, decode_state, gimbal_request
from gate_racer.link.rflysim.request import pinhole
from gate_racer.link.rflysim.stream import (
    JPEG,
    LOCAL,
    NO_DEPTH,
    RAW,
    WORLD,
    Payload,
    Stream,
    decode_range,
    fragments,
    metres_per_count,
    reader,
)
from gate_racer.link.sockets import bind_udp
from gate_racer.sim.physics.contact import NO_RAY as NOTHING
from gate_racer.sim.physics.contact import Colliders, cast
from gate_racer.sim.view.renderer import FAR_M, RenderedCamera
from gate_racer.sim.view.sensing import Mount, fisheye_rays, mount_of, open_sense, surroundings
from gate_racer.sim.view.style import load_style
from gate_racer.sim.wire.rflysim import RflySimOutlet
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import exp, from_euler, matrix, product, to_euler
from tests.conftest import ROOT
from tests.rflysim import LOCAL_HOST, at, request

STYLE = load_style("race")


@pytest.fixture(scope="module")
def around(vq1):
    made = surroundings(vq1, STYLE, 0)
    cast(made.solids, np.zeros(3), np.eye(3), 1.0)  # compiles
    return made


@pytest.fixture(scope="module")
def course(vq1):
    return Colliders(vq1)


unit = st.builds(lambda seed: np.random.default_rng(seed).normal(size=3), st.integers(0, 10_000)).map(
    lambda d: d / np.linalg.norm(d)
)


@settings(max_examples=30)
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


def off_surface(around, points):
    """Return the distances of points (N, 3) from the nearest surface, m."""
    local = np.einsum("nmi,mij->nmj", points[:, None] - around.solids.centre, around.solids.axes)
    return np.abs((np.abs(local) - around.solids.half).max(-1)).min(-1)


def sensed(about, around, exposure):
    """What a client reads from a sensor's datagrams."""
    told = []
    stream = Stream(about, told.append, reader(about))
    with closing(open_sense(about, around)) as sense:
        *_, sample = (stream.feed(one, 0.0) for one in fragments(Payload(0.0, 1, sense.payload(exposure))))
    assert sample is not None, told
    return sample.value


def test_a_depth_cloud_as_coarse_as_can_be_asked_for_has_a_point(vq1, around):
    about = request(7, other=(100.0, 3e38), euler=(0.0, -90.0, 0.0))
    assert len(sensed(about, around, at(vq1)).points) == 1


def test_every_sensor_finds_the_surfaces_where_they_are(vq1, around):
    """Depth image, clouds and rangefinder agree with the world through mount, attitude and the frames of the protocol."""
    exposure = at(vq1, yaw=2.0)
    down = (10.0, -50.0, 20.0)
    R_wb = matrix(exposure.q_wb)
    R_bs = matrix(from_euler(*np.radians(down)))
    for type_id in (7, 20, 22, 23):
        other = (100.0, 1.0, -20.0, 20.0, -20.0, 20.0) if type_id == 20 else (100.0, 1.0)
        cloud = sensed(request(type_id, other=other, euler=down), around, exposure)
        points = exposure.p_wb + (cloud.points * [1, -1, -1]) @ (R_wb @ R_bs).T
        assert len(points) > 500 and off_surface(around, points).max() < 1e-3
        np.testing.assert_allclose((*cloud.p_wb, *cloud.rpy), (*exposure.p_wb, *to_euler(exposure.q_wb)), rtol=1e-6)
        assert cloud.axes == LOCAL
    in_world = sensed(request(21, other=(100.0, 1.0, -20.0, 20.0, -20.0, 20.0), euler=down), around, exposure)
    assert in_world.axes == WORLD and len(in_world.points) > 500
    assert off_surface(around, in_world.points).max() < 1e-3
    laser = sensed(request(5, other=(100.0,), euler=down), around, exposure)
    assert off_surface(around, np.array([laser.hit_w]))[0] < 1e-4
    assert laser.distance_m == pytest.approx(math.dist(laser.origin_w, laser.hit_w), rel=1e-5)
    about = request(2, mode=RAW, euler=down)
    counts = sensed(about, around, exposure)
    depth = np.where(counts == NO_DEPTH, np.nan, counts * metres_per_count(about))
    points = exposure.p_wb + pixel_rays(pinhole(about), mount_of(about).seen(exposure)) * depth[..., None]
    found = points[np.isfinite(depth)]
    assert len(found) > 500 and off_surface(around, found).max() < 2e-3


def test_a_mount_turns_and_carries_the_sensor(vq1):
    exposure = replace(at(vq1), v_w=np.array([1.0, 2.0, 3.0]), omega_b=np.array([0.3, -0.2, 0.5]))
    p_bs, q_bs = np.array([0.3, -0.1, 0.2]), from_euler(0.3, 0.2, 0.1)
    seen, dt = Mount(p_bs, q_bs, 0).seen(exposure), 1e-6
    q_wb = np.array(product(exposure.q_wb, exp(exposure.omega_b * dt)))
    later = replace(exposure, p_wb=exposure.p_wb + exposure.v_w * dt, q_wb=q_wb)
    moved = Mount(p_bs, q_bs, 0).seen(later)
    np.testing.assert_allclose((moved.p_wb - seen.p_wb) / dt, seen.v_w, atol=1e-5)
    np.testing.assert_allclose(moved.q_wb, product(seen.q_wb, exp(seen.omega_b * dt)), atol=1e-9)
    fixed = Mount(p_bs, q_bs, 3).seen(exposure)
    assert (fixed.q_wb == q_bs).all() and (fixed.p_wb == seen.p_wb).all()


WIDTH, HEIGHT = 160, 120


def camera_request(type_id, mode=RAW, **fields):
    return request(type_id, width=WIDTH, height=HEIGHT, mode=mode, **fields)


def pixel_rays(camera, at_sensor):
    """World rays (H, W, 3), not of unit length: one along the axis."""
    u, v = np.meshgrid(np.arange(camera.width_px), np.arange(camera.height_px))
    rays_c = np.stack([(u - camera.cx_px) / camera.fx_px, (v - camera.cy_px) / camera.fy_px, np.ones(u.shape)], -1)
    return rays_c @ camera.R_bc.T @ matrix(at_sensor.q_wb).T


@pytest.mark.parametrize("course", ["vq1", "vq2"])
def test_rays_meet_what_is_drawn(course):
    track = load_track(ROOT / f"tracks/{course}.yaml")
    exposure, camera = at(track, yaw=math.radians(track.start.yaw_deg)), pinhole(camera_request(1))
    with RenderedCamera(track, camera, STYLE, 0) as drawn:
        drawn.image(exposure.p_wb, exposure.q_wb)
        depth = drawn.depth_m()
    rays = pixel_rays(camera, exposure).reshape(-1, 3)
    length = np.linalg.norm(rays, axis=1)
    distance, _ = cast(surroundings(track, STYLE, 0).solids, exposure.p_wb, rays / length[:, None], FAR_M)
    cast_m = (distance / length).reshape(depth.shape)
    surface = depth < 0.9 * FAR_M
    close = np.abs(cast_m - depth) < 0.02 * depth + 0.2
    assert surface.mean() > 0.2 and close[surface].mean() > 0.9


def test_a_segmentation_shows_each_thing_in_its_colour(vq1, around):
    exposure, about = at(vq1, yaw=math.radians(180)), camera_request(4)
    image = sensed(about, around, exposure)
    rays = pixel_rays(pinhole(about), exposure).reshape(-1, 3)
    _, box = cast(around.solids, exposure.p_wb, rays / np.linalg.norm(rays, axis=1)[:, None], FAR_M)
    thing = np.where(box == NOTHING, around.things, around.solids.thing[box]).reshape(HEIGHT, WIDTH)
    colours = around.colours()
    assert len(np.unique(colours, axis=0)) == len(colours)
    assert len(np.unique(thing)) >= 3
    for k in np.unique(thing):
        assert (image[thing == k] == colours[k]).all()


def test_a_fisheye_sees_what_a_pinhole_sees(vq1, around):
    exposure = at(vq1, yaw=math.radians(180))
    about = request(8, width=300, height=300, mode=RAW, fov_deg=200.0)
    wide, camera = sensed(about, around, exposure), pinhole(replace(about, type_id=1, fov_deg=90.0))
    with RenderedCamera(vq1, camera, STYLE, 0) as drawn:
        narrow = drawn.image(exposure.p_wb, exposure.q_wb)
    rays, _ = fisheye_rays(about)
    rays_c = (rays @ camera.R_bc)[110:190, 110:190]
    where = camera.project(rays_c).astype(np.float32)
    expected = cv2.remap(narrow, where[..., 0], where[..., 1], cv2.INTER_LINEAR).astype(float)
    alike = np.corrcoef(wide[110:190, 110:190].ravel(), expected.ravel())[0, 1]
    assert alike > 0.9 and expected.std() > 10.0
    assert (wide[0, 0] == 0).all(), "nothing outside of the field of view"


def test_infrared_shows_what_shines(vq1, around):
    exposure = at(vq1, yaw=math.radians(180))
    grey, warm, colour = (sensed(camera_request(kind), around, exposure) for kind in (3, 40, 41))
    assert (grey == warm).all() and colour.shape == (HEIGHT, WIDTH, 3)
    hot, cold = np.unravel_index(warm.argmax(), warm.shape), np.unravel_index(warm.argmin(), warm.shape)
    assert colour[hot].sum() > colour[cold].sum()


class Operator:
    """Orders, and what comes of them."""

    def __init__(self, track, masks=DOCUMENT, **fields):
        self.track, self.masks = track, masks
        self.outlet = RflySimOutlet(track, STYLE, 0, 30.0, (LOCAL_HOST, 0), masks=masks)
        self.gimbal = camera_request(9, seq_id=3, other=(-60.0, 30.0, 90.0, 90.0), **fields)
        self.wire, self.frame = bind_udp(LOCAL_HOST, 0), 0
        self.wire.sendto(self.gimbal.encode(), self.outlet.address)

    def order(self, **order):
        self.wire.sendto(gimbal_request(self.gimbal, GimbalOrder(**order), self.masks).encode(), self.outlet.address)
        return self.state()

    def close(self):
        self.wire.close()
        self.outlet.close()

    def state(self, frames=1):
        """The last of so many states; each comes with a frame."""
        for _ in range(frames):
            self.frame += 1
            sent = self.outlet.datagrams(at(self.track, self.frame / 30, self.frame))
            (state,) = (datagram for datagram, target in sent if target[1] == STATE_PORT)
            assert len(sent) > 1
        return decode_state(state)


@pytest.fixture
def operator(vq1):
    with closing(Operator(vq1)) as made:
        yield made


def test_it_turns_as_ordered_at_its_rates_and_within_its_limits(operator):
    assert operator.order(euler=(0.0, -30.0, 10.0)).euler == pytest.approx((0.0, -30.0, 10.0))
    operator.order(rates=(0.0, math.radians(30)))
    begin, end = operator.state().euler, operator.state(15).euler
    assert end[2] - begin[2] == pytest.approx(15.0, abs=0.1) and end[1] == begin[1]
    operator.order(rates=(-10.0, 1e30))
    assert operator.state(60).euler[1] == pytest.approx(-60.0), "its least pitch"
    assert operator.order(centre=True).euler == (0.0, 0.0, 0.0)


def test_it_tells_its_view_zooms_and_ranges(operator, around):
    state = operator.state()
    assert (state.seq_id, state.euler, state.width_px, state.height_px) == (3, (0.0, 0.0, 0.0), WIDTH, HEIGHT)
    assert state.fov_deg == pytest.approx(90.0) and state.fx_px == pytest.approx(WIDTH / 2)
    assert operator.order(zoom=2.0).fx_px == pytest.approx(WIDTH)
    assert operator.state().range_m == 0.0
    state, exposure = operator.order(ranging=True), at(operator.track)
    ahead = mount_of(operator.gimbal).seen(exposure)
    (distance,), _ = cast(around.solids, ahead.p_wb, matrix(ahead.q_wb)[:, :1].T, 100.0)
    assert state.range_m == pytest.approx(min(distance, 100.0), rel=1e-5)


@pytest.mark.parametrize(
    ("order", "words"),
    [({"box": 1}, "neither tracking nor target boxes"), ({"light": 7}, "light 7"), ({"quat": (0.0,) * 4}, "length 1")],
)
def test_an_impossible_order_is_refused_and_the_gimbal_goes_on(operator, order, words, capfd):
    before = operator.state()
    if "quat" in order:
        turned = replace(operator.gimbal, mask=0, by_quat=1.0, quat=order["quat"])
        operator.wire.sendto(turned.encode(), operator.outlet.address)
        after = operator.state()
    else:
        after = operator.order(**order)
    assert after == before and words in capfd.readouterr().err and operator.outlet.refused == 1


@pytest.mark.parametrize(("masks", "turned"), [(DOCUMENT, True), (SDK306, False)], ids=["document", "sdk306"])
def test_orders_are_understood_in_both_numberings(vq1, masks, turned):
    """The SDK has bits for attitude and field of view: there an order of something else must not turn the gimbal."""
    with closing(Operator(vq1, masks)) as operator:
        operator.state()
        assert operator.order(euler=(0.0, -30.0, 10.0)).euler == pytest.approx((0.0, -30.0, 10.0))
        assert operator.order(fov_deg=60.0, ranging=True).fov_deg == pytest.approx(60.0)
        assert operator.order(zoom=2.0, rates=(0.0, 0.1)).fx_px > 0.9 * WIDTH and operator.state().rates[1] > 0.0
        assert operator.state().range_m > 0.0
        unasked = replace(operator.gimbal, mask=0, euler=(0.0, -20.0, 0.0), fov_deg=45.0)
        operator.wire.sendto(unasked.encode(), operator.outlet.address)
        assert (operator.state().euler[1] == pytest.approx(-20.0)) == turned


def test_its_images_have_the_size_ordered(vq1):
    with closing(Operator(vq1, mode=JPEG)) as operator:
        operator.state()
        state = operator.order(size_px=(2 * WIDTH, HEIGHT), zoom=2.0)
        assert (state.width_px, state.height_px, state.fx_px) == (2 * WIDTH, HEIGHT, pytest.approx(2 * WIDTH))
        sent = operator.outlet.datagrams(at(operator.track, 1.0, 9))
    stream = Stream(operator.gimbal, print, reader(operator.gimbal))
    (sample,) = filter(None, (stream.feed(one, 0.0) for one, target in sent if target[1] == operator.gimbal.port))
    assert sample.value.shape == (HEIGHT, 2 * WIDTH, 3)


def test_a_rangefinder_on_a_gimbal_looks_where_the_gimbal_does(operator, around):
    """Mount 4: its carrier is a sensor, which has to exist."""
    laser = request(5, seq_id=4, other=(100.0,), mount_type=4, copter=3)

    def measured():
        operator.frame += 1
        sent = operator.outlet.datagrams(at(operator.track, operator.frame / 30, operator.frame))
        return [decode_range(one[32:]) for one, target in sent if target[1] == laser.port]

    operator.state()
    operator.order(euler=(0.0, -50.0, 0.0))
    operator.wire.sendto(replace(laser, copter=9).encode(), operator.outlet.address)
    operator.wire.sendto(laser.encode(), operator.outlet.address)
    (hit,) = measured()
    exposure = at(operator.track)
    down = matrix(product(exposure.q_wb, from_euler(0.0, math.radians(-50.0), 0.0)))[:, 0]
    (distance,), _ = cast(around.solids, exposure.p_wb, down[None], 100.0)
    assert hit.distance_m == pytest.approx(distance, rel=1e-4) and operator.outlet.refused == 1
    assert hit.origin_w == pytest.approx(tuple(exposure.p_wb), abs=1e-4)
    again = replace(operator.gimbal, fov_deg=60.0)  # a new gimbal in the place of the old one, level
    operator.wire.sendto(again.encode(), operator.outlet.address)
    (level,) = measured()
    (distance,), _ = cast(around.solids, exposure.p_wb, matrix(exposure.q_wb)[:, :1].T, 100.0)
    assert level.distance_m == pytest.approx(min(distance, 100.0), rel=1e-4)


def test_a_quaternion_mounts_and_turns_a_gimbal_and_a_rangefinder(vq1, around):
    tilted, turned = from_euler(0.0, math.radians(-20), 0.0), from_euler(0.0, 0.0, math.radians(30))
    with closing(Operator(vq1, by_quat=1.0, quat=tuple(tilted))) as operator:
        begin = operator.state()
        assert begin.euler == pytest.approx((0.0, -20.0, 0.0)) and begin.quat == pytest.approx(tuple(tilted))
        assert operator.order(quat=tuple(turned)).euler == pytest.approx((0.0, 0.0, 30.0))
        assert operator.order(euler=(0.0, 0.0, 0.0)).euler == (0.0, 0.0, 0.0), "though it always was in the request"
        operator.order(quat=tuple(turned))
        assert operator.order(centre=True).euler == pytest.approx((0.0, -20.0, 0.0))
    about = request(5, other=(50.0,), by_quat=1.0, quat=tuple(tilted))
    assert decode_range(open_sense(about, around).payload(at(vq1))).euler == pytest.approx((0.0, -20.0, 0.0))


def test_a_fisheye_is_equidistant():
    about = request(8, width=200, height=200, fov_deg=180.0)
    rays, inside = fisheye_rays(about)
    assert np.linalg.norm(rays, axis=-1) == pytest.approx(1.0)
    theta = np.arccos(rays[100, :, 0])
    np.testing.assert_allclose(np.diff(theta)[101:], math.pi / 200, rtol=1e-6)
    assert inside.mean() == pytest.approx(math.pi / 4, abs=0.02)
    assert rays[100, 150, 1] > 0 and rays[150, 100, 2] > 0, "right and down"
