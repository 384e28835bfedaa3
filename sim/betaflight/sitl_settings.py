"""Settings of the firmware for a profile, as command-line input. Betaflight 4.4.3, `src/main/cli/settings.c`."""

from gate_racer.link.msp.constants import ANGLE, ARM, OVERRIDE
from gate_racer.link.msp.profile import BetaflightProfile

UARTS = 2  # that speak MSP: the companion's, and the transmitter's
RATE_KINDS = {"betaflight": "BETAFLIGHT", "actual": "ACTUAL", "quick": "QUICK"}
# The aircraft's are not published. With the thrust's lag of `archer`, a step of 3 rad/s of the stick is followed to 63 % within
# 0.05 to 0.07 s in roll and pitch and 0.09 to 0.11 s in yaw, and overshot by 7 to 19 %. Betaflight's own swing up on it: 45, 80
# and 40 in roll and pitch; 45, 90 and 0 in yaw, where with 45 for 90 a yaw of 1 rad/s still swings up to twice of that.
TILT = ("p", 25), ("i", 30), ("d", 30), ("d_min", 30)
YAW = ("p", 80), ("i", 5), ("d", 96), ("d_min", 96)
GAINS = {"roll": TILT, "pitch": TILT, "yaw": YAW}


def set_up(profile: BetaflightProfile) -> list[str]:
    """Return the lines that configure the firmware for a profile and for a simulated vehicle."""
    modes = (ARM, profile.aux.arm), (ANGLE, profile.aux.angle), (OVERRIDE, profile.aux.override)
    names = ("roll", profile.rates.roll), ("pitch", profile.rates.pitch), ("yaw", profile.rates.yaw)
    return [
        "feature -GPS",
        "feature -TELEMETRY",
        f"map {profile.channel_map}1234",
        *(f"serial {port} 1 115200 57600 0 115200" for port in range(UARTS)),
        *(f"aux {k} {mode} {aux.channel - 1} {aux.low_us} {aux.high_us} 0 0" for k, (mode, aux) in enumerate(modes)),
        f"set min_check = {profile.throttle.min_check_us}",
        f"set thr_mid = {profile.throttle.mid}",
        f"set thr_expo = {profile.throttle.expo}",
        f"set rx_min_usec = {profile.valid_us[0]}",
        f"set rx_max_usec = {profile.valid_us[1]}",
        f"set rates_type = {RATE_KINDS[profile.rates.kind]}",
        *(line for axis, rates in names for line in (
            f"set {axis}_rc_rate = {rates.rc_rate}",
            f"set {axis}_srate = {rates.rate}",
            f"set {axis}_expo = {rates.expo}",
            f"set {axis}_rate_limit = {rates.limit_deg_s}",
        )),
        f"set level_limit = {profile.angle_limit_deg:.0f}",
        f"set msp_override_channels_mask = {profile.override_mask}",
        f"set rc_smoothing_setpoint_cutoff = {profile.smoothing_hz:.0f}",
        f"set rc_smoothing_feedforward_cutoff = {profile.smoothing_hz:.0f}",
        f"set rc_smoothing_throttle_cutoff = {profile.smoothing_hz:.0f}",
        f"set pwr_on_arm_grace = {profile.boot_s:.0f}",
        "set motor_pwm_protocol = MULTISHOT",  # others slow the rate loop down to what they can send
        "set min_throttle = 1000",  # the vehicle's curve is thrust over the stick
        "set acc_calibration = 0,0,0,1",
        f"set acc_lpf_hz = {profile.accel_lpf_hz:.0f}",
        "set small_angle = 180",
        "set runaway_takeoff_prevention = OFF",  # on, by default, it disarms what leaves the pad at full torque
        *(f"set f_{axis} = 0" for axis, _ in names),  # feedforward of sticks that come in steps saturates the motors
        "set simplified_pids_mode = OFF",
        *(f"set {gain}_{axis} = {value}" for axis, gains in GAINS.items() for gain, value in gains),
        "set iterm_relax = RPY",  # yaw saturates the motors longest, and its integral with it
    ]  # fmt: skip
