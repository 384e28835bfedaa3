#!/bin/sh
# tools/build-acados.sh FOLDER [BLASFEO_TARGET]
# builds acados of today from its sources, in place of the wheel of `make setup`. BLASFEO_TARGET: GENERIC runs anywhere,
# X64_INTEL_HASWELL wants AVX2; by default what this processor has. Needs git, cmake, a C compiler and a network; so does the first
# solver that is generated with it, since acados fetches the renderer of its templates then.
set -eu
VERSION=v0.6.0
[ $# -ge 1 ] || { sed -n 2,5p "$0"; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[ -d "$folder/acados" ] || git clone --quiet --depth 1 --branch $VERSION https://github.com/acados/acados "$folder/acados"
cd "$folder/acados"
git submodule update --quiet --init --depth 1 external/blasfeo external/hpipm
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DBLASFEO_TARGET="${2:-X64_AUTOMATIC}" -DACADOS_INSTALL_DIR="$PWD" \
    -DACADOS_WITH_QPOASES=OFF -DACADOS_WITH_DAQP=OFF
cmake --build build --target install --parallel
echo "pip install $PWD/interfaces/acados_template"
echo "export ACADOS_SOURCE_DIR=$PWD LD_LIBRARY_PATH=$PWD/lib"
