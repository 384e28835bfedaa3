"""OpenGL vertex arrays and shaders."""

from pathlib import Path

import moderngl
import numpy as np
from numpy.typing import NDArray

SHADERS = Path(__file__).parent / "shaders"
SOLIDS = "3f 3f 4f", "p_w", "uvl", "tint"  # vertex layout of solids


def shape(
    ctx: moderngl.Context, shader: str, vertices: NDArray[np.float32], layout: str, *names: str
) -> moderngl.VertexArray | None:
    """Return a vertex array with static vertices; None for no vertices."""
    return array(ctx, shader, ctx.buffer(vertices.tobytes()), layout, *names) if len(vertices) else None


def array(
    ctx: moderngl.Context, shader: str, buffer: moderngl.Buffer, layout: str, *names: str
) -> moderngl.VertexArray:
    """Return a vertex array of a buffer for a shader; `names` are the shader's inputs in the buffer's layout."""
    program = ctx.program(
        vertex_shader=(SHADERS / f"{shader}.vert").read_text(), fragment_shader=(SHADERS / f"{shader}.frag").read_text()
    )
    return ctx.vertex_array(program, [(buffer, layout, *names)])


def render(drawn: moderngl.VertexArray | None, mode: int, uniforms: dict[str, bytes]) -> None:
    """Draw a vertex array, with those of the uniforms that its shader has."""
    if drawn is not None:
        for name, value in uniforms.items():
            if name in drawn.program:
                drawn.program[name].write(value)
        drawn.render(mode)
