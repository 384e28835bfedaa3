"""`RenderedCamera`: the vehicle's camera image of the world, by off-screen OpenGL.

The projection is exactly that of `vehicle.camera`. OpenGL has the centre of column i at i + 0.5, the pinhole model at i; the
image is rendered upside down, so that rows are read top first. For a distorting lens a larger and finer pinhole image is
rendered, and each pixel of the lens is sampled where its ray intersects that image.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gate_racer.common.errors import UserError
from gate_racer.link.rflysim.request import GREY, INFRARED, INFRARED_GREY
from gate_racer.link.sockets import Closing
from gate_racer.sim.traffic import Rival
from gate_racer.sim.view.scene import Floats, build, quadrotors
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.sim.view.texture import Image
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, exp, from_euler, product
from gate_racer.vehicle.vehicle import Vehicle

try:
    import moderngl
except ImportError:  # it has no wheel for aarch64, on board of which nothing is rendered
    moderngl = None

SHADERS = Path(__file__).parent / "shaders"
SOLIDS = "3f 3f 4f", "p_w", "uvl", "tint"  # vertex layout of solids


def shape(
    ctx: "moderngl.Context", shader: str, vertices: NDArray[np.float32], layout: str, *names: str
) -> "moderngl.VertexArray | None":
    """Return a vertex array with static vertices; None for no vertices."""
    return array(ctx, shader, ctx.buffer(vertices.tobytes()), layout, *names) if len(vertices) else None


def array(
    ctx: "moderngl.Context", shader: str, buffer: "moderngl.Buffer", layout: str, *names: str
) -> "moderngl.VertexArray":
    """Return a vertex array of a buffer for a shader; `names` are the shader's inputs in the buffer's layout."""
    vertex, fragment = ((SHADERS / f"{shader}.{kind}").read_text() for kind in ("vert", "frag"))
    return ctx.vertex_array(ctx.program(vertex_shader=vertex, fragment_shader=fragment), [(buffer, layout, *names)])


def render(drawn: "moderngl.VertexArray | None", mode: int, uniforms: dict[str, bytes]) -> None:
    """Draw a vertex array, with those of the uniforms that its shader has."""
    if drawn is not None:
        for name, value in uniforms.items():
            if name in drawn.program:
                drawn.program[name].write(value)
        drawn.render(mode)


def in_light(image: Image, type_id: int) -> Image:
    """Convert a BGR image (H, W, 3) to the spectrum of a camera type; in infrared brightness is temperature."""
    if type_id not in (GREY, INFRARED, INFRARED_GREY):
        return image
    grey = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), np.uint8)
    return np.asarray(cv2.applyColorMap(grey, cv2.COLORMAP_INFERNO), np.uint8) if type_id == INFRARED else grey


NEAR_M, FAR_M = 0.05, 400.0  # clipping planes (chosen)
REACH_M = 120.0  # m, distance at which a hall's light has decayed to 1/e
FLICKER_HZ = 2.0  # of the hall's light (chosen)
WAVES_S = 1e3  # s, period of the shader's clock, limited by single precision
BLUR_RANGE_M = 3.0  # m, assumed least range of the scene when blur is estimated (chosen)
STEP_PX = 2.0  # px of motion between averaged instants; half of it gives the same corners at twice the time
MOST_INSTANTS = 12  # largest number of instants per exposure, and of row bands per read-out
LENS_FINENESS = 1.5  # resolution of the pinhole image over the distorted one's, per axis; with 1 edges shift by 0.03 px
BRIGHT, BLOOM_PX = 128, 8.0  # grey level above which light blooms, and the bloom's standard deviation (chosen by eye)
WHOLE = slice(None)


class CameraError(UserError):
    """Error raised when this machine cannot render."""


class RenderedCamera(Closing):
    """Camera that renders the world. Geometry stays on the device; an image needs only a matrix and the time.

    Not thread-safe: use it from the thread that created it.
    """

    def __init__(
        self, track: Track, camera: Camera, style: RenderingStyle, seed: int, gates_only: bool = False
    ) -> None:
        """Build the scene of `track`, without balls and invisible gates; `gates_only` on black.

        `seed`: of the random parts of the style, and of the hall's furniture. Raises CameraError where OpenGL 3.3, or the number
        of samples per pixel, is not available.
        """
        self.camera, self.style = camera, style.varied(seed)
        self._pinhole: Camera = camera
        self._lookup: tuple[Floats, Floats] | None = None
        if camera.lens.distorts:
            self._pinhole, self._lookup = _lens_lookup(camera)
        self._context = ctx = _context()
        if style.samples > (limit := ctx.max_samples):
            ctx.release()
            raise CameraError(f"{style.samples} samples per pixel requested, this OpenGL supports at most {limit}")
        size = (self._pinhole.width_px, self._pinhole.height_px)
        with ctx:
            self._drawn, self._resolved = (
                ctx.framebuffer(ctx.renderbuffer(size, samples=n), ctx.depth_renderbuffer(size, samples=n))
                for n in (style.samples, 0)
            )
            scene = build(track, self.style, seed, gates_only)
            k, side = scene.layers.shape[:2]
            self._layers = ctx.texture_array((side, side, k), 3, scene.layers.tobytes(), alignment=1)
            self._layers.build_mipmaps()
            self._layers.filter = (moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR)
            self._solids = shape(ctx, "solid", scene.solids, *SOLIDS)
            self._lines = shape(ctx, "line", scene.lines, "3f 3f", "p_w", "rgb")
            self._corridor = shape(ctx, "corridor", scene.corridor, "3f 2f", "p_w", "strip")
            self._pools = shape(ctx, "pool", scene.pools, "3f 3f 3f 3f", "p_w", "foot_w", "shape", "rgb")
        self._clip_from_camera = _projection(self._pinhole)
        self._rivals: tuple[moderngl.VertexArray, moderngl.Buffer] | None = None  # created with the first rivals

    def image(self, p_wb: ArrayLike, q_wb: ArrayLike, t: float = 0.0, rows: slice = WHOLE) -> Image:
        """Render the image (height, width, 3), BGR, from a body's pose, or `rows` of it. `t`: s, of moving light and flicker."""
        return self._through_lens(self._pinhole_image(p_wb, q_wb, t, rows), rows)

    def _through_lens(self, drawn: Image, rows: slice) -> Image:
        """Return rows of the distorted image from the rows of the pinhole image that they depend on."""
        if self._lookup is None:
            return drawn
        columns, lines = self._lookup
        return cv2.remap(drawn, columns[rows], lines[rows] - self._drawn_rows(rows)[0], cv2.INTER_LINEAR)

    def _pinhole_image(
        self, p_wb: ArrayLike, q_wb: ArrayLike, t: float, rows: slice, rivals: tuple[Rival, ...] = ()
    ) -> Image:
        """Render the rows of the undistorted image on which `rows` of the distorted one depend."""
        eye_w, R_wc = self.camera.pose(p_wb, q_wb)
        R_cw = R_wc.T
        clip_from_world = self._clip_from_camera @ np.block(
            [[R_cw, -(R_cw @ eye_w)[:, None]], [np.zeros(3), np.ones(1)]]
        )
        swing = 1 + self.style.flicker * math.sin(2 * math.pi * FLICKER_HZ * t)
        values = {
            "clip_from_world": clip_from_world.T,  # OpenGL is column-major
            "ambient": swing * self.style.ambient,
            "lamps": self.style.lamps,
            "glow": self.style.glow,
            "fill": self.style.corridor,
            "reach_m": REACH_M,
            "time_s": t % WAVES_S,
            "eye_w": eye_w,
        }
        uniforms = {name: np.asarray(value, np.float32).tobytes() for name, value in values.items()}
        first, last = self._drawn_rows(rows)
        width = self._pinhole.width_px
        band = (0, first, width, last - first)
        image = np.empty((last - first, width, 3), np.uint8)
        with self._context as ctx:
            self._drawn.scissor = band
            self._drawn.use()
            self._drawn.clear()
            self._layers.use()
            ctx.enable_only(moderngl.DEPTH_TEST | moderngl.CULL_FACE)
            render(self._solids, moderngl.TRIANGLES, uniforms)
            if rivals:
                render(self._crowd(quadrotors(rivals)), moderngl.TRIANGLES, uniforms)
            # Lines and light are additive and do not write depth.
            ctx.enable_only(moderngl.DEPTH_TEST | moderngl.BLEND)
            ctx.blend_func = moderngl.ONE, moderngl.ONE
            self._drawn.depth_mask = False
            render(self._lines, moderngl.LINES, uniforms)
            render(self._pools, moderngl.TRIANGLES, uniforms)
            render(self._corridor, moderngl.TRIANGLES, uniforms)
            self._drawn.depth_mask = True
            ctx.copy_framebuffer(self._resolved, self._drawn)
            self._resolved.read_into(image, viewport=band, components=3, alignment=1)
        return image

    def _crowd(self, vertices: Floats) -> "moderngl.VertexArray":
        data = vertices.tobytes()
        if self._rivals is None or self._rivals[1].size != len(data):
            buffer = self._context.buffer(data, dynamic=True)
            self._rivals = array(self._context, "solid", buffer, *SOLIDS), buffer
        self._rivals[1].write(data)
        return self._rivals[0]

    def _drawn_rows(self, rows: slice) -> tuple[int, int]:
        """Return the range [first, end) of pinhole rows on which `rows` of the distorted image depend."""
        height = self._pinhole.height_px
        if self._lookup is None:
            first, last, _ = rows.indices(height)
            return first, last
        lines = self._lookup[1][rows]
        return max(int(lines.min()), 0), min(int(np.ceil(lines.max())) + 2, height)

    def depth_m(self) -> Floats:
        """Return the depth (height, width) of the last image along the optical axis, m; FAR_M where there is no surface."""
        with self._context:
            data = self._resolved.read(components=1, attachment=-1, dtype="f4", alignment=1)
        z = np.frombuffer(data, np.float32).reshape(self._pinhole.height_px, self._pinhole.width_px)
        if self._lookup is not None:
            z = cv2.remap(z, *self._lookup, cv2.INTER_NEAREST)
        return 2 * FAR_M * NEAR_M / (FAR_M + NEAR_M - (2 * z - 1) * (FAR_M - NEAR_M))

    def expose(
        self, p_wb: Array, q_wb: Array, v_w: Array, omega_b: Array, t: float, rivals: tuple[Rival, ...] = ()
    ) -> Image:
        """Render with motion blur over the style's `exposure_s`, centred on t, and a rolling shutter over its `readout_s`.

        The body moves at v_w (3,) m/s and omega_b (3,) rad/s, and rivals, given at t, at their own velocities. One instant is
        averaged for blur, and one band of rows rendered for the shutter, per `STEP_PX` of image motion.
        """
        speed_px = self.camera.fx_px * (np.linalg.norm(omega_b) + np.linalg.norm(v_w) / BLUR_RANGE_M)

        def instants(span_s: float) -> Array:
            n = int(np.clip(np.ceil(span_s * speed_px / STEP_PX), 1, MOST_INSTANTS))
            return span_s * ((np.arange(n) + 0.5) / n - 0.5)

        def at(dt: float, part: slice) -> Image:
            p, q = (p_wb + v_w * dt, product(q_wb, exp(omega_b * dt))) if dt else (p_wb, q_wb)
            others = tuple(rival.at(dt) for rival in rivals) if dt else rivals
            return self._pinhole_image(p, q, t, part, others)

        rows, blur = instants(self.style.readout_s), instants(self.style.exposure_s)
        image = np.empty((self.camera.height_px, self.camera.width_px, 3), np.uint8)
        for part, later in zip(np.array_split(np.arange(len(image)), len(rows)), rows, strict=True):
            band = slice(int(part[0]), int(part[-1]) + 1)
            total = at(float(later + blur[0]), band).astype(np.uint16)
            for dt in blur[1:]:
                total += at(float(later + dt), band)
            mean = ((total + len(blur) // 2) // len(blur)).astype(np.uint8)
            image[band] = self._through_lens(mean, band)
        return self._developed(image)

    def _developed(self, image: Image) -> Image:
        style = self.style
        if style.bloom:
            light = np.maximum(image, BRIGHT).astype(np.float32) - BRIGHT
            spread = cv2.GaussianBlur(light, (0, 0), BLOOM_PX)
            image = np.clip(image + style.bloom * spread, 0, 255).astype(np.uint8)
        if style.softness_px:
            image = np.asarray(cv2.GaussianBlur(image, (0, 0), style.softness_px), np.uint8)
        if style.gamma != 1:
            curve = 255 * (np.arange(256) / 255) ** style.gamma
            image = np.asarray(cv2.LUT(image, curve.round().astype(np.uint8)), np.uint8)
        return image

    def close(self) -> None:
        self._context.release()


def _context() -> "moderngl.Context":
    if moderngl is None:
        raise CameraError("the rendered camera needs moderngl: pip install 'gate-racer[render]'")
    try:
        if sys.platform == "linux":
            return moderngl.create_context(require=330, standalone=True, backend="egl")
        return moderngl.create_context(require=330, standalone=True)
    except Exception as error:  # moderngl and glcontext raise bare Exceptions
        raise CameraError(
            f"the rendered camera needs OpenGL 3.3 ({error}); on Debian and Ubuntu: "
            "apt-get install libegl1 libgl1 libgl1-mesa-dri"
        ) from error


def _lens_lookup(camera: Camera) -> tuple[Camera, tuple[Floats, Floats]]:
    """Return a pinhole camera that covers the lens's field of view, and the lookup (columns, rows) of the lens's pixels in it."""
    u, v = np.meshgrid(np.arange(camera.width_px, dtype=float), np.arange(camera.height_px, dtype=float))
    rays = camera.rays(np.stack([u, v], -1))
    low, high = rays.min((0, 1)), rays.max((0, 1))
    fx = LENS_FINENESS * max(camera.fx_px, 1 / np.diff(rays[..., 0], axis=1).min())
    fy = LENS_FINENESS * max(camera.fy_px, 1 / np.diff(rays[..., 1], axis=0).min())
    width, height = (math.ceil(n) + 2 for n in ((high - low) * [fx, fy]).tolist())
    cx, cy = 1 - low[0] * fx, 1 - low[1] * fy
    inner = {"width_px": width, "height_px": height, "fx_px": fx, "fy_px": fy, "cx_px": cx, "cy_px": cy}
    pinhole = replace(camera.without_lens, **inner)
    at = pinhole.project(np.concatenate([rays, np.ones((*rays.shape[:2], 1))], -1)).astype(np.float32)
    return pinhole, (at[..., 0], at[..., 1])


def _projection(camera: Camera) -> Array:
    """Return the matrix (4, 4) from camera to clip coordinates: pixel (u, v) is at window (u + 0.5, v + 0.5), v upward."""
    n, f = NEAR_M, FAR_M
    return np.array(
        [
            [2 * camera.fx_px / camera.width_px, 0, (2 * camera.cx_px + 1) / camera.width_px - 1, 0],
            [0, 2 * camera.fy_px / camera.height_px, (2 * camera.cy_px + 1) / camera.height_px - 1, 0],
            [0, 0, (f + n) / (f - n), -2 * f * n / (f - n)],
            [0, 0, 1, 0],
        ]
    )


def shoot(file: Path, track: Track, vehicle: Vehicle, style: RenderingStyle, seed: int, pose: str) -> None:
    """Render the camera's image at rest and write it as PNG. `pose`: as in `parse_pose`, or "" for the start.

    Raises UserError: a malformed pose, a file that cannot be written, or no OpenGL.
    """
    p_wb, q_wb = parse_pose(pose) if pose else (track.start.p_wb, track.start.q_wb)
    if file.suffix.lower() != ".png":
        raise UserError(f"shot.file {file}: the name must end in .png")
    with RenderedCamera(track, vehicle.camera, style, seed) as camera:
        image = camera.image(p_wb, q_wb)
    try:
        file.write_bytes(cv2.imencode(".png", image)[1].tobytes())
    except OSError as error:
        raise UserError(f"shot.file {file}: cannot be written ({error.strerror})") from None


def parse_pose(text: str) -> tuple[Array, Array]:
    """Return position (3,) m and attitude (4,) from "x,y,z,roll,pitch,yaw" in m and degrees. Raises UserError."""
    try:
        numbers = np.array([float(number) for number in text.split(",")])
    except ValueError:
        numbers = np.empty(0)
    if numbers.shape != (6,) or not np.isfinite(numbers).all():
        raise UserError(f"shot.pose {text}: expected six numbers x,y,z,roll,pitch,yaw in m and degrees")
    return numbers[:3], from_euler(*np.radians(numbers[3:]))
