"""`RenderedCamera`: the drone's picture of the drawn world, by OpenGL off the screen, with true multi-sampling.

The projection is the pinhole of `vehicle.camera` exactly. OpenGL puts the centre of column i at i + 0.5, the pinhole at i;
rows come out top first because the picture is drawn upside down.
"""

import sys
from types import TracebackType
from typing import Self

import moderngl
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.scene import build
from tracks.track import Track
from vehicle.camera import Camera
from vehicle.errors import UserError
from vehicle.rotation import Array, matrix

NEAR_M, FAR_M = 0.05, 400.0

SOLID = (
    """
    #version 330
    uniform mat4 M;
    in vec3 p_w; in vec3 uvl; in vec3 rgb;
    out vec3 at; out vec3 tint;
    void main() { gl_Position = M * vec4(p_w, 1); at = uvl; tint = rgb; }
    """,
    """
    #version 330
    uniform sampler2DArray layers;
    in vec3 at; in vec3 tint;
    out vec4 bgra;
    void main() { bgra = vec4((texture(layers, at).rgb * tint).bgr, 1); }
    """,
)
LINE = (
    """
    #version 330
    uniform mat4 M;
    in vec3 p_w; in vec3 rgb;
    out vec3 tint;
    void main() { gl_Position = M * vec4(p_w, 1); tint = rgb; }
    """,
    """
    #version 330
    in vec3 tint;
    out vec4 bgra;
    void main() {
        float depth_m = 1 / gl_FragCoord.w;
        bgra = vec4(tint.bgr * exp(-depth_m / 60), 1);  // far lines crowd, so they fade
    }
    """,
)
GLOW = (
    """
    #version 330
    uniform mat4 M;
    in vec3 p_w; in vec2 strip; in vec3 rgb;
    out vec2 at; out vec3 tint;
    void main() { gl_Position = M * vec4(p_w, 1); at = strip; tint = rgb; }
    """,
    """
    #version 330
    in vec2 at; in vec3 tint;
    out vec4 bgra;
    void main() {
        float edge = smoothstep(0.88, 0.96, abs(at.x));
        float pulse = pow(0.5 + 0.25 * sin(at.y * 1.3) + 0.25 * sin(at.y * 3.1 + at.x), 3);
        bgra = vec4(tint.bgr * (0.12 + 0.35 * pulse * (1 - at.x * at.x) + 0.75 * edge), 1);
    }
    """,
)


class CameraError(UserError):
    """The pictures cannot be drawn on this machine."""


class RenderedCamera:
    """Draws what the camera sees. All geometry stays on the device; a picture sends one matrix.

    To be used from the thread that made it.
    """

    def __init__(self, track: Track, camera: Camera, seed: int, samples: int = 4, gates_only: bool = False) -> None:
        """Builds the world of `track`.

        Args:
            track: what to draw; balls and invisible gates are left out.
            camera: intrinsics and mount.
            seed: furnishes the hall.
            samples: per pixel; 0 gives staircases, which is how the real simulator's edges look.
            gates_only: draws the gates on black and nothing else.

        Raises:
            CameraError: OpenGL 3.3 or that many samples per pixel cannot be had.
        """
        self.camera = camera
        self._context = ctx = _context()
        if samples > ctx.max_samples:
            limit = ctx.max_samples
            ctx.release()
            raise CameraError(f"{samples} samples per pixel asked for, this OpenGL has at most {limit}")
        size = (camera.width_px, camera.height_px)
        with ctx:
            self._drawn = ctx.framebuffer(
                ctx.renderbuffer(size, samples=samples), ctx.depth_renderbuffer(size, samples=samples)
            )
            self._resolved = ctx.framebuffer(ctx.renderbuffer(size))
            scene = build(track, seed, gates_only)
            k, side = scene.layers.shape[:2]
            self._layers = ctx.texture_array((side, side, k), 3, scene.layers.tobytes(), alignment=1)
            self._layers.build_mipmaps()
            self._layers.filter = (moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR)
            self._solids = _shape(ctx, SOLID, scene.solids, "3f 3f 3f", "p_w", "uvl", "rgb")
            self._lines = _shape(ctx, LINE, scene.lines, "3f 3f", "p_w", "rgb")
            self._glow = _shape(ctx, GLOW, scene.glow, "3f 2f 3f", "p_w", "strip", "rgb")
        self._clip_from_camera = _projection(camera)

    def image(self, p_wb: ArrayLike, q_wb: ArrayLike) -> NDArray[np.uint8]:
        """The picture (height, width, 3), BGR, from a body at p_wb (3,) in m with attitude q_wb (4,), a unit quaternion."""
        R_cw = self.camera.R_bc.T @ matrix(q_wb).T
        clip_from_world = self._clip_from_camera @ np.block(
            [[R_cw, -(R_cw @ np.asarray(p_wb, float))[:, None]], [np.zeros(3), np.ones(1)]]
        )
        M = clip_from_world.T.astype(np.float32).tobytes()  # OpenGL reads column by column
        picture = np.empty((self.camera.height_px, self.camera.width_px, 3), np.uint8)
        with self._context as ctx:
            self._drawn.use()
            self._drawn.clear()
            self._layers.use()
            ctx.enable_only(moderngl.DEPTH_TEST | moderngl.CULL_FACE)
            self._render(self._solids, moderngl.TRIANGLES, M)
            # Lines and light are added to what they cover, and cover nothing.
            ctx.enable_only(moderngl.DEPTH_TEST | moderngl.BLEND)
            ctx.blend_func = moderngl.ONE, moderngl.ONE
            self._drawn.depth_mask = False
            self._render(self._lines, moderngl.LINES, M)
            self._render(self._glow, moderngl.TRIANGLES, M)
            self._drawn.depth_mask = True
            ctx.copy_framebuffer(self._resolved, self._drawn)
            self._resolved.read_into(picture, components=3, alignment=1)
        return picture

    def _render(self, shape: moderngl.VertexArray | None, mode: int, M: bytes) -> None:
        if shape is not None:
            shape.program["M"].write(M)
            shape.render(mode)

    def close(self) -> None:
        """Gives everything on the device back. The camera draws no more."""
        self._context.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _context() -> moderngl.Context:
    try:
        if sys.platform == "linux":
            return moderngl.create_context(require=330, standalone=True, backend="egl")
        return moderngl.create_context(require=330, standalone=True)
    except Exception as error:  # moderngl and glcontext raise bare Exceptions
        raise CameraError(
            f"the rendered camera needs OpenGL 3.3 ({error}); on Debian and Ubuntu: "
            "apt-get install libegl1 libgl1 libgl1-mesa-dri"
        ) from error


def _shape(
    ctx: moderngl.Context, shaders: tuple[str, str], vertices: NDArray[np.float32], layout: str, *names: str
) -> moderngl.VertexArray | None:
    if len(vertices) == 0:
        return None
    program = ctx.program(vertex_shader=shaders[0], fragment_shader=shaders[1])
    return ctx.vertex_array(program, [(ctx.buffer(vertices.tobytes()), layout, *names)])


def _projection(camera: Camera) -> Array:
    """Camera axes to clip coordinates (4, 4): pixel (u, v) is drawn at window (u + 0.5, v + 0.5), v growing upward."""
    n, f = NEAR_M, FAR_M
    return np.array(
        [
            [2 * camera.fx_px / camera.width_px, 0, (2 * camera.cx_px + 1) / camera.width_px - 1, 0],
            [0, 2 * camera.fy_px / camera.height_px, (2 * camera.cy_px + 1) / camera.height_px - 1, 0],
            [0, 0, (f + n) / (f - n), -2 * f * n / (f - n)],
            [0, 0, 1, 0],
        ]
    )
