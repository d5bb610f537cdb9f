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
#include "cache/store/entry.h"

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

Status bad(const std::string& what) { return Status(Code::cache_io, "cache entry: " + what); }

Digest digest_at(std::string_view bytes, size_t at) {
  Digest out;
  std::memcpy(out.bytes.data(), bytes.data() + at, kDigestBytes);
  return out;
}

}  // namespace

std::string encode_entry(const Entry& entry) {
  const std::string_view parts[] = {entry.key.text, entry.metadata.lines(), entry.cubin, entry.ptx};
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
  Digester sum;
  sum.add_with_hole(out, kChecksumAt);
  std::memcpy(out.data() + kChecksumAt, sum.end().bytes.data(), kDigestBytes);
  return out;
}

uint32_t entry_version(std::string_view bytes) {
  if (bytes.size() < kHeaderBytesAt || bytes.substr(0, kMagic.size()) != kMagic) return 0;
  return static_cast<uint32_t>(get_number(bytes, kVersionAt, 4));
}

void keep_only(Keep keep, Entry& entry) {
  const auto leave_out = [&](std::string& part) {
    entry.partial = entry.partial || !part.empty();
    part = {};
  };
  if (keep != Keep::all) leave_out(entry.ptx);
  if (keep == Keep::no_code) leave_out(entry.cubin);
}

Result<Entry> decode_entry(std::string_view bytes, Keep keep) {
  EntryDecoder decoder(bytes.size(), keep);
  LATHE_TRY(decoder.add(bytes));
  return decoder.end();
}

EntryDecoder::EntryDecoder(uint64_t file_bytes, Keep keep) : file_bytes_(file_bytes), keep_(keep) {}

Status EntryDecoder::take_header(std::string_view bytes) {
  if (std::min<uint64_t>(bytes.size(), file_bytes_) < kEntryHeaderBytes)
    return bad(text("it has ", bytes.size(), " bytes, its header alone has ", kEntryHeaderBytes));
  if (bytes.substr(0, kMagic.size()) != kMagic) return bad("it does not begin with the magic");
  if (const uint32_t version = entry_version(bytes); version != kEntryVersion)
    return bad(text("format version ", version, ", known is ", kEntryVersion));
  if (const uint64_t header = get_number(bytes, kHeaderBytesAt, 4); header != kEntryHeaderBytes)
    return bad(text("header of ", header, " bytes, version 1 has ", kEntryHeaderBytes));

  // Each length is taken off what is left, so no sum can overflow.
  uint64_t left = file_bytes_ - kEntryHeaderBytes;
  for (size_t i = 0; i < 4; ++i) {
    missing_[i] = get_number(bytes, kLengthsAt + 8 * i, 8);
    if (missing_[i] > left) return bad("its lengths are more than the file holds");
    left -= missing_[i];
  }
  if (left != 0) return bad(text(left, " bytes follow its end"));
  if (bytes.substr(kReservedAt, kDigestBytes).find_first_not_of('\0') != bytes.npos)
    return bad("its reserved bytes are not zero");
  expected_key_ = digest_at(bytes, kKeyAt);
  expected_sum_ = digest_at(bytes, kChecksumAt);
  sum_.add_with_hole(bytes.substr(0, kEntryHeaderBytes), kChecksumAt);
  return {};
}

Status EntryDecoder::add(std::string_view bytes) {
  if (!begun_) {
    LATHE_TRY(take_header(bytes));
    begun_ = true;
    bytes.remove_prefix(kEntryHeaderBytes);
  }
  sum_.add(bytes);
  std::string* const parts[] = {&entry_.key.text, &metadata_,
                                keep_ == Keep::no_code ? nullptr : &entry_.cubin,
                                keep_ == Keep::all ? &entry_.ptx : nullptr};
  for (size_t i = 0; i < 4; ++i) {
    const std::string_view part = bytes.substr(0, missing_[i]);
    if (part.empty()) continue;
    if (parts[i] && parts[i]->empty()) parts[i]->reserve(missing_[i]);
    if (parts[i]) *parts[i] += part;
    if (!parts[i]) entry_.partial = true;
    missing_[i] -= part.size();
    bytes.remove_prefix(part.size());
  }
  if (!bytes.empty()) return bad(text(bytes.size(), " bytes follow its end"));
  return {};
}

Result<Entry> EntryDecoder::end() {
  if (!begun_) LATHE_TRY(take_header({}));
  uint64_t missing = 0;
  for (const uint64_t each : missing_) missing += each;
  if (missing != 0) return bad(text("it ends ", missing, " bytes early"));
  if (sum_.end() != expected_sum_) return bad("the checksum does not match");
  entry_.key.digest = digest(entry_.key.text);
  if (entry_.key.digest != expected_key_) return bad("its key is not that of its key text");
  auto metadata = Metadata::parse(std::move(metadata_));
  if (!metadata.ok()) return bad(metadata.status().text());
  entry_.metadata = std::move(*metadata);
  return std::move(entry_);
}

}  // namespace lathe
