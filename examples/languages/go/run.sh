#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the demo. LATHE_PREFIX: where lathe was installed, unless pkg-config knows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
if [ -n "${LATHE_PREFIX:-}" ]; then
  export PKG_CONFIG_PATH=$LATHE_PREFIX/lib/pkgconfig LD_LIBRARY_PATH=$LATHE_PREFIX/lib
fi
exec go run ./demo
