"""Where neither the package nor a user's cache can be written, compiled code works without being kept."""

import subprocess
import sys

CODE = """
from numba.core import caching
caching.CacheImpl._locator_classes = []  # as if no folder could be written
from gate_racer.common.compiled import compiled
print(compiled("f8(f8)")(lambda x: 2 * x)(21.0), compiled()(lambda x: x + 1)(41))
"""


def test_compiled_code_works_without_a_cache():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("42.0 42\n", "")
