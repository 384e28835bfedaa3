"""`import-calibration`: one camera in the files of every tool that calibrates, and what is none."""

import json

import cv2
import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.field.import_calibration import parser, run
from gate_racer.vehicle.vehicle import load_vehicle

K, D = (424.0, 426.0, 322.0, 168.0), (-0.25, 0.12, 0.001, -0.002, 0.02)
MATRIX = [K[0], 0.0, K[2], 0.0, K[1], K[3], 0.0, 0.0, 1.0]


def opencv(path):
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    for name, value in (("image_width", 640), ("image_height", 360)):
        storage.write(name, value)
    storage.write("camera_matrix", np.reshape(MATRIX, (3, 3)))
    storage.write("distortion_coefficients", np.array([D]))
    storage.release()


def ros(path):
    path.write_text(
        "image_width: 640\nimage_height: 360\ncamera_name: front\n"
        f"camera_matrix: {{rows: 3, cols: 3, data: {MATRIX}}}\ndistortion_model: plumb_bob\n"
        f"distortion_coefficients: {{rows: 1, cols: 5, data: {list(D)}}}\n"
    )


def kalibr(path, model="radtan", coefficients=D[:4]):
    path.write_text(
        f"cam0:\n  camera_model: pinhole\n  intrinsics: {list(K)}\n  distortion_model: {model}\n"
        f"  distortion_coeffs: {list(coefficients)}\n  resolution: [640, 360]\n  timeshift_cam_imu: 0.0031\n"
    )


def colmap(path):
    fx, fy, cx, cy = K
    path.write_text(
        f"# Camera list\n1 FULL_OPENCV 640 360 {fx} {fy} {cx + 0.5} {cy + 0.5} {' '.join(map(str, D))} 0 0 0\n"
    )


@pytest.mark.parametrize(
    ("write", "name"),
    [(opencv, "cal.yaml"), (opencv, "cal.xml"), (ros, "info.yaml"), (kalibr, "chain.yaml"), (colmap, "cameras.txt")],
)  # fmt: skip
def test_one_camera_is_the_same_by_every_tool(tmp_path, capsys, write, name):
    write(tmp_path / name)
    out, told = tmp_path / "mine.yaml", tmp_path / "told.json"
    assert run(parser().parse_args([str(tmp_path / name), "--out", str(out), "--json", str(told)])) == 0
    camera = load_vehicle(str(out)).camera
    k3 = 0.0 if write is kalibr else D[4]
    found = [getattr(camera, name) for name in ("fx_px", "fy_px", "cx_px", "cy_px", "k1", "k2", "p1", "p2", "k3")]
    np.testing.assert_allclose(found, (*K, *D[:4], k3), atol=1e-9)
    assert camera.delay_s == pytest.approx(0.0031 if write is kalibr else load_vehicle("dcl").camera.delay_s)
    assert json.loads(told.read_text())["residual_px"] < 1e-8
    assert camera.tilt_deg == load_vehicle("dcl").camera.tilt_deg


def test_a_fisheye_of_kalibr_is_one(tmp_path, capsys):
    kalibr(tmp_path / "camchain.yaml", "equidistant", (-0.01, 0.02, -0.01, 0.003))
    assert run(parser().parse_args([str(tmp_path / "camchain.yaml")])) == 0
    assert "lens_model: equidistant" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello: world\n", "not a calibration of OpenCV, ROS, Kalibr or COLMAP"),
        ("cam0: {camera_model: omni, intrinsics: [1], resolution: [1, 1]}\n", "camera_model 'omni'"),
        ("%YAML:1.0\n---\nimage_width: 640\n", "it lacks camera_matrix"),
        ("%YAML:1.0\n---\ncamera_matrix: [[[{", "cut short, or its matrices are none"),
        ("image_width: 640\nimage_height: 360\nK: [1e9, 0, 1, 0, 400, 1, 0, 0, 1]\nD: [0]\n", "is not one"),
        ("image_width: 640\nimage_height: 360\nK: [.nan, 0, 1, 0, 400, 1, 0, 0, 1]\nD: [0]\n", "is not one"),
    ],
)
def test_what_is_no_calibration_is_refused_in_a_line(tmp_path, text, says):
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(UserError, match=says):
        run(parser().parse_args([str(tmp_path / "file.yaml")]))


def test_a_lens_that_folds_the_picture_is_refused_with_its_file(tmp_path):
    kalibr(tmp_path / "camchain.yaml", "radtan", (-2.5, 0.0, 0.0, 0.0))
    with pytest.raises(UserError, match=r"camchain.yaml: the lens \(radtan: k1 -2.5\) folds the picture"):
        run(parser().parse_args([str(tmp_path / "camchain.yaml")]))
