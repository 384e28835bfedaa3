"""Identification and settings messages of the simulated flight controller for a profile."""

from gate_racer.link.msp.constants import ANGLE, ARM, OVERRIDE
from gate_racer.link.msp.messages import ApiVersion, BoardInfo, Code, FcVariant, FcVersion, Message
from gate_racer.link.msp.profile import LEAST_MAP, MID_US, BetaflightProfile
from gate_racer.link.msp.rates import RATES_TYPE
from gate_racer.link.msp.settings import LETTERS, ModeRange, ModeRanges, RcTuning, RxConfig, RxMap

MAX_CHECK_US = 1900  # Betaflight's default
CRSF = 9  # of its serial receivers


def settings(profile: BetaflightProfile) -> dict[int, Message]:
    """Return the constant replies by MSP command."""
    low, high = profile.valid_us
    return {
        Code.API_VERSION: ApiVersion(0, 1, 45),
        Code.FC_VARIANT: FcVariant("BTFL"),
        Code.FC_VERSION: FcVersion(4, 4, 3),
        Code.BOARD_INFO: BoardInfo("SH74", target="STM32H743"),
        Code.RC_TUNING: _tuning(profile),
        Code.RX_CONFIG: RxConfig(CRSF, MAX_CHECK_US, MID_US, profile.throttle.min_check_us, 0, low, high),
        Code.RX_MAP: RxMap(profile.channel_map + LETTERS[len(LEAST_MAP) :]),
        Code.MODE_RANGES: _modes(profile),
    }


def _modes(profile: BetaflightProfile) -> ModeRanges:
    switches = (ARM, profile.aux.arm), (ANGLE, profile.aux.angle), (OVERRIDE, profile.aux.override)
    return ModeRanges(tuple(ModeRange(mode, aux.channel, aux.low_us, aux.high_us) for mode, aux in switches))


def _tuning(profile: BetaflightProfile) -> RcTuning:
    roll, pitch, yaw = profile.rates.axes
    return RcTuning(
        rc_rate_roll=roll.rc_rate,
        expo_roll=roll.expo,
        rate_roll=roll.rate,
        rate_pitch=pitch.rate,
        rate_yaw=yaw.rate,
        tpa_rate=65,
        throttle_mid=profile.throttle.mid,
        throttle_expo=profile.throttle.expo,
        tpa_breakpoint=1350,
        expo_yaw=yaw.expo,
        rc_rate_yaw=yaw.rc_rate,
        rc_rate_pitch=pitch.rc_rate,
        expo_pitch=pitch.expo,
        throttle_limit_type=0,
        throttle_limit=100,
        limit_roll_deg_s=roll.limit_deg_s,
        limit_pitch_deg_s=pitch.limit_deg_s,
        limit_yaw_deg_s=yaw.limit_deg_s,
        rates_type=RATES_TYPE[profile.rates.kind],
    )
