"""`Doubt`: how well a vehicle, its sensors and its course are known after one day with them, as standard deviations.

One table for whoever has to know: the flight's filter begins with it (`estimation.eskf.states`), and a plan of a given risk
keeps its margins by it (`planner.doubt`). It is a belief: `sim/worlds/unknown.yaml` draws what is true, likewise but for itself.
"""

import math
from dataclasses import astuple, dataclass

DEG = math.radians(1.0)


@dataclass(frozen=True)
class Doubt:
    """Standard deviations of one unknown each, of a vector on each axis. The IMU's noise stands in the vehicle's file.

    Raises:
        ValueError: a standard deviation is not positive.
    """

    # The pad and the rest on it.
    pad_m: float = 0.1  # place of the pad, the origin of a map
    pad_m_s: float = 0.005
    pad_yaw: float = DEG  # rad: a vehicle put down by hand
    pad_lean: float = (
        20 * DEG
    )  # rad: gravity tells it; the qualifier's pad is pitched by 17.8 deg, of which no file tells
    # The IMU, beyond what the vehicle's file says of it: a consumer part.
    accel_bias_m_s2: float = 0.05
    gyro_bias_rad_s: float = 0.005
    accel_delay_s: float = 0.005  # forces in simulators are half a step to a step old
    accel_scale: float = 0.005
    gyro_scale: float = 0.005
    accel_walk: float = 0.01  # m/s^1.5: 1 mg per root Hz, vibration included
    gyro_walk: float = 0.0002  # rad/s^0.5
    misaligned: float = 0.3 * DEG  # rad, of the IMU's axes from the body's: a board in its frame
    # -, of an axis' change from sample to sample: how well the mean between two is known. Measured on flights as the real
    # builds send them, at 76 fresh samples a second: 0.053 to 0.076 for rates, 0.045 to 0.086 for forces.
    between: float = 0.065
    # The camera, where its file has no `doubt`.
    yaw: float = 0.5 * DEG  # rad, of the mount: by hand, as the roll
    tilt: float = DEG
    roll: float = 0.5 * DEG
    arm_m: float = 0.02  # the specification has the camera at the origin of bodies of 0.28 m
    focal: float = 0.01  # relative: a calibration without a board
    centre_px: float = 2.5  # the usual offset of a sensor under its lens
    radial: tuple[float, float] = (
        0.01,
        0.002,
    )  # k1, k2: what a wrong focal length leaves, 3 px in the corners of the image
    delay_s: float = 0.01  # of exposures after their stamps
    readout_s: float = 0.006  # from the first row to the last: none in a simulator, 5 to 20 ms in the cameras of drones
    # The detector: see `perception.rims.GateAppearance` of what no averaging removes.
    corner_px: float = 0.25  # of one coordinate of one corner, misses and gross errors included
    cut_px: float = 1.0  # ... of an opening that the image cuts: sides are short, and not always found
    edge_px: float = 1.0  # by which all edges of all gates are drawn outside of the true ones
    edge_m: float = 0.01  # likewise, of each gate by itself
    wall_m: float = 0.08  # along the depth of a frame, of where its edges are seen: half of 0.16 m, as fitted to frames
    # The vehicle and the air: widths of what public teams disagree about.
    thrust: float = (
        0.05  # relative: fits of the same builds disagree by 20 to 30 % above half throttle, by some about hover
    )
    drag: float = 0.2  # relative
    response_s: float = 0.01  # of a response later than believed: command delay 8 ms, lags of 25 and 30 ms 20 %
    lift_1_m: float = (
        0.01  # thrust gained per square of the speed across the rotors, where a vehicle's aerodynamics are known
    )
    wind_m_s: float = 1.0  # north and east
    # The course.
    scale: float = 0.008  # of the map: one that a simulator told was 0.77 % too large
    map_m: float = 0.15  # of each gate off the map by itself; unsurveyed, 0.4 m in all
    map_turn: float = 1.5 * DEG  # rad, of each gate, about each of two axes

    def __post_init__(self) -> None:
        for name, value in zip(self.__dataclass_fields__, astuple(self), strict=True):
            if not all(0 < sigma < math.inf for sigma in (value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"{name} must be positive and finite")
