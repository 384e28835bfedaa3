"""Distortion of a lens: tangents of a ray, x / z and y / z, to those at which an ideal pinhole would show it, and back.

| model | the radius r of (x, y) becomes |
|---|---|
| `radtan` | r (1 + k1 r^2 + k2 r^4 + k3 r^6) / (1 + k4 r^2 + k5 r^4 + k6 r^6) |
| `equidistant` | t (1 + k1 t^2 + k2 t^4 + k3 t^6 + k4 t^8), t = atan r |

`radtan` is Brown's (1971), decentred by p1 and p2: OpenCV's with 4, 5 or 8 coefficients, ROS's `plumb_bob` and
`rational_polynomial`. `equidistant` is that of Kannala and Brandt (2006), OpenCV's `fisheye`. Polynomials are used up to
a radius, `reach`, and continued in proportion: outside of the picture, and in the corners of some published calibrations,
they fold far points back into it.
"""

from dataclasses import dataclass, replace

import numpy as np

from gate_racer.vehicle.rotation import Array, Mask

RADTAN, EQUIDISTANT = MODELS = "radtan", "equidistant"
NEWTON_STEPS, NEWTON_END = 30, 1e-13  # most steps of the inversion; -, step at which it ends
WIDEST = 20.0  # tangent of the widest ray, 87 deg off the axis: a pinhole has none at 90 deg
RADII = 256  # radii at which a lens is looked at
OUTSIDE = np.sqrt(2.0)  # of the farthest corner's radius, up to which the polynomials are used, if ...
FLAT = 0.2  # ... their slope over the angle exceeds this share of its mean until there: else a fold is near (chosen)
DIRECTIONS = 8  # in which a decentred lens is looked at
MOST_STRETCH = 2.0  # of a ray's tangent within the picture's nearest edge; of published lenses below 1.2 (chosen)


@dataclass(frozen=True, slots=True)
class Lens:
    """Coefficients of a lens, in OpenCV's names."""

    model: str
    k: tuple[float, float, float, float, float, float]  # k1 to k6; of `equidistant` k1 to k4
    p: tuple[float, float]  # p1, p2
    reach: float = np.inf  # -, tangent up to which the model is used

    @property
    def distorts(self) -> bool:
        return self.model == EQUIDISTANT or any((*self.k, *self.p))

    def with_excess(self, k: Array) -> "Lens":
        """Return this lens with k1 and k2 increased by k (2,)."""
        k1, k2, *rest = self.k
        return replace(self, k=(k1 + float(k[0]), k2 + float(k[1]), *rest))  # type: ignore[arg-type]

    def distort(self, xy: Array) -> Array:
        """Return the distorted tangents of tangents (..., 2)."""
        near, scale = self._near(xy)
        r2 = (near * near).sum(-1, keepdims=True)
        return np.asarray((self._stretch(r2)[0] * near + self._decentred(near, r2)) / scale)

    def jacobian(self, xy: Array) -> tuple[Array, Array, Array]:
        """Return the distorted tangents (n, 2) of tangents (n, 2), their Jacobian (n, 2, 2), and that by k1 and k2 (n, 2, 2)."""
        near, scale = self._near(xy)
        r2 = (near * near).sum(-1, keepdims=True)
        factor, slope, by_k = self._stretch(r2)
        at = factor * near + self._decentred(near, r2)
        by = factor[..., None] * np.eye(2) + (2 * slope)[..., None] * near[:, :, None] * near[:, None, :]
        if any(self.p):
            by = by + self._decentred_by(near)
        outside = scale[:, 0] < 1
        if outside.any():  # d/dxy of D(s xy) / s, with s = reach / |xy|
            n = near[outside] / self.reach
            across = np.eye(2) - n[:, :, None] * n[:, None, :]
            by[outside] = by[outside] @ across + at[outside][:, :, None] * n[:, None, :] / self.reach
        return at / scale, by, by_k[:, None, :] * (near / scale)[:, :, None]

    def undistort(self, xy: Array) -> Array:
        """Return the tangents (..., 2) of distorted ones: the inverse of `distort`, by Newton's method from within the reach."""
        wanted = np.reshape(xy, (-1, 2)).astype(float)
        found, most = wanted, np.full(len(wanted), np.inf)
        if np.isfinite(self.reach):
            edge = self._radial(np.array([self.reach]))[0][0]
            outside = np.linalg.norm(wanted, axis=-1) > edge
            found = np.where(outside[:, None], wanted * (self.reach / edge), wanted)
            most = np.where(outside, np.inf, self.reach)
        for _ in range(NEWTON_STEPS):
            at, by, _ = self.jacobian(found)
            (a, b), (c, d) = by[:, 0].T, by[:, 1].T
            x, y = (at - wanted).T
            before, found = found, found - np.stack([d * x - b * y, a * y - c * x], -1) / (a * d - b * c)[:, None]
            found = found * np.minimum(most / np.maximum(np.linalg.norm(found, axis=-1), 1e-12), 1.0)[:, None]
            if np.nanmax(np.abs(found - before), initial=0.0) < NEWTON_END:
                break
        return np.asarray(found.reshape(np.shape(xy)))

    def reaching(self, corner: float, edge: float) -> "Lens":
        """Return this lens with its reach, for a picture whose farthest corner and nearest edge lie at these distorted radii.

        Raises ValueError: it folds or stretches the picture before its nearest edge, or shows more than a pinhole can.
        """
        if not self.distorts:
            return replace(self, reach=OUTSIDE * corner)
        radii = np.tan(np.linspace(0.0, np.arctan(WIDEST), RADII))[1:]
        at, slope = self._radial(radii)
        if any(self.p):
            slope = self._least_area(radii) * radii / at
        flat = slope * (1 + radii**2) < FLAT * at / np.arctan(radii)
        last = int(flat.argmax()) - 1 if flat.any() else len(radii) - 1
        stretch = float((at / radii)[: np.searchsorted(at[:last], edge) + 1].max())
        if last < 0 or at[last] < edge:
            fault = "folds the picture" if flat.any() else "shows more than 174 deg, which no pinhole does"
        else:
            fault = f"stretches the picture {stretch:.3g} times" if stretch > MOST_STRETCH else ""
        if fault:
            named = zip(("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2"), (*self.k, *self.p), strict=True)
            given = ", ".join(f"{name} {value:g}" for name, value in named if value)
            raise ValueError(f"the lens ({self.model}: {given}) {fault}")
        reach = radii[last]
        if at[last] > corner:
            reach = min(OUTSIDE * np.interp(corner, at[: last + 1], radii[: last + 1]), reach)
        return replace(self, reach=float(reach))

    def _least_area(self, r: Array) -> Array:
        """Return the least factors (n,) by which areas grow, over all directions, at radii (n,): not positive at a fold."""
        angle = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
        xy = r[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], -1)
        by = replace(self, reach=np.inf).jacobian(xy.reshape(-1, 2))[1]
        area = by[:, 0, 0] * by[:, 1, 1] - by[:, 0, 1] * by[:, 1, 0]
        return np.asarray(area.reshape(len(r), -1).min(axis=1))

    def _near(self, xy: Array) -> tuple[Array, Array]:
        """Return tangents (..., 2) scaled into the reach, and the scales (..., 1)."""
        xy = np.asarray(xy, float)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.minimum(self.reach / np.sqrt((xy * xy).sum(-1, keepdims=True)), 1.0)
        return scale * xy, scale

    def _radial(self, r: Array) -> tuple[Array, Array]:
        """Return the stretched radii of radii (n,) and their slopes (n,)."""
        factor, slope, _ = self._stretch((r * r)[:, None])
        return factor[:, 0] * r, factor[:, 0] + 2 * slope[:, 0] * r * r

    def _stretch(self, r2: Array) -> tuple[Array, Array, Array]:
        """Return the factor of the radius, its slope over r^2, and its derivatives by k1 and k2, for r^2 (..., 1)."""
        k1, k2, k3, k4, k5, k6 = self.k
        if self.model == EQUIDISTANT:
            return _equidistant(r2, (k1, k2, k3, k4))
        below = 1 + r2 * (k4 + r2 * (k5 + k6 * r2))
        factor = (1 + r2 * (k1 + r2 * (k2 + k3 * r2))) / below
        slope = (k1 + r2 * (2 * k2 + 3 * k3 * r2) - factor * (k4 + r2 * (2 * k5 + 3 * k6 * r2))) / below
        return factor, slope, np.concatenate([r2, r2**2], -1) / below

    def _decentred(self, xy: Array, r2: Array) -> Array:
        (p1, p2), x, y = self.p, xy[..., :1], xy[..., 1:]
        return np.concatenate([p1 * (2 * x * y) + p2 * (r2 + 2 * x**2), p2 * (2 * x * y) + p1 * (r2 + 2 * y**2)], -1)

    def _decentred_by(self, xy: Array) -> Array:
        """Return the Jacobian (n, 2, 2) of the same."""
        (p1, p2), (x, y) = self.p, xy.T
        mixed = 2 * (p1 * x + p2 * y)
        return np.array([[2 * p1 * y + 6 * p2 * x, mixed], [mixed, 2 * p2 * x + 6 * p1 * y]]).transpose(2, 0, 1)


def _equidistant(r2: Array, k: tuple[float, float, float, float]) -> tuple[Array, Array, Array]:
    """Return the same as `Lens._stretch` for a fisheye; near the axis by its series, t / r = 1 - r^2 / 3."""
    r = np.sqrt(r2)
    axis: Mask = r < 1e-4
    r = np.where(axis, 1.0, r)
    t = np.arctan(r)
    t2 = t * t
    stretched = t * (1 + t2 * (k[0] + t2 * (k[1] + t2 * (k[2] + t2 * k[3]))))
    by_t = 1 + t2 * (3 * k[0] + t2 * (5 * k[1] + t2 * (7 * k[2] + t2 * 9 * k[3])))
    factor = np.where(axis, 1 + (k[0] - 1 / 3) * r2, stretched / r)
    slope = np.where(axis, k[0] - 1 / 3, (by_t / (1 + r * r) - stretched / r) / (2 * r * r))
    by_k = np.concatenate([np.where(axis, r2, t * t2 / r), np.where(axis, r2**2, t * t2 * t2 / r)], -1)
    return factor, slope, by_k
