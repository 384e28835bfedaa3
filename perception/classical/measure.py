"""Stage 2, measure: sub-pixel sides of proposed openings, restricted to those that may be projections of a square."""

import numpy as np

from gate_racer.perception.classical.config import ClassicalConfig
from gate_racer.perception.classical.propose import is_measurable
from gate_racer.perception.classical.scene import View
from gate_racer.perception.common.edge_fit import QuadEdges, fit_edges
from gate_racer.perception.common.gate_model import GateModel
from gate_racer.perception.common.quadrilateral import side_lengths, skew_px
from gate_racer.vehicle.rotation import Array


def measure(view: View, quads: Array, model: GateModel, config: ClassicalConfig) -> QuadEdges:
    """Measure quads (Q, 4, 2) px; return those with enough sides and no more skew than perspective allows."""
    edges = fit_edges(view.opening, quads, model.ratio, config.opening_edges, wide=view.first)
    enough = edges.measured.sum(-1) >= config.measurement.sides_min
    square = _excess_skew(edges, model.camera.fx_px) < config.measurement.skew_max
    return edges.select(enough & is_measurable(edges.corners_px, config.proposal) & square)


def _excess_skew(edges: QuadEdges, focal_px: float) -> Array:
    """Return the skew (Q,) of quads beyond that of perspective, over the mean side; 0 if sides are unmeasured."""
    side_px = side_lengths(edges.corners_px)
    excess_px = np.maximum(skew_px(edges.corners_px) - side_px.max(-1) ** 2 / (2 * focal_px), 0.0)
    return np.where(edges.measured.all(-1), excess_px / side_px.mean(-1), 0.0)
