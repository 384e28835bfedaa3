"""What all rooms share and is no vehicle.

YAML file -> config.py (typed, checked, path of every error) -> frozen dataclass
bytes of others -> files.py, images.py (limits, atomic writing) -> text, images
source -> compiled.py, cache.py -> compiled code, kept per user and machine
command line -> launch.py, command.py -> result, one line of errors.py, exit code; process.py starts and ends children
"""
