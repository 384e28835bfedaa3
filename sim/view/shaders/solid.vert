#version 330
// Surfaces: p_w in m, uvl picks a texel of a layer, light is 1 where a surface shines by itself.
uniform mat4 clip_from_world;
in vec3 p_w; in vec3 uvl; in vec4 tint;
out vec3 at; out vec4 colour; out float depth_m;
void main() {
    gl_Position = clip_from_world * vec4(p_w, 1);
    at = uvl;
    colour = tint;
    depth_m = gl_Position.w;
}
