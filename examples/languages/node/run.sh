#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Builds the addon and runs the demo. LATHE_PREFIX: where lathe was installed, unless pkg-config
# knows; OUT: where the addon goes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
[ -z "${LATHE_PREFIX:-}" ] || export PKG_CONFIG_PATH=$LATHE_PREFIX/lib/pkgconfig
headers=$(node -p 'require("path").resolve(process.execPath, "../../include/node")')
addon=${OUT:-$PWD}/lathe.node
read -ra flags < <(pkg-config --cflags --libs lathe)
"${CXX:-c++}" -std=c++20 -O1 -shared -fPIC -I"$headers" -o "$addon" addon.cpp "${flags[@]}" \
  -Wl,-rpath,"$(pkg-config --variable=libdir lathe)"
exec node demo.js "$addon"
