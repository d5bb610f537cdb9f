// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A fat binary holds a program several times: as machine code, and as PTX, plain or compressed.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace sim::driver {

constexpr unsigned kFatMagic = 0xBA55ED50;

// Returns the PTX for the newest architecture in the fat binary at `fat` among those that
// runs(text) accepts, or the newest one if it accepts none. If there is no PTX it returns "" and
// `why` says what is there instead.
std::string ptx_in_fat_binary(const char* fat, const std::function<bool(const std::string&)>& runs,
                              std::string* why);

// Decompress `packed` to exactly `bytes` bytes; they return false if it does not hold as many, or
// is damaged. An LZ4 block has no frame around it. zstd is libzstd's, which is loaded at the first
// use; `why` says so if it is missing.
bool unpack_lz4(std::string_view packed, size_t bytes, std::string* out);
bool unpack_zstd(std::string_view packed, size_t bytes, std::string* out, std::string* why);

}  // namespace sim::driver
