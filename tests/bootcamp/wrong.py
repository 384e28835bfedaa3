"""Wrong programs of learners, each with its lesson, and the sentence that names the mistake.

A program is the text of a `decide`, or changes of a lesson's solution: pairs of a right text and the wrong one in its place.
"""

HEAD = "from gate_racer.program import Box, Command, CourseGate, Go, Halt, Land, Location, Null, Report, Status\n"
D = "def decide(report, pads):\n    "
HALTED = D + "if report.status is not Status.HALTED: return Null()\n    "
TO_PAD = (
    HALTED + "if not pads: return Null()\n    p = pads[0]\n    if p.distance(report.position) < 0.4: return Land()\n"
    "    return Go(p.north - report.position.north, p.east - report.position.east)\n"
)

PROGRAMS = [  # name, scenario, text, sentence
    # exceptions, with the learner's own line
    ("a division by zero", "hear", D + "return 1 / report.step\n",
     "ZeroDivisionError: division by zero (in `decide` at mine.py:4)"),
    ("a command not imported", "hear", "del Land\n" + D + "return Land()\n", "write `from gate_racer.program import Land`"),
    ("no global", "hear", "n = 0\n" + D + "n += 1\n    return Null()\n", "declare `global n` there"),
    ("one argument", "hear", "def decide(report):\n    return Null()\n", "functions are decide(report, pads)"),
    ("an unknown field", "hear", D + "return Land() if report.altitude > 1 else Null()\n", "did you mean report.height?"),
    ("an unknown status", "hear", D + "return Land() if report.status is Status.HOVERING else Null()\n",
     "the statuses are HALTED, MOVING, LANDED and CRASHED"),
    ("a dictionary", "hear", D + "return Go(report['position'], 0)\n", "its values are attributes, such as report.position"),
    ("a subtraction of places", "hear", D + "return report.waypoint - report.position\n", "use .north and .east one by one"),
    ("a waypoint that is none", "figure8", D + "return Go(report.waypoint.north, 0)\n", "not every scenario has a waypoint"),
    ("pads that are none", "figure8", "def detect(image):\n    return []\n" + D + "return Go(pads[0].north, 0)\n",
     "test `if pads:`"),
    ("a list for its element", "distractors", D + "return Go(pads.north, 0)\n", "take one element first, such as pads[0]"),
    ("a changed report", "hear", D + "report.seed = 3\n    return Null()\n", "cannot be changed"),
    ("Land with a place", "hear", D + "return Land(report.waypoint)\n", "the commands are Go(north, east), Halt(), Land()"),
    ("a field of another form", "hear", D + "return Go(report.waypoints.north, 0)\n",
     "did you mean report.waypoint or report.route?"),
    ("an error of OpenCV", "hear", "import cv2, numpy\n" + D + "cv2.cvtColor(numpy.zeros((3, 3), numpy.uint8), 6)\n",
     "error: (-15:Bad number of channels) > Invalid number of channels in input image"),
    # values that are no commands
    ("no return", "hear", D + "Land()\n", "None is not a command"),
    ("a command not called", "hear", D + "return Land\n", "call it: Land()"),
    ("a place", "hear", D + "return report.waypoint\n", "Go takes the difference to report.position"),
    ("two commands", "hear", D + "return [Go(10, 0), Land()]\n", "one command per step"),
    ("a yield", "hear", D + "yield Go(10, 0)\n", "without `yield` and `async`"),
    ("a yield for ever", "waypoint", D + "yield Go(10, 0)\n", "ignored 300 times: <generator object decide"),
    ("words for numbers", "hear", D + "return Go('10', '0')\n", "north, east and up must be numbers"),
    ("not a number", "hear", D + "return Go(float('nan'), 0)\n", "must be finite numbers"),
    # commands at the wrong time, or none
    ("nothing", "hear", D + "return Null()\n", "never commanded: `decide` returned Null() 400 times"),
    ("north for ever", "hear", HALTED + "return Go(0.5, 0)\n", "flew north for 400 steps, and Land() was never commanded"),
    ("to and fro", "hear", HALTED + "return Go(4 if report.position.north < 1 else -4, 0)\n", "to and fro"),
    ("Go while moving", "hear", D + "return Go(17 - 2 * report.position.north, 23 - 2 * report.position.east)\n",
     "the drone is moving, it must be halted first"),
    ("beyond the boundary", "hear", HALTED + "return Go(40, 0)\n", "outside the boundary of 60 m"),
    ("Land at once", "hear", D + "return Land()\n", "never flew anywhere: no Go was commanded"),
    ("Land on the way", "waypoint", HALTED + "return Land() if report.step else Go(8, 6)\n",
     "landed before the waypoint was reached"),
    ("another pad", "pads", HALTED + "w, h = report.waypoint, report.position\n    far = max(pads, key=w.distance, default=w)\n"
     "    if not report.reached: return Go(w.north - h.north, w.east - h.east)\n"
     "    return Land() if far.distance(h) < 0.4 else Go(far.north - h.north, far.east - h.east)\n",
     "landed on another pad than the one nearest to the waypoint"),
    # boxes
    ("no list of boxes", "distractors", "def detect(image):\n    return Box(1, 1, 9, 9)\n" + TO_PAD, "return a list of boxes"),
    ("three numbers", "distractors", "def detect(image):\n    return [(1, 2, 3)]\n" + TO_PAD, "a box has four numbers"),
    ("an inverted box", "distractors", "def detect(image):\n    return [(300, 200, 64, 64)]\n" + TO_PAD,
     "boxes: 60 dropped: x1 < x0, did you pass x, y, w, h?"),
    ("nothing detected", "distractors", "def detect(image):\n    return []\n" + TO_PAD, "images that show a pad"),
    ("no place returned", "locate", "def locate(box, report):\n    pass\n" + TO_PAD, "locate returned None"),
    ("feet", "waypoint", HALTED + "w, h = report.waypoint, report.position\n"
     "    return Go((w.north - h.north) * 3.28, (w.east - h.east) * 3.28)\n", "the unit is not m: it is 3.28 times too long"),
    ("relative places", "pads", "def locate(box, report):\n    scale = report.camera.fx_px / report.height\n"
     "    return (239.5 - (box.top + box.bottom) / 2) / scale, ((box.left + box.right) / 2 - 319.5) / scale\n"
     + HALTED + "h, w = report.position, report.waypoint\n"
     "    if not report.reached: return Go(w.north - h.north, w.east - h.east)\n"
     "    return Go(pads[0].north - h.north, pads[0].east - h.east) if pads else Null()\n",
     "relative to the drone: add report.position"),
]  # fmt: skip
BOX, PLACE = "Box(x, y, x + w - 1, y + h - 1)", "Location(north / scale, east / scale)"
NORTH, EAST = "report.waypoint.north - report.position.north", "report.waypoint.east - report.position.east"

CHANGES = [  # name, lesson, changes, sentence
    ("from the start", "2_go", [(" - report.position.north", ""), (" - report.position.east", "")], "subtract report.position"),
    ("no memory", "6_lost", [("seen.extend(pads)", "seen[:] = pads")], "Land() was never commanded"),
    ("x, y, w, h", "3_detect", [(BOX, "Box(x, y, w, h)")], "x, y, w, h"),
    ("shares", "3_detect", [(BOX, "Box(x / 640, y / 480, (x + w) / 640, (y + h) / 480)")], "shares of the image"),
    ("places swapped", "4_locate", [(PLACE, "Location(east / scale, north / scale)")], "north and east are swapped"),
    ("a level camera", "4_locate",
     [("(matrix(report.q_wb) @ report.camera.R_bc).T", "np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1.0]])")],
     "use R_bc and q_wb"),
    ("no Halt in wind", "5_wind", [("return Halt()", "return Null()")], "Halt() halts it"),
    ("no aim upwind", "5_wind", [("NEAR_M = 0.05, 2.0, 0.15", "NEAR_M = 0.05, 2.0, 3.0")], "aim upwind"),
    ("places unvisited", "7_route", [("if not report.route", "if len(report.route) < 3")], "landed before 2 places were visited"),
    ("in front of the gate", "8_gates", [("BEHIND_M if lined_up == report.passed else -BEFORE_M", "-BEFORE_M")],
     "gate 1 was not passed in its direction"),
    ("beside the gate", "8_gates", [("gate.height\n", "gate.height + 1\n")], "gate 1 (the next one)"),
]  # fmt: skip
