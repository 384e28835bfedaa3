#version 330
// What shines (alpha 1) is seen as it is, a lamp (alpha 2) as bright as the style says; what is lit (alpha 0) gets the
// hall's light and sinks into the dark far away.
uniform sampler2DArray layers;
uniform float ambient, lamps, reach_m;
in vec3 at; in vec4 colour; in float depth_m;
out vec4 bgra;
void main() {
    float lit = colour.a < 0.5 ? ambient * exp(-depth_m / reach_m) : (colour.a < 1.5 ? 1.0 : lamps);
    bgra = vec4((texture(layers, at).rgb * colour.rgb * lit).bgr, 1);
}
