// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The bytes of an entry, little-endian, version 1:
//
//   offset  size   field
//        0     8   magic "LATHE\r\n\x1a": a text-mode copy breaks it
//        8   4+4   format version = 1; header bytes = 96
//       16   8x4   byte lengths of key text, metadata, cubin, PTX
//       48    16   reserved, zero
//       64    16   key, canonical
//       80    16   XXH3-128 of the whole file with these 16 bytes zero, canonical
//       96         key text, metadata, cubin, PTX, in this order; the file ends there
#include "cache/entry.h"

#include <algorithm>
#include <cstring>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr std::string_view kMagic("LATHE\r\n\x1a", 8);
constexpr size_t kVersionAt = 8, kHeaderBytesAt = 12, kLengthsAt = 16, kReservedAt = 48;
constexpr size_t kKeyAt = 64, kChecksumAt = 80, kDigestBytes = 16;

void put_number(std::string& out, size_t at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out[at + i] = static_cast<char>(value >> (8 * i));
}

uint64_t get_number(std::string_view from, size_t at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= static_cast<uint64_t>(static_cast<uint8_t>(from[at + i])) << (8 * i);
  return value;
}

std::string metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string out;
  for (const auto& [name, value] : metadata) {
    const size_t from = out.size();
    out += name + "=" + value;
    // A compiler's banner is not ours to trust: one value, one line.
    std::replace(out.begin() + from, out.end(), '\n', ' ');
    out += '\n';
  }
  return out;
}

Status bad(const std::string& what) { return Status(Code::cache_io, "cache entry: " + what); }

Status parse_metadata(std::string_view lines, std::map<std::string, std::string>& out) {
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    const size_t equals = lines.find('=');
    if (end == lines.npos || equals == lines.npos || equals > end)
      return bad("the metadata holds a line that is not name=value");
    std::string name(lines.substr(0, equals));
    if (!out.empty() && name <= out.rbegin()->first) return bad("the metadata is not sorted");
    out.emplace(std::move(name), lines.substr(equals + 1, end - equals - 1));
    lines.remove_prefix(end + 1);
  }
  return {};
}

Digest checksum(std::string_view bytes) {
  static constexpr char kZeros[kDigestBytes] = {};
  return digest(bytes.substr(0, kChecksumAt), {kZeros, kDigestBytes},
                bytes.substr(kChecksumAt + kDigestBytes));
}

bool holds(std::string_view bytes, size_t at, const Digest& expected) {
  return std::memcmp(bytes.data() + at, expected.bytes.data(), kDigestBytes) == 0;
}

}  // namespace

std::string encode_entry(const Entry& entry) {
  const std::string metadata = metadata_text(entry.metadata);
  const std::string_view parts[] = {entry.key.text, metadata, entry.cubin, entry.ptx};
  size_t total = kEntryHeaderBytes;
  for (std::string_view part : parts) total += part.size();

  std::string out;
  out.reserve(total);
  out.assign(kEntryHeaderBytes, '\0');
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  put_number(out, kVersionAt, kEntryVersion, 4);
  put_number(out, kHeaderBytesAt, kEntryHeaderBytes, 4);
  for (size_t i = 0; i < 4; ++i) put_number(out, kLengthsAt + 8 * i, parts[i].size(), 8);
  std::memcpy(out.data() + kKeyAt, entry.key.digest.bytes.data(), kDigestBytes);
  for (std::string_view part : parts) out += part;
  std::memcpy(out.data() + kChecksumAt, checksum(out).bytes.data(), kDigestBytes);
  return out;
}

uint32_t entry_version(std::string_view bytes) {
  if (bytes.size() < kHeaderBytesAt || bytes.substr(0, kMagic.size()) != kMagic) return 0;
  return static_cast<uint32_t>(get_number(bytes, kVersionAt, 4));
}

Result<Entry> decode_entry(std::string_view bytes, bool with_ptx) {
  if (bytes.size() < kEntryHeaderBytes)
    return bad(text("it has ", bytes.size(), " bytes, its header alone has ", kEntryHeaderBytes));
  if (bytes.substr(0, kMagic.size()) != kMagic) return bad("it does not begin with the magic");
  if (const uint32_t version = entry_version(bytes); version != kEntryVersion)
    return bad(text("format version ", version, ", known is ", kEntryVersion));
  if (const uint64_t header = get_number(bytes, kHeaderBytesAt, 4); header != kEntryHeaderBytes)
    return bad(text("header of ", header, " bytes, version 1 has ", kEntryHeaderBytes));

  // Each length is taken off what is left, so no sum can overflow.
  uint64_t lengths[4], left = bytes.size() - kEntryHeaderBytes;
  for (size_t i = 0; i < 4; ++i) {
    lengths[i] = get_number(bytes, kLengthsAt + 8 * i, 8);
    if (lengths[i] > left) return bad("its lengths are more than the file holds");
    left -= lengths[i];
  }
  if (left != 0) return bad(text(left, " bytes follow its end"));
  if (bytes.substr(kReservedAt, kDigestBytes).find_first_not_of('\0') != bytes.npos)
    return bad("its reserved bytes are not zero");
  if (!holds(bytes, kChecksumAt, checksum(bytes))) return bad("the checksum does not match");

  std::string_view parts[4];
  size_t at = kEntryHeaderBytes;
  for (size_t i = 0; i < 4; at += lengths[i], ++i) parts[i] = bytes.substr(at, lengths[i]);
  Entry entry;
  entry.key.text = parts[0];
  entry.key.digest = digest(parts[0]);
  if (!holds(bytes, kKeyAt, entry.key.digest)) return bad("its key is not that of its key text");
  LATHE_TRY(parse_metadata(parts[1], entry.metadata));
  entry.cubin = parts[2];
  if (with_ptx) entry.ptx = parts[3];
  entry.without_ptx = !with_ptx && !parts[3].empty();
  return entry;
}

}  // namespace lathe
