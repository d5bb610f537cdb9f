// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One entry of the cache: header, key text, metadata, cubin and PTX under a checksum
// (format version 1, final; see the table in entry.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cache/key.h"
#include "cache/metadata.h"
#include "codegen/base/status.h"

namespace lathe {

struct Entry {
  Key key;
  Metadata metadata;
  std::string cubin;
  std::string ptx;
  bool partial = false;  // the PTX or all code was left out, which does not say that there is none
};

// Says which code of an entry a reader keeps. A device takes the cubin and has no use for the PTX;
// where there is none, code that a tier has is read again by whoever asks for it.
enum class Keep { all, cubin, no_code };
// Leaves out the rest.
void keep_only(Keep keep, Entry& entry);

inline constexpr uint32_t kEntryVersion = 1;
inline constexpr size_t kEntryHeaderBytes = 96;

// Refused before memory is asked for: an entry of ours has some hundred KB.
inline constexpr uint64_t kMaxEntryBytes = uint64_t{256} << 20;

std::string encode_entry(const Entry& entry);
// Fails with CACHE_IO and what is wrong: magic, version, length, checksum, text.
// All of it is verified, whatever is kept.
Result<Entry> decode_entry(std::string_view bytes, Keep keep = Keep::all);
// The format version that `bytes` states; 0 if they are no entry at all.
uint32_t entry_version(std::string_view bytes);

// decode_entry() of a file that comes in pieces, so that a reader needs no memory but what the
// entry keeps.
class EntryDecoder {
 public:
  EntryDecoder(uint64_t file_bytes, Keep keep);
  // The next bytes of the file; the first piece has the header, or is all there is.
  Status add(std::string_view bytes);
  // After the last piece. Nothing of the entry is believed before.
  Result<Entry> end();

 private:
  Status take_header(std::string_view bytes);

  const uint64_t file_bytes_;
  const Keep keep_;
  Digester sum_;
  Digest expected_sum_, expected_key_;
  std::string metadata_;
  Entry entry_;
  std::array<uint64_t, 4> missing_{};  // of key text, metadata, cubin and PTX
  bool begun_ = false;
};

}  // namespace lathe
