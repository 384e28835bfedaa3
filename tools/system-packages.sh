#!/bin/sh
# Installs what pip cannot bring, and only what is missing: venv for Debian's Python, the headers of the C library that a bare
# gcc lacks, and the OpenGL libraries of the simulated camera. Elsewhere than on Debian and Ubuntu it says what is missing and goes on.
set -eu
python=${1:-python3}
missing=""
"$python" -c "import ensurepip, venv" 2>/dev/null || missing="$missing python3-venv"
echo '#include <math.h>' | cc -E - >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
for library in libEGL.so.1:libegl1 libGL.so.1:libgl1; do
    "$python" -c "import ctypes; ctypes.CDLL('${library%:*}')" 2>/dev/null || missing="$missing ${library#*:}"
done
ls /usr/lib/*/dri/*swrast*.so /usr/lib/*/dri/*_dri.so /usr/lib/*/libgallium*.so >/dev/null 2>&1 || missing="$missing libgl1-mesa-dri"
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
    echo "please install:$missing (named as in Debian)" >&2
    exit 0
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
echo "installing$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing
