// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file finds the PTX in a fat binary.
#include "sim/driver/code/fat_binary.h"

#include <cstdint>
#include <cstring>

namespace sim::driver {
namespace {

constexpr uint16_t kPtx = 1;
constexpr uint64_t kLz4Flag = 0x2000, kZstdFlag = 0x8000;  // of FatEntry::flags
constexpr uint64_t kCompressed = 0xF000;                   // either of them, or another one
constexpr uint64_t kMostBytes = 1ull << 28;                // of PTX: more is damage

struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of all entries
};

struct FatEntry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;  // of the payload, padded
  uint32_t compressed_bytes, options_offset;
  uint16_t minor, major;
  uint32_t arch, name_offset, name_bytes;
  uint64_t flags, reserved;
  uint64_t plain_bytes;  // of a compressed payload
};
static_assert(sizeof(FatEntry) == 64);

// Returns the text of a PTX entry up to its first NUL.
bool read_ptx(const FatEntry& entry, const char* payload, std::string* text, std::string* why) {
  const uint64_t how = entry.flags & kCompressed;
  std::string_view bytes(payload, entry.bytes);
  *why = "the fat binary's PTX is damaged";
  if (how != 0) {
    if (entry.compressed_bytes > entry.bytes || entry.plain_bytes > kMostBytes) return false;
    bytes = bytes.substr(0, entry.compressed_bytes);
  }
  if (how == 0) {
    *text = bytes;
  } else if (how == kLz4Flag) {
    if (!unpack_lz4(bytes, entry.plain_bytes, text)) return false;
  } else if (how == kZstdFlag) {
    if (!unpack_zstd(bytes, entry.plain_bytes, text, why)) return false;
  } else {
    *why =
        "the fat binary's PTX is compressed in a way that is not known; build it with "
        "--compress-mode=none (nvcc, fatbinary)";
    return false;
  }
  text->resize(std::strlen(text->c_str()));
  return true;
}

}  // namespace

std::string ptx_in_fat_binary(const char* fat, const std::function<bool(const std::string&)>& runs,
                              std::string* why) {
  FatHeader header;
  std::memcpy(&header, fat, sizeof header);
  const char* at = fat + header.header_bytes;
  const char* end = at + header.bytes;
  std::string best;
  uint32_t best_arch = 0;
  bool best_runs = false;
  *why = "the fat binary holds no PTX; the simulator runs PTX only";
  while (at + sizeof(FatEntry) <= end) {
    FatEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    const auto left = static_cast<uint64_t>(end - at);
    if (entry.header_bytes < sizeof entry || entry.header_bytes > left) break;
    if (entry.bytes > left - entry.header_bytes) break;
    const char* payload = at + entry.header_bytes;
    if (entry.kind == kPtx) {
      std::string text;
      if (!read_ptx(entry, payload, &text, why)) return "";
      const bool good = runs(text);
      if (good > best_runs || (good == best_runs && entry.arch >= best_arch)) {
        best = std::move(text);
        best_arch = entry.arch;
        best_runs = good;
      }
    }
    at = payload + entry.bytes;
  }
  return best;
}

}  // namespace sim::driver
