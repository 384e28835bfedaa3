"""Write Betaflight blackbox files as the firmware does: the same fields, predictors and encodings, from whole numbers."""

FIELDS = (  # name, predictor and encoding of I-frames, of P-frames: those of Betaflight 4.5
    ("loopIteration", 0, 1, 6, 9),
    ("time", 0, 1, 2, 0),
    *((f"axisI[{k}]", 0, 0, 1, 7) for k in range(3)),
    *((f"rcCommand[{k}]", 0, k == 3, 1, 8) for k in range(4)),
    *((f"setpoint[{k}]", 0, 0, 1, 8) for k in range(4)),
    ("vbatLatest", 9, 3, 1, 6),
    ("amperageLatest", 0, 0, 1, 6),
    ("rssi", 0, 1, 1, 6),
    *((f"gyroADC[{k}]", 0, 0, 3, 0) for k in range(3)),
    *((f"accSmooth[{k}]", 0, 0, 3, 0) for k in range(3)),
    *((f"imuQuaternion[{k}]", 0, 0, 3, 0) for k in range(3)),
    ("motor[0]", 11, 1, 3, 0),
    *((f"motor[{k}]", 5, 0, 3, 0) for k in range(1, 4)),
)
NAMES = [field[0] for field in FIELDS]
VBATREF, MINMOTOR = 1650, 158
GROUPED = {6: 8, 7: 3, 8: 4}
END = b"E\xffEnd of log\0"


def header(**more) -> bytes:
    rows = {"name": NAMES, "signed": [1] * len(NAMES)}
    lines = ["Product:Blackbox flight data recorder by Nicholas Sherlock", "Data version:2"]
    for kind, k in (("I", 1), ("P", 3)):
        rows |= {"predictor": [int(f[k]) for f in FIELDS], "encoding": [int(f[k + 1]) for f in FIELDS]}
        wanted = rows if kind == "I" else {name: rows[name] for name in ("predictor", "encoding")}
        lines += [f"Field {kind} {what}:{','.join(map(str, values))}" for what, values in wanted.items()]
    lines += [
        "Field S name:flightModeFlags,stateFlags,failsafePhase,rxSignalReceived,rxFlightChannelsValid",
        "Field S predictor:0,0,0,0,0",
        "Field S encoding:1,1,7,7,7",
    ]
    known = {"gyro_scale": "0x3f800000", "motorOutput": f"{MINMOTOR},2047", "acc_1G": 2048, "vbatref": VBATREF}
    lines += [f"{name}:{value}" for name, value in (known | more).items()]
    return "".join(f"H {line}\n" for line in lines).encode()


def uvb(value: int) -> bytes:
    value &= 0xFFFFFFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def svb(value: int) -> bytes:
    return uvb((value << 1) ^ (value >> 31))


def tag2_3s32(values) -> bytes:
    a, b, c = values
    if all(-2 <= v < 2 for v in values):
        return bytes([(a & 3) << 4 | (b & 3) << 2 | c & 3])
    if all(-8 <= v < 8 for v in values):
        return bytes([0x40 | a & 15, (b & 15) << 4 | c & 15])
    if all(-32 <= v < 32 for v in values):
        return bytes([0x80 | a & 63, b & 63, c & 63])
    sizes = [next(n for n in (1, 2, 3, 4) if -(1 << 8 * n - 1) <= v < 1 << 8 * n - 1) for v in values]
    lead = 0xC0 | sum((n - 1) << 2 * k for k, n in enumerate(sizes))
    return bytes([lead]) + b"".join(v.to_bytes(n, "little", signed=True) for v, n in zip(values, sizes, strict=True))


def tag8_4s16(values) -> bytes:
    kinds = [0 if v == 0 else 1 if -8 <= v < 8 else 2 if -128 <= v < 128 else 3 for v in values]
    nibbles = []
    for value, kind in zip(values, kinds, strict=True):
        count = (0, 1, 2, 4)[kind]
        nibbles += [value >> 4 * (count - 1 - k) & 15 for k in range(count)]
    nibbles += [0] * (len(nibbles) % 2)
    packed = bytes(a << 4 | b for a, b in zip(nibbles[::2], nibbles[1::2], strict=True))
    return bytes([sum(kind << 2 * k for k, kind in enumerate(kinds))]) + packed


def tag8_8svb(values) -> bytes:
    if len(values) == 1:
        return svb(values[0])
    return bytes([sum((v != 0) << k for k, v in enumerate(values))]) + b"".join(svb(v) for v in values if v)


def encode(encodings, values) -> bytes:
    out, k = b"", 0
    while k < len(values):
        code, count = int(encodings[k]), 1
        while count < GROUPED.get(code, 1) and k + count < len(values) and encodings[k + count] == code:
            count += 1
        part = values[k : k + count]
        one = {0: svb, 1: uvb, 3: lambda v: uvb(-v & 0x3FFF), 9: lambda v: b""}
        many = {6: tag8_8svb, 7: tag2_3s32, 8: tag8_4s16}
        out += many[code](part) if code in many else one[code](part[0])
        k += count
    return out


def frames(rows, every: int = 32) -> list[bytes]:
    """Each row of whole numbers as a frame; an I-frame among `every`."""
    out = []
    for k, row in enumerate(rows):
        intra = k % every == 0
        last, before = (rows[k - 1], rows[k - 2 if k % every > 1 else k - 1]) if not intra else (row, row)
        deltas = []
        for i, (value, field) in enumerate(zip(row, FIELDS, strict=True)):
            total = last[i] + before[i]
            guess = {
                0: 0, 1: last[i], 2: 2 * last[i] - before[i], 3: int(total / 2), 5: row[NAMES.index("motor[0]")],
                6: value, 9: VBATREF, 11: MINMOTOR,
            }[field[1 if intra else 3]]  # fmt: skip
            deltas.append(value - guess)
        out.append((b"I" if intra else b"P") + encode([field[2 if intra else 4] for field in FIELDS], deltas))
    return out


SLOW_FRAME = b"S" + uvb(1) + uvb(0) + tag2_3s32([0, 1, 1])
RESUME_EVENT = b"E" + bytes([14]) + uvb(7) + uvb(123456)


def row_of(t_us: int, iteration: int = 0, **values) -> list[int]:
    """A frame's whole numbers; names as in the log, zero where not given."""
    known = {"time": t_us, "loopIteration": iteration, "vbatLatest": VBATREF, **values}
    return [known.get(name, 0) for name in NAMES]
