#!/bin/sh
# Builds acados 0.6, where the wheel `comma-deps-acados` does not run on the processor or a newer one is wanted, into
# `acados-wheel` of the active virtual environment, in place of what is there. Needs git, cmake, make and a C compiler; takes
# two minutes. Give BLASFEO's target for the fastest code, or GENERIC for one that runs everywhere:
#     tools/build-acados.sh [TARGET]     such as ARMV8A_ARM_CORTEX_A76 (Jetson Orin), X64_INTEL_HASWELL
# ACADOS_SOURCES, if set, is a folder of acados' sources with `external/blasfeo` and `external/hpipm`, instead of the network;
# TERA_PATH, if set, the t_renderer to install (0.2.1 or newer), instead of a download.
set -eu
target=${1:+-DBLASFEO_TARGET=$1}
: "${VIRTUAL_ENV:?activate the virtual environment that flies}"
wheel=$VIRTUAL_ENV/acados-wheel
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sources=${ACADOS_SOURCES:-$work/acados}
if [ -z "${ACADOS_SOURCES:-}" ]; then
    git clone --quiet --depth 1 --branch v0.6.0 https://github.com/acados/acados "$sources"
    git -C "$sources" submodule --quiet update --init --depth 1 external/blasfeo external/hpipm
fi
# shellcheck disable=SC2086
cmake -S "$sources" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DACADOS_INSTALL_DIR="$work/install" \
    -DACADOS_WITH_QPOASES=OFF -DACADOS_SILENT=ON $target
cmake --build "$work/build" --target install --parallel "$(getconf _NPROCESSORS_ONLN)"  # else make's jobs have no limit
pip install --quiet --no-deps --target "$work/python" "$sources/interfaces/acados_template"
pip install --quiet Deprecated  # which its interface imports
cp "$sources/lib/link_libs.json" "$work/install/lib"  # written beside the sources, and read by the interface
mkdir "$work/install/bin"
if [ -n "${TERA_PATH:-}" ]; then cp "$TERA_PATH" "$work/install/bin/t_renderer"; fi
ACADOS_SOURCE_DIR=$work/install TERA_PATH=$work/install/bin/t_renderer PYTHONPATH=$work/python \
    python -c "from acados_template import get_tera; get_tera()"
rm -rf "$wheel"
mkdir -p "$wheel/acados"
mv "$work/install" "$work/python/acados_template" "$wheel/acados"
gate-racer doctor | grep acados:
