#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Builds the crate and runs its demo. LATHE_PREFIX: where lathe was installed, unless the linker
# knows; OUT: where what cargo builds goes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec cargo run --quiet --offline --target-dir "${OUT:-target}" --example demo
