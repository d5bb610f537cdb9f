// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// XXH3-128 with what every processor of the target has.
#include "codegen/base/xxh3.h"

namespace lathe {

const Xxh3 xxh3 = kXxh3Here;

}  // namespace lathe
