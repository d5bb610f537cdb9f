// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file decompresses entries of fat binaries. LZ4's block format is that of its specification
// (lz4_Block_format.md of the LZ4 project): sequences of literals, then a match that repeats bytes
// written before; the last sequence has literals alone.
#include <dlfcn.h>

#include "sim/driver/code/fat_binary.h"

namespace sim::driver {
namespace {

constexpr size_t kLongLength = 15;  // more follows in bytes of 255 and one that is less
constexpr size_t kShortestMatch = 4;

// Reads an LZ4 block from its beginning; every step says whether the block still had enough bytes.
class Lz4Block {
 public:
  explicit Lz4Block(std::string_view packed) : packed_(packed) {}
  bool done() const { return at_ == packed_.size(); }

  bool byte(size_t* out) {
    if (done()) return false;
    *out = static_cast<unsigned char>(packed_[at_++]);
    return true;
  }
  // `length` has four bits of it. No length may pass `most`.
  bool length(size_t* length, size_t most) {
    size_t more = *length == kLongLength ? 255 : 0;
    while (more == 255) {
      if (!byte(&more)) return false;
      *length += more;
      if (*length > most) return false;
    }
    return *length <= most;
  }
  bool literals(size_t count, std::string* out) {
    if (count > packed_.size() - at_) return false;
    out->append(packed_, at_, count);
    at_ += count;
    return true;
  }

 private:
  std::string_view packed_;
  size_t at_ = 0;
};

// Repeats bytes of `out` that begin `distance` before its end; they may overlap what they become.
void repeat(size_t distance, size_t count, std::string* out) {
  for (size_t k = 0; k < count; ++k) out->push_back((*out)[out->size() - distance]);
}

struct Zstd {
  size_t (*decompress)(void*, size_t, const void*, size_t) = nullptr;
  unsigned (*is_error)(size_t) = nullptr;
};

// The library's functions; null where it is missing. It stays loaded.
const Zstd& zstd() {
  static const Zstd kZstd = [] {
    Zstd z;
    void* library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return z;
    z.is_error = reinterpret_cast<decltype(z.is_error)>(dlsym(library, "ZSTD_isError"));
    z.decompress = reinterpret_cast<decltype(z.decompress)>(dlsym(library, "ZSTD_decompress"));
    return z;
  }();
  return kZstd;
}

}  // namespace

bool unpack_lz4(std::string_view packed, size_t bytes, std::string* out) {
  out->clear();
  out->reserve(bytes);
  Lz4Block block(packed);
  while (!block.done()) {
    size_t token = 0, low = 0, high = 0;
    if (!block.byte(&token)) return false;
    size_t literals = token >> 4;
    if (!block.length(&literals, bytes - out->size())) return false;
    if (!block.literals(literals, out)) return false;
    if (block.done()) break;
    if (!block.byte(&low) || !block.byte(&high)) return false;
    const size_t distance = low | high << 8;
    if (distance == 0 || distance > out->size()) return false;
    size_t match = token & kLongLength;
    const size_t room = bytes - out->size();
    if (room < kShortestMatch || !block.length(&match, room - kShortestMatch)) return false;
    repeat(distance, match + kShortestMatch, out);
  }
  return out->size() == bytes;
}

bool unpack_zstd(std::string_view packed, size_t bytes, std::string* out, std::string* why) {
  const Zstd& z = zstd();
  if (z.decompress == nullptr || z.is_error == nullptr) {
    *why =
        "the fat binary's PTX is compressed by zstd, and libzstd.so.1 cannot be loaded; install "
        "it, or build with --compress-mode=speed or none (nvcc, fatbinary)";
    return false;
  }
  out->assign(bytes, '\0');
  const size_t got = z.decompress(out->data(), bytes, packed.data(), packed.size());
  return z.is_error(got) == 0 && got == bytes;
}

}  // namespace sim::driver
