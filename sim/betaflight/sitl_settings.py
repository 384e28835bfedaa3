"""Settings of the firmware for a profile, as command-line input. Betaflight 4.4.3, `src/main/cli/settings.c`."""

from link.msp.constants import ANGLE, ARM, OVERRIDE
from link.msp.profile import BetaflightProfile

UARTS = 2  # that speak MSP: the companion's, and the transmitter's
RATE_KINDS = {"betaflight": "BETAFLIGHT", "actual": "ACTUAL", "quick": "QUICK"}
# Of roll and pitch; the aircraft's are not published. With the thrust's lag of `archer` a step of the stick is followed to 63 %
# within 0.06 s and overshot by 5 to 10 %; Betaflight's own, 45, 80 and 40, swing up on it.
GAINS = ("p", 25), ("i", 30), ("d", 30), ("d_min", 30)


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
        "set small_angle = 180",
        "set runaway_takeoff_prevention = OFF",  # on, by default, it disarms what leaves the pad at full torque
        *(f"set f_{axis} = 0" for axis, _ in names),  # feedforward of sticks that come in steps saturates the motors
        "set simplified_pids_mode = OFF",
        *(f"set {gain}_{axis} = {value}" for axis in ("roll", "pitch") for gain, value in GAINS),
        "set i_yaw = 45",  # the default of 90 swings up on motors that lag by 40 ms
    ]  # fmt: skip
