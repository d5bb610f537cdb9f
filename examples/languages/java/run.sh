#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# Runs the demo by JDK 22 or later. LATHE_PREFIX: where lathe was installed, unless the loader knows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec java --enable-native-access=ALL-UNNAMED Demo.java
