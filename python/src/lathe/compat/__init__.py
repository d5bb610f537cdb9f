# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Functions with the names of other packages: an import is changed, the code around it is not."""
