#version 330
// Light on a floor: each quad carries its source's foot, what the light is like there, and its colour.
uniform mat4 clip_from_world;
in vec3 p_w; in vec3 foot_w; in vec3 shape; in vec3 rgb;
out vec3 at_w; flat out vec3 source_w; flat out vec3 form; flat out vec3 tint;
void main() {
    gl_Position = clip_from_world * vec4(p_w, 1);
    at_w = p_w;
    source_w = foot_w;
    form = shape;
    tint = rgb;
}
