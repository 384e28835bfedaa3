"""A gate measured by the rim of its near face stands where one measured by the hole does."""

import numpy as np
import pytest

from gate_racer.estimation.landmarks import gate_fix
from gate_racer.estimation.odometry import Pose
from gate_racer.model.rims import GateAppearance
from gate_racer.perception.detection import Detection


@pytest.mark.parametrize("distance", [4.0, 9.0])
def test_the_middle_of_a_gate_is_half_its_depth_behind_its_near_face(distance, dcl):
    appearance, opening_m = GateAppearance(), 1.5
    pose = Pose(0.0, np.zeros(3), np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3))
    arm_w, R_wc = dcl.camera.pose(np.zeros(3), np.array([1.0, 0, 0, 0]))
    middle_w = np.array([distance, 0.2, -1.5])
    half, face_x = opening_m / 2, -appearance.depth_m / 2
    face_w = middle_w + np.array(
        [[face_x, -half, -half], [face_x, half, -half], [face_x, half, half], [face_x, -half, half]]
    )
    px = dcl.camera.project((face_w - arm_w) @ R_wc)
    seen = Detection(px, np.tile(0.01 * np.eye(2), (4, 1, 1)), np.ones(4, bool), 1.0, near_face=True)
    fix = gate_fix(seen, pose, dcl.camera, opening_m, appearance)
    assert fix is not None and fix.z_w == pytest.approx(middle_w, abs=1e-3)
