// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4): the name of a text that its author may have made to look like another one.
// digest() of digest.h is faster, but anybody can write two texts with one XXH3.
#pragma once

#include <string>
#include <string_view>

namespace lathe {

// 64 small hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace lathe
