"""Probe, in a subprocess, whether acados's libraries run on this processor.

BLASFEO's kernels are compiled for one processor (the wheel's for Haswell: AVX2 and FMA); another one ends the process with
SIGILL, and a truncated library with SIGBUS. The result is cached with the compiled solvers.
"""

import ctypes
import hashlib
import platform
import signal
import subprocess
import sys
from pathlib import Path

LIBRARIES = ("libqpOASES_e", "libblasfeo", "libhpipm", "libacados")  # in the order of their dependence
# Order of the test matrices, above any kernel's; bytes of a buffer, more than sizeof(blasfeo_dmat).
ORDER, MATRIX_BYTES = 24, 512
LONGEST_S = 30.0  # s, time limit of a process that takes 0.1 s
ANSWER = "answer.txt"


def require_runs(folder: Path) -> None:
    """Check that the libraries of a folder run, once per processor and library version.

    Raises:
        OSError: they do not run here; the message says why.
    """
    from gate_racer.common.cache import entry  # here, since the child process does without it

    def answered(draft: Path) -> None:
        (draft / ANSWER).write_text(_tried(folder), encoding="utf-8")

    about = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in _libraries(folder)]
    key = hashlib.sha256(repr((about, _processor(), Path(__file__).read_bytes())).encode()).hexdigest()[:16]
    answer = (entry(f"acados-probe-{key}", answered) / ANSWER).read_text(encoding="utf-8")
    if answer:
        raise OSError(answer)


def _libraries(folder: Path) -> list[Path]:
    found = [next(iter(sorted(folder.glob(f"{name}.*"))), None) for name in LIBRARIES]
    return [path for path in found if path is not None]


def _processor() -> str:
    """Return a text that identifies the processor's instruction set."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _tried(folder: Path) -> str:
    """Return why the libraries do not run, or ""."""
    command = [sys.executable, __file__, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LONGEST_S, text=True, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {LONGEST_S:g} s"
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        lacks = (
            "this processor lacks instructions that they need, such as AVX2" if name == "SIGILL" else "they are damaged"
        )
        return f"{name}: {lacks}"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["unknown"])[-1]


def _multiply(folder: Path) -> None:
    """Compute D = C + A B^T with BLASFEO for matrices of ones, and check one entry."""
    loaded = {path.name.split(".")[0]: ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in _libraries(folder)}
    blasfeo = loaded.get("libblasfeo")
    if blasfeo is None or not hasattr(blasfeo, "blasfeo_dgemm_nt"):
        return  # linked statically into another library, nothing to call
    n, one, at = ctypes.c_int(ORDER), ctypes.c_double(1.0), ctypes.c_int(0)
    matrices = [ctypes.create_string_buffer(MATRIX_BYTES) for _ in range(4)]
    for matrix in matrices:
        blasfeo.blasfeo_allocate_dmat(n, n, matrix)
        blasfeo.blasfeo_dgese(n, n, one, matrix, at, at)
    a, b, c, d = matrices
    blasfeo.blasfeo_dgemm_nt(n, n, n, one, a, at, at, b, at, at, one, c, at, at, d, at, at)
    blasfeo.blasfeo_dgeex1.restype = ctypes.c_double
    found = blasfeo.blasfeo_dgeex1(d, at, at)
    if found != ORDER + 1:
        raise ValueError(f"a test product is {found:g} instead of {ORDER + 1}")


if __name__ == "__main__":
    _multiply(Path(sys.argv[1]))
