// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// XXH3-128 with what every processor of the target has.
#include "codegen/base/xxh3.h"

namespace lathe {

XXH128_hash_t xxh3(const Piece* pieces, size_t count) { return xxh3_of(pieces, count); }

}  // namespace lathe
