"""`import-calibration`: one camera in the files of every tool that calibrates, and what is none."""

import json

import cv2
import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.field.import_calibration import parser, read_calibration, run
from gate_racer.vehicle.vehicle import load_vehicle

K, D = (424.0, 426.0, 322.0, 168.0), (-0.25, 0.12, 0.001, -0.002, 0.02)
SIZE = {"width": 640, "height": 360}
MATRIX = [K[0], 0.0, K[2], 0.0, K[1], K[3], 0.0, 0.0, 1.0]


def opencv(path, names=("image_width", "image_height", "camera_matrix", "distortion_coefficients"), **also):
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
    values = 640, 360, np.reshape(MATRIX, (3, 3)), np.array([D])
    for name, value in (*zip(names, values, strict=True), *also.items()):
        storage.write(name, value)
    storage.release()


OPENCV = {
    "of OpenCV.yaml": {},
    "of OpenCV.xml": {},
    "of OpenCV.json": {},
    "of OpenCV's sample.xml": {"names": ("image_Width", "image_Height", "Camera_Matrix", "Distortion_Coefficients")},
    "of ModalAI.yml": {"names": ("width", "height", "M", "D"), "distortion_model": "plumb_bob"},
}


def lines(values, before="   "):
    return "".join(f"{before}{name}: {value}\n" for name, value in values)


ALL = dict(zip(("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3"), (*K, *D), strict=True))
NERF = {"fl_x": 424, "fl_y": 426, "cx": 322, "cy": 168, "w": 640, "h": 360}
KALIBR = (
    f"cam0:\n  camera_model: pinhole\n  intrinsics: {list(K)}\n  distortion_model: radtan\n"
    f"  distortion_coeffs: {list(D[:4])}\n  resolution: [640, 360]\n  timeshift_cam_imu: 0.0031\n"
)
EUROC = (
    "sensor_type: camera\nT_BS:\n  cols: 1\n  rows: 1\n  data: [1.0]\nrate_hz: 20\nresolution: [640, 360]\n"
    f"camera_model: pinhole\nintrinsics: {list(K)} #fu, fv, cu, cv\n"
    f"distortion_model: radial-tangential\ndistortion_coefficients: {list(D[:4])}\n"
)
OST = (
    "# oST version 5.0 parameters\n\n[image]\n\nwidth\n640\n\nheight\n360\n\n[narrow_stereo]\n\n"
    "camera matrix\n424 0 322\n0.0 426.0 168.0\n0 0 1\n\n"
    f"distortion\n{' '.join(map(str, D))}\n\nrectification\n1 0 0\n0 1 0\n0 0 1\n\n"
)


def orb_slam(number="", other=""):
    return (
        f'%YAML:1.0\n\nCamera.type: "PinHole"\n{lines(ALL.items(), f"Camera{number}.")}{other}'
        "Camera.width: 640\nCamera.height: 360\nCamera.fps: 30\n"
        "Tbc: !!opencv-matrix\n   rows: 1\n   cols: 2\n   dt: f\n   data: [0.1, 0.2]\n"
    )


POSED = f"%YAML:1.0\ncamera_name:\nnotes: >\n  of two\n  lines\n{KALIBR}  T_cam_imu:\n  - [1.0, 0.0]\n"
BASALT_CAMERAS = [{"camera_type": "pinhole-radtan8", "intrinsics": ALL | other} for other in ({}, {"fx": 1.0})]
NUMPY = {"image_width": 640, "image_height": 360, "mtx": np.reshape(MATRIX, (3, 3)).tolist(), "dist": [D]}
NAMED_FOUR = {"intrinsics": dict(zip(("fx", "fy", "cx", "cy"), K, strict=True)), "distortion_coefficients": D}
CENTRED = {
    "cx": K[2] + 0.5,
    "cy": K[3] + 0.5,
    "camera_model": "OPENCV",
    "frames": [{"fl_x": 1.0, "file_path": "0.png"}],
}
TIMED = {
    "of Kalibr.yaml": KALIBR,
    "of OpenVINS.yaml": f"%YAML:1.0 # as OpenCV reads it\n\n{KALIBR}",
    "of Kalibr with a pose.yaml": "\ufeff" + POSED.replace("\n", "\r\n"),
    "of VINS.yaml": "%YAML:1.0\n---\nmodel_type: PINHOLE\ncamera_name: camera\nimage_width: 640\nimage_height: 360\n"
    + f"distortion_parameters:\n{lines(zip(('k1', 'k2', 'p1', 'p2'), D[:4], strict=True))}projection_parameters:\n"
    + f"{lines(zip(('fx', 'fy', 'cx', 'cy'), K, strict=True))}td: 0.0031\n",
}
OF_FOUR = TIMED | {"of EuRoC.yaml": EUROC, "of Kimera.yaml": f"%YAML:1.0\n# General sensor definitions.\n{EUROC}"}
TEXTS = OF_FOUR | {
    "of NumPy.json": json.dumps(NUMPY),
    "echoed.yaml": f"height: 360\nwidth: 640\ndistortion_model: plumb_bob\nd: {list(D)}\nk: {MATRIX}\n---\n---\n",
    "of ROS.yaml": "image_width: 640\nimage_height: 360\ncamera_name: opencv_cam\n"
    f"camera_matrix: {{rows: 3, cols: 3, data: {MATRIX}}}\ndistortion_model: plumb_bob\n"
    f"distortion_coefficients: {{rows: 1, cols: 5, data: {list(D)}}}\n",
    "of COLMAP.txt": f"# Camera list\n1 FULL_OPENCV 640 360 424 426 322.5 168.5 {' '.join(map(str, D))} 0 0 0\n",
    "of ORB-SLAM.yaml": orb_slam(),
    "of ORB-SLAM2.yaml": f"%YAML:1.0\n\n{lines(ALL.items(), 'Camera.')}Camera.width: 640\nCamera.height: 360\n"
    "Viewer.PointSize:2\n",
    "of ORB-SLAM3.yaml": orb_slam("1", "Camera2.fx: 1.0\nCamera2.k1: 1.0\n"),
    "of ArUco.yaml": f"camera_matrix: {MATRIX}\ndist_coeff: [{list(D)}]\nimage_width: 640\nimage_height: 360\n",
    "ost.txt": OST,
    "named intrinsics.json": json.dumps(SIZE | NAMED_FOUR | {"distortion_model": "plumb_bob"}),
    "matrix and intrinsics.json": json.dumps(
        SIZE | {"K": MATRIX, "D": D, "intrinsics": K, "distortion_model": "plumb_bob"}
    ),
    "of Basalt.json": json.dumps({
        "value0": {"intrinsics": BASALT_CAMERAS, "resolution": [[640, 360], [1, 1]], "cam_time_offset_ns": 0}
    }),
    "of Nerfstudio.json": json.dumps(ALL | NERF | CENTRED),
}  # fmt: skip


@pytest.mark.parametrize("name", [*OPENCV, *TEXTS])
def test_one_camera_is_the_same_by_every_tool(tmp_path, name):
    if name in TEXTS:
        (tmp_path / name).write_bytes(TEXTS[name].encode())
    else:
        opencv(tmp_path / name, **OPENCV[name])
    out, told = tmp_path / "mine.yaml", tmp_path / "told.json"
    assert run(parser().parse_args([str(tmp_path / name), "--out", str(out), "--json", str(told)])) == 0
    camera = load_vehicle(str(out)).camera
    k3 = 0.0 if name in OF_FOUR else D[4]
    found = [getattr(camera, name) for name in ("fx_px", "fy_px", "cx_px", "cy_px", "k1", "k2", "p1", "p2", "k3")]
    np.testing.assert_allclose(found, (*K, *D[:4], k3), atol=1e-9)
    assert camera.delay_s == pytest.approx(0.0031 if name in TIMED else load_vehicle("dcl").camera.delay_s)
    assert json.loads(told.read_text())["covered"] == 1
    assert camera.tilt_deg == load_vehicle("dcl").camera.tilt_deg


FISHEYE = (-0.01, 0.02, -0.01, 0.003)
INFO = f"image_width: 640\nimage_height: 360\nK: {MATRIX}\nD: {list(FISHEYE)}\n"
TAGGED = (
    f"width: 640\nheight: 360\nK: !!opencv-matrix\n  rows: 3\n  cols: 3\n  dt: d\n  data: {MATRIX}\n"
    f"D: !!opencv-matrix\n  rows: 4\n  cols: 1\n  dt: d\n  data: {list(FISHEYE)}\n"
)
KANNALA_BRANDT = ("k2", "k3", "k4", "k5", "mu", "mv", "u0", "v0")
NAMED = dict(zip(("k1", "k2", "k3", "k4", "fx", "fy", "cx", "cy"), (*FISHEYE, *K), strict=True))
SCALARS = dict(zip(("fx", "fy", "cx", "cy"), K, strict=True)) | {"w": 640, "h": 360, "distortion_coefficients": FISHEYE}
CHAIN = f"cam0: {{resolution: [640, 360], intrinsics: {list(K)}, distortion_coeffs: {list(FISHEYE)}"


KB4 = {"resolution": [[640, 360]], "intrinsics": [{"camera_type": "kb4", "intrinsics": NAMED}]}
GYROFLOW = {
    "camera_brand": "Caddx",
    "camera_model": "Orca",
    "lens_model": "",
    "calib_dimension": {"w": 640, "h": 360},
    "input_horizontal_stretch": 1.0,
    "fisheye_params": {
        "RMS_error": 0.7,
        "camera_matrix": np.reshape(MATRIX, (3, 3)).tolist(),
        "distortion_coeffs": FISHEYE,
    },
    "distortion_model": None,
    "digital_lens": None,
}
FLAG = {"image_width": 640, "image_height": 360, "K": MATRIX, "D": FISHEYE, "fisheye_model": "true"}
SIZED = "image_width: 640\nimage_height: 360\n"
FISHEYES = {
    "of Kalibr.yaml": f"{CHAIN}, distortion_model: equidistant}}\n",
    "of ROS.yaml": f"{INFO}distortion_model: Fisheye\n",
    "tagged, of ROS.yaml": f"{TAGGED}distortion_model: equidistant\n",
    "of OpenCV.yaml": f"%YAML:1.0\n---\n{TAGGED}distortion_model: fisheye\n",
    "of OpenCV with a flag of text.json": json.dumps(FLAG),
    "of VINS.yaml": f"%YAML:1.0\n---\nmodel_type: KANNALA_BRANDT\n{SIZED}projection_parameters:\n"
    + lines(zip(KANNALA_BRANDT, (*FISHEYE, *K), strict=True)),
    "of scalars.json": json.dumps(SCALARS | {"distortion_model": "equidistant"}),
    "of ORB-SLAM3.yaml": 'Camera.type: "KannalaBrandt8"\nCamera.width: 640\nCamera.height: 360\n'
    + lines(NAMED.items(), "Camera1."),
    "of Basalt.json": json.dumps({"value0": KB4}),
    "of COLMAP.txt": "1 OPENCV_FISHEYE 640 360 424 426 322.5 168.5 -0.01 0.02 -0.01 0.003\n",
    "of EuRoC.yaml": f"resolution: [640, 360]\ncamera_model: pinhole\nintrinsics: {list(K)}\n"
    f"distortion_model: equidistant\ndistortion_coefficients: {list(FISHEYE)}\n",
    "of Gyroflow.json": json.dumps(GYROFLOW),
    "simple, of COLMAP.txt": "1 SIMPLE_RADIAL_FISHEYE 640 360 424 322.5 168.5 -0.01\n",
}


@pytest.mark.parametrize(("name", "text"), FISHEYES.items(), ids=FISHEYES)
def test_a_fisheye_of_every_tool_is_one(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    lens = read_calibration(tmp_path / name)
    known = FISHEYE[:1] if name.startswith("simple") else FISHEYE
    assert lens["lens_model"] == "equidistant"
    assert [lens[f"k{k}"] for k in range(1, 5)] == pytest.approx([*known, 0, 0, 0][:4])
    assert (lens["cx_px"], lens["cy_px"]) == K[2:]


FOLDED = "K: [863.7, 0, 637.5, 0, 863.2, 385.5, 0, 0, 1]\nD: [0.0885, -0.226, 0, 0]\nwidth: 1280\nheight: 720\n"
WIDE = "cam0: {resolution: [512, 512], intrinsics: [190.978, 190.973, 254.931, 256.897], distortion_model: equidistant"
WIDE += ", distortion_coeffs: [0.0034824, 0.00071503, -0.0020532, 0.00020294]}\n"
LONG = WIDE.replace("512, 512", "620, 512").replace("254.9", "304.9")
CAMERAS = {"cam1": {}, "cam0": {"resolution": [640, 360], "intrinsics": K, "distortion_coeffs": D[:4]}}
CAMERAS["cam0"]["distortion_model"] = "radtan"
BASALT = {"intrinsics": [{"intrinsics": ALL}, {"intrinsics": ALL}], "resolution": [[640, 360], [640, 360]]}
SIZES = {"Camera.width": 640, "Camera.height": 360}
OVER = "over 87 deg off the axis, which is not modelled: corners"
TOLD = [  # what is remarked, and what is printed
    ("cameras.txt", "1 SIMPLE_PINHOLE 640 360 424 420 180\n", "far from the middle", "over 100% of the picture\n"),
    ("folded.yaml", FOLDED, "", "over 99.8% of the picture, beyond which the calibration folds it"),
    ("wide.yaml", WIDE, "", f"over 88.2% of the picture, beyond which it lies {OVER}"),
    ("long.yaml", LONG, "", "at least 174.3 deg wide"),
    ("chain.json", json.dumps(CAMERAS), "chain.json: of 2 cameras cam0 is taken\n", "over 100% of the picture\n"),
    ("cal.json", json.dumps({"value0": BASALT}), "of 2 cameras intrinsics[0] is taken", "over 100% of the picture\n"),
    (
        "stereo.yaml",
        lines((SIZES | {f"Camera{k}.{name}": x for k in (2, 1) for name, x in ALL.items()}).items(), ""),
        "of 2 cameras Camera1 is taken",
        "over 100% of the picture\n",
    ),
]


@pytest.mark.parametrize(("name", "text", "remarked", "printed"), TOLD)
def test_what_is_doubtful_left_out_or_continued_is_told(tmp_path, capsys, name, text, remarked, printed):
    (tmp_path / name).write_text(text)
    assert run(parser().parse_args([str(tmp_path / name)])) == 0
    told = capsys.readouterr()
    assert remarked in told.err and bool(remarked) == bool(told.err) and printed in told.out


REFUSED = [
    ("orb.yaml", lines(zip(("fx", "fy", "cx", "cy"), K, strict=True), "Camera."), "lacks width, height; add them"),
    ("cam0_mei.yaml", "model_type: MEI\nw: 640\nh: 360\nfx: 424\nfy: 426\ncx: 322\ncy: 168\n", "model 'MEI'"),
    ("euroc.yaml", "Camera.fx: 424\nLEFT.K: 1\n", "that of rectified images; the lens is LEFT.K and LEFT.D"),
    ("ost.txt", "camera matrix\n1 0 0\ndistortion\n0.1 0 0 0\n", "may be those of a fisheye: give ost.yaml"),
    ("stereo.ini", 2 * "camera matrix\n1 0 0\n", "2 cameras; keep the lines of one"),
    ("gopro.json", json.dumps(GYROFLOW | {"digital_lens": "superview"}), "digital lens or stretch is not modelled"),
    ("sony.json", json.dumps(GYROFLOW | {"distortion_model": "sony"}), "model 'sony': must be one of"),
    ("file.yaml", "hello: world\n", "not a calibration of OpenCV, ROS, Kalibr"),
    ("file.yaml", "mtx: [[1, 0, 0]]\ndist: [0]\n", "it lacks image_width, image_height; add them to the file, in px"),
    ("file.yaml", INFO.replace("640", "320"), r"the centre \(322, 168\) px lies outside of a picture of 320 x 360 px"),
    ("file.yaml", "%YAML:1.0\n---\ncamera_matrix: !!opencv-matrix\n  [[[{", "cut short, or its matrices are none"),
    ("file.yaml", f"{SIZED}K: [1e9, 0, 1, 0, 400, 1, 0, 0, 1]\nD: [0]\n", "is not one"),
    ("cameras.txt", 2 * "1 PINHOLE 640 360 424 426 322 168\n", "2 cameras; keep the line of one"),
    ("cameras.txt", "1 FOV 640 360 424 426 322 168 0.9\n", "camera model 'FOV': must be one of SIMPLE_PINHOLE"),
    ("cameras.txt", "Calibration results\n===\n", "of Kalibr, give the camchain"),
    ("file.yaml", f"{INFO}roi: {{x_offset: 0, y_offset: 20}}\n", "its images are binned or cut"),
    ("file.yaml", f"{SIZED}K: {MATRIX}\nD: [-2.5, 0, 0, 0]\n", r"file.yaml: the lens \(radtan: k1 -2.5\) folds the"),
    ("file.yaml", INFO.replace("K: [424.0, 0.0", "K: [424.0, 1.5"), "skewed pixels are not modelled"),
    ("file.yaml", INFO.replace("1.0]", "2.0]"), "must be fx 0 cx, 0 fy cy, 0 0 1"),
]


@pytest.mark.parametrize(("name", "text", "says"), REFUSED)
def test_what_is_no_calibration_is_refused_in_a_line(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=says):
        run(parser().parse_args([str(tmp_path / name)]))
