"""A client of other people's, YAMSPy: reads a flight controller on a pseudo-terminal, is armed by its pilot, and lifts off."""

import json
import sys
import time

from yamspy import MSPy

LOW, MID, CLIMB = 1000, 1500, 1550
HANDED_OVER_S, CLIMB_S, LIMIT_S = 1.3, 1.2, 30.0


def fly(board: MSPy) -> dict:
    """Return the messages read, the accelerometer on the floor, and the altitudes during the climb, m."""
    begin, armed, accel, altitudes = time.monotonic(), None, [], []

    def ask(name):
        board.send_RAW_msg(MSPy.MSPCodes[name], data=[])
        board.process_recv_data(board.receive_msg())

    while (now := time.monotonic()) - begin < LIMIT_S and (armed is None or now - armed < HANDED_OVER_S + CLIMB_S):
        climbs = armed is not None and now - armed > HANDED_OVER_S
        board.fast_msp_rc_cmd([MID, MID, CLIMB if climbs else LOW, MID])  # AETR
        board.fast_read_attitude()
        board.fast_read_imu()
        ask("MSP_STATUS_EX")
        ask("MSP_ALTITUDE")
        if armed is None and board.CONFIG["mode"] & 1:
            armed = now
        if armed is None:
            accel = list(board.SENSOR_DATA["accelerometer"])
        if climbs:
            altitudes.append(board.SENSOR_DATA["altitude"])
    told = {"armed": armed is not None, "accel": accel, "altitudes": altitudes}
    return told | {name: board.CONFIG[name] for name in ("flightControllerIdentifier", "flightControllerVersion")}


if __name__ == "__main__":
    with MSPy(device=sys.argv[1], loglevel="ERROR", logfilename=sys.argv[2]) as opened:
        result = fly(opened)
    print(json.dumps(result))
