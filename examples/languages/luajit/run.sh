#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Runs the demo by LuaJIT. LATHE_PREFIX: where lathe was installed, unless the loader
# knows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec luajit demo.lua
