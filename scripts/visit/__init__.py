# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A visit to a machine with a GPU: docs/gpu.md. Needs the standard library alone."""
