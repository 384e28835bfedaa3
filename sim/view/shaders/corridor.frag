#version 330
// Bright border lines around a sheet whose fill comes in waves that run towards the gates. Light adds up.
uniform float time_s, fill;
in vec2 at;
out vec4 bgra;
const vec3 CYAN = vec3(0.10, 0.68, 0.95), FOG = vec3(0.05, 0.36, 0.52);
void main() {
    float x = abs(at.x);
    float border = smoothstep(0.93, 0.965, x);
    float halo = pow(x, 10.0);
    float s = at.y - 6.0 * time_s;
    float wave = 0.5 + 0.3 * sin(0.42 * s) + 0.2 * sin(1.1 * s + 2.0 * at.x);
    float sheet = fill * (0.08 + 1.1 * wave * wave * wave * (1.0 - 0.35 * x * x));
    bgra = vec4((CYAN * (border + 0.45 * halo) + FOG * sheet).bgr, 1);
}
