#version 330
// The ribbon of light: strip is (across, -1 to 1; along, m).
uniform mat4 clip_from_world;
in vec3 p_w; in vec2 strip;
out vec2 at;
void main() {
    gl_Position = clip_from_world * vec4(p_w, 1);
    at = strip;
}
