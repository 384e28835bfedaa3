#version 330
// form = (half-width of the lit bar, m; its direction on the floor, cos and sin). A wet floor draws the light out
// towards the eye; around the foot it spreads softly.
uniform vec3 eye_w;
uniform float glow;
in vec3 at_w; flat in vec3 source_w; flat in vec3 form; flat in vec3 tint;
out vec4 bgra;
void main() {
    vec2 d = at_w.xy - source_w.xy;
    vec2 to_eye = normalize(eye_w.xy - source_w.xy);
    float near = dot(d, to_eye), aside = d.x * to_eye.y - d.y * to_eye.x;
    float streak = exp(-aside * aside / 0.012) * exp(-near / 1.6) * step(0.0, near);
    float along = dot(d, form.yz), off = d.x * form.z - d.y * form.y;
    float bar = form.x > 0.0 ? exp(-off * off / 0.03) * exp(-pow(along / form.x, 4.0)) : 0.0;
    float spread = 0.10 * exp(-dot(d, d) / 2.5);
    float edge = 1.0 - smoothstep(2.6, 3.4, length(d));
    bgra = vec4(glow * edge * tint.bgr * (streak + 0.8 * bar + spread), 1);
}
