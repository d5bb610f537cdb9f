// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes entries of the cache. Whatever the bytes: decoding refuses with a reason, or
// gives an entry that encodes to the very same bytes. Each input is looked at as it is; with the
// checksums that it should have, since no mutation finds those; and as the parts of an entry.
#include <algorithm>
#include <cstring>

#include "cache/store/entry.h"
#include "tests/fuzz/property.h"

using namespace lathe;

namespace {

// The layout of version 1, as the head of cache/store/entry.cpp states it.
constexpr size_t kLengthsAt = 16, kKeyAt = 64, kChecksumAt = 80, kDigestBytes = 16;

void check_decoding(std::string_view bytes) {
  const Result<Entry> entry = decode_entry(bytes);
  if (entry.ok()) {
    FUZZ_CHECK(encode_entry(*entry) == bytes);
    FUZZ_CHECK(digest(entry->key.text) == entry->key.digest);
    FUZZ_CHECK(entry_version(bytes) == kEntryVersion);
  } else {
    FUZZ_CHECK(entry.status().code() == Code::cache_io);
    FUZZ_CHECK(!entry.status().text().empty());
  }
}

void put_digest(std::string& bytes, size_t at, const Digest& value) {
  std::memcpy(bytes.data() + at, value.bytes.data(), kDigestBytes);
}

// With the key of its own text and the checksum of its own bytes.
void sign(std::string& bytes) {
  uint64_t key_bytes = 0;
  std::memcpy(&key_bytes, bytes.data() + kLengthsAt, sizeof(key_bytes));
  if (key_bytes <= bytes.size() - kEntryHeaderBytes)
    put_digest(bytes, kKeyAt, digest(std::string_view(bytes).substr(kEntryHeaderBytes, key_bytes)));
  bytes.replace(kChecksumAt, kDigestBytes, kDigestBytes, '\0');
  put_digest(bytes, kChecksumAt, digest(bytes));
}

// Text and metadata as the input cuts them; a newline in a value becomes a blank.
void check_encoding(std::string_view input) {
  Entry entry;
  const uint64_t text = fuzz::take_number(input, 2), value = fuzz::take_number(input, 2);
  const uint64_t cubin = fuzz::take_number(input, 2);
  entry.key.text = fuzz::take(input, text);
  entry.key.digest = digest(entry.key.text);
  std::string banner(fuzz::take(input, value));
  entry.metadata.set("banner", banner);
  entry.metadata.set("registers", "31");
  entry.cubin = fuzz::take(input, cubin);
  entry.ptx = input;
  const Result<Entry> back = decode_entry(encode_entry(entry));
  FUZZ_CHECK(back.ok());
  std::replace(banner.begin(), banner.end(), '\n', ' ');
  FUZZ_CHECK(back->key.text == entry.key.text && back->metadata == entry.metadata);
  FUZZ_CHECK(back->metadata.find("banner") == banner);
  FUZZ_CHECK(back->cubin == entry.cubin && back->ptx == entry.ptx);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::as_text(data, size);
  check_decoding(input);
  if (size >= kEntryHeaderBytes) {
    std::string signed_bytes(input);
    sign(signed_bytes);
    check_decoding(signed_bytes);
  }
  check_encoding(input);
  return 0;
}
