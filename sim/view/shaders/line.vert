#version 330
uniform mat4 clip_from_world;
in vec3 p_w; in vec3 rgb;
out vec3 tint; out float depth_m;
void main() {
    gl_Position = clip_from_world * vec4(p_w, 1);
    tint = rgb;
    depth_m = gl_Position.w;
}
