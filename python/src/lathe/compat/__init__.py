# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Modules with the functions of other packages, by their names, orders and defaults.

Each follows one version of one package, which it names, and needs that package not to be installed.
"""
