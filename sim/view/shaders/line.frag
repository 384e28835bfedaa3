#version 330
// Thin lines on walls, floors and trusses. Far lines crowd, so they fade.
uniform float ambient;
in vec3 tint; in float depth_m;
out vec4 bgra;
void main() { bgra = vec4(ambient * tint.bgr * exp(-depth_m / 60), 1); }
