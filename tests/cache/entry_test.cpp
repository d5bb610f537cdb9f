// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// An entry survives its own bytes and refuses all others.
#include "cache/store/entry.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

TEST_CASE("an entry comes back as it was") {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{100000}}) {
    const Entry entry = sample_entry("a", bytes);
    const Result<Entry> back = decode_entry(encode_entry(entry));
    REQUIRE(back.ok());
    CHECK(same(*back, entry));
  }
  Entry bare = sample_entry("bare", 0);
  bare.metadata = {};
  bare.ptx.clear();
  REQUIRE(decode_entry(encode_entry(bare)).ok());
  CHECK(same(*decode_entry(encode_entry(bare)), bare));
}

TEST_CASE("pieces make the entry that the file makes, and no other") {
  const Entry entry = sample_entry("pieces", 3000);
  const std::string bytes = encode_entry(entry);
  const auto in_pieces = [&](std::string_view file, size_t claimed, size_t first, size_t each) {
    EntryDecoder decoder(claimed, Keep::all);
    for (size_t at = 0; at < file.size();) {
      const std::string_view piece = file.substr(at, at == 0 ? first : each);
      if (const Status status = decoder.add(piece); !status.ok()) return Result<Entry>(status);
      at += piece.size();
    }
    return decoder.end();
  };
  for (const size_t first : {96, 97, 200, 3000}) {
    for (const size_t each : {1, 7, 64, 1024, 4000}) {
      CAPTURE(first);
      CAPTURE(each);
      const auto back = in_pieces(bytes, bytes.size(), first, each);
      REQUIRE(back.ok());
      CHECK(same(*back, entry));
      // A file that was cut or grew after its size was asked for, or is another behind the header.
      const auto cut =
          in_pieces(std::string_view(bytes).substr(0, bytes.size() - 1), bytes.size(), first, each);
      REQUIRE_FALSE(cut.ok());
      CHECK(cut.status().text().find("1 bytes early") != std::string::npos);
      CHECK_FALSE(in_pieces(bytes + 'x', bytes.size(), first, each).ok());
      std::string other = bytes;
      other[other.size() / 2] ^= 1;
      CHECK_FALSE(in_pieces(other, other.size(), first, each).ok());
    }
  }
  CHECK(EntryDecoder(0, Keep::all).end().status().text().find("0 bytes") != std::string::npos);
}

TEST_CASE("what is left out is verified all the same, and said to be left out") {
  const Entry entry = sample_entry("parts", 3000);
  std::string bytes = encode_entry(entry);
  for (const Keep keep : {Keep::all, Keep::cubin, Keep::no_code}) {
    const auto back = decode_entry(bytes, keep);
    REQUIRE(back.ok());
    CHECK(back->partial == (keep != Keep::all));
    CHECK(back->cubin == (keep == Keep::no_code ? "" : entry.cubin));
    CHECK(back->ptx == (keep == Keep::all ? entry.ptx : ""));
    CHECK(back->metadata == entry.metadata);
    Entry cut = entry;
    keep_only(keep, cut);
    CHECK(same(cut, *back));
    CHECK(cut.partial == back->partial);
    for (const size_t at : {bytes.size() - 1, bytes.size() - entry.ptx.size() - 1}) {
      bytes[at] ^= 1;
      CHECK_FALSE(decode_entry(bytes, keep).ok());
      bytes[at] ^= 1;
    }
  }
  Entry bare = sample_entry("bare", 0);
  bare.ptx.clear();
  CHECK_FALSE(decode_entry(encode_entry(bare), Keep::no_code)->partial);
}

TEST_CASE("the layout is that of version 1") {
  const Entry entry = sample_entry("layout", 5);
  const std::string bytes = encode_entry(entry);
  const std::string metadata = "kernel=layout\nregisters=31\n";
  const auto length_at = [&](size_t at) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, 8);
    return value;
  };
  CHECK(bytes.substr(0, 8) == std::string("LATHE\r\n\x1a", 8));
  CHECK(bytes.substr(8, 8) == std::string("\x01\0\0\0\x60\0\0\0", 8));
  CHECK(length_at(16) == entry.key.text.size());
  CHECK(length_at(24) == metadata.size());
  CHECK(length_at(32) == 5);
  CHECK(length_at(40) == entry.ptx.size());
  CHECK(bytes.substr(48, 16) == std::string(16, '\0'));
  CHECK(std::memcmp(bytes.data() + 64, entry.key.digest.bytes.data(), 16) == 0);
  std::string unsigned_bytes = bytes;
  unsigned_bytes.replace(80, 16, 16, '\0');
  CHECK(std::memcmp(bytes.data() + 80, digest(unsigned_bytes).bytes.data(), 16) == 0);
  CHECK(bytes.substr(96) == entry.key.text + metadata + entry.cubin + entry.ptx);
}

TEST_CASE("the bytes are those that version 1 has always written") {
  const std::string bytes = encode_entry(sample_entry("golden", 40));
  CHECK(bytes.size() == 245);
  CHECK(digest(bytes).hex() == "0c0bfe4fe3dbace3d8ad1cad0d3e3c3a");
}

TEST_CASE("a newline cannot be smuggled into the metadata") {
  Entry entry = sample_entry("a");
  entry.metadata.set("ptx_banner", "13.0\nregisters=1");
  const Result<Entry> back = decode_entry(encode_entry(entry));
  REQUIRE(back.ok());
  CHECK(back->metadata.find("registers") == "31");
  CHECK(back->metadata.find("ptx_banner") == "13.0 registers=1");
}

TEST_CASE("every flipped bit is refused") {
  std::string bytes = encode_entry(sample_entry("flip", 200));
  size_t accepted = 0;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    accepted += decode_entry(bytes).ok();
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  CHECK(accepted == 0);
  CHECK(decode_entry(bytes).ok());
}

TEST_CASE("every truncation, appended bytes and zeros are refused") {
  const std::string bytes = encode_entry(sample_entry("cut", 200));
  size_t accepted = 0;
  for (size_t length = 0; length < bytes.size(); ++length)
    accepted += decode_entry(std::string_view(bytes).substr(0, length)).ok();
  CHECK(accepted == 0);
  CHECK_FALSE(decode_entry(bytes + '\0').ok());
  CHECK_FALSE(decode_entry(bytes + bytes).ok());
  CHECK_FALSE(decode_entry(std::string(bytes.size(), '\0')).ok());
}

TEST_CASE("lengths that overflow are refused") {
  std::string bytes = encode_entry(sample_entry("overflow", 200));
  // Two lengths whose sum wraps round to that of the file.
  bytes[16 + 7] ^= static_cast<char>(0x80);
  bytes[24 + 7] ^= static_cast<char>(0x80);
  const Result<Entry> back = decode_entry(bytes);
  REQUIRE_FALSE(back.ok());
  CHECK(back.status().code() == Code::cache_io);
  CHECK(back.status().text().find("lengths") != std::string::npos);
}

TEST_CASE("a key that is not that of the text is refused") {
  Entry entry = sample_entry("liar");
  entry.key.digest.bytes[3] ^= 1;
  const Result<Entry> back = decode_entry(encode_entry(entry));
  REQUIRE_FALSE(back.ok());
  CHECK(back.status().text().find("key") != std::string::npos);
}

TEST_CASE("another version is named") {
  std::string bytes = encode_entry(sample_entry("newer"));
  bytes[8] = 2;
  CHECK(entry_version(bytes) == 2);
  CHECK(decode_entry(bytes).status().text().find("version 2") != std::string::npos);
  CHECK(entry_version("LATHE") == 0);
  CHECK(entry_version(std::string(96, 'x')) == 0);
}
