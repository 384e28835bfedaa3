"""`Doubt`: uncertainty of vehicle, sensors and course after one day with them, as standard deviations.

It is the prior of the flight's filter (`model.states`) and of the margins of a plan with a given risk
(`planner.uncertainty`). The truth of a simulated flight is drawn independently, by the similar table `sim/worlds/unknown.yaml`.
"""

import math
from dataclasses import astuple, dataclass

DEG = math.radians(1.0)  # rad per degree


@dataclass(frozen=True)
class Doubt:
    """Prior standard deviations, of vectors on each axis, without the IMU's noise. Raises ValueError: one is not positive."""

    # The pad, and the vehicle at rest on it.
    pad_m: float = 0.1  # m, position of the pad, the origin of a map
    pad_m_s: float = 0.005  # m/s, velocity at rest
    pad_yaw: float = DEG  # rad, of a vehicle placed by hand
    north: float = DEG  # rad, of an autopilot's heading from the map's
    # rad, tilt, which gravity measures; the qualifier's pad is pitched by 17.8 deg, which no file states.
    pad_lean: float = 20 * DEG
    # The IMU, in addition to the vehicle's file: a consumer part.
    accel_bias_m_s2: float = 0.05
    gyro_bias_rad_s: float = 0.005
    accel_delay_s: float = 0.005  # s; specific force in simulators is half a step to a step old
    accel_scale: float = 0.005  # -
    gyro_scale: float = 0.005  # -
    accel_walk: float = 0.01  # m/s^1.5, velocity random walk: 1 mg per root Hz, vibration included
    gyro_walk: float = 0.0002  # rad/s^0.5, angle random walk
    misaligned: float = 0.3 * DEG  # rad, of the IMU's axes from the body's, by mounting
    # -, error of the mean between two samples over their difference. Measured on flights with the real builds' data rate, 76
    # fresh samples per second: 0.053 to 0.076 for rates, 0.045 to 0.086 for specific forces.
    between: float = 0.065
    # The camera, if its file has no `doubt`.
    yaw: float = 0.5 * DEG  # rad, of the mount, aligned by hand
    tilt: float = DEG  # rad
    roll: float = 0.5 * DEG  # rad
    arm_m: float = 0.02  # m; the specification has the camera at the origin of bodies of 0.28 m
    focal: float = 0.01  # -, relative, of a calibration without a target
    centre_px: float = 2.5  # px, typical offset of a sensor from its lens
    # -, k1 and k2, the effect of a wrong focal length, 3 px in the corners of the image.
    radial: tuple[float, float] = 0.01, 0.002
    delay_s: float = 0.01  # s, exposure after its timestamp
    readout_s: float = 0.006  # s, from the first row to the last: zero in a simulator, 5 to 20 ms in drones' cameras
    # The detector; for systematic errors, which averaging does not reduce, see `model.rims.GateAppearance`.
    corner_px: float = 0.25  # px, of one coordinate of one corner, outliers included
    cut_px: float = 1.0  # px, likewise, of an opening cut by the image border: sides are short, and may be missed
    edge_px: float = 1.0  # px, common offset of all edges of all gates, outward
    edge_m: float = 0.01  # m, likewise, independent per gate
    wall_m: float = 0.08  # m, along a frame's depth, of the line seen as its edge: half of 0.16 m, fitted to images
    # The vehicle and the air: the spread of the published values of teams.
    # -, relative: fits of the same builds differ by 20 to 30 % above half throttle, by a few percent at hover.
    thrust: float = 0.05
    drag: float = 0.2  # -, relative
    response_s: float = 0.01  # s, total delay of the response: command delay 8 ms, and 20 % of lags of 25 and 30 ms
    # 1/m, thrust gained per squared speed across the rotors, for vehicles with an aerodynamic model.
    lift_1_m: float = 0.01
    wind_m_s: float = 1.0  # m/s, north and east
    # The course.
    scale: float = 0.008  # -, of the map; one sent by a simulator was 0.77 % too large
    map_m: float = 0.15  # m, of each gate's offset from the map, independent part; 0.4 m in all if unsurveyed
    map_turn: float = 1.5 * DEG  # rad, of each gate, about each of two axes

    def __post_init__(self) -> None:
        for name, value in zip(self.__dataclass_fields__, astuple(self), strict=True):
            if not all(0 < sigma < math.inf for sigma in (value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"{name} must be positive and finite")
