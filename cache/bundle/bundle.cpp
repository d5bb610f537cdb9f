// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reading bundles: see bundle.h for the format. The head is read and checked as a whole, once.
#include "cache/bundle/bundle.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "cache/nearest.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr std::string_view kMagic("LATHB\r\n\x1a", 8);
constexpr size_t kVersionAt = 8, kHeaderBytesAt = 12, kCountAt = 16, kInformationAt = 24;
constexpr size_t kReservedAt = 32, kChecksumAt = 48, kDigestBytes = 16;
constexpr size_t kItemBytes = 32, kOffsetAt = 16, kLengthAt = 24;
// Refused before memory is asked for: our heads have some KB.
constexpr uint64_t kMaxHeadBytes = uint64_t{256} << 20;

void put_number(char* out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out[i] = static_cast<char>(value >> (8 * i));
}

uint64_t get_number(const char* from, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= static_cast<uint64_t>(static_cast<uint8_t>(from[i])) << (8 * i);
  return value;
}

Digest checksum(std::string_view head) {
  Digester sum;
  sum.add_with_hole(head, kChecksumAt);
  return sum.end();
}

Status bad(const std::string& what) { return Status(Code::invalid_argument, what); }

// Lines of one name stand together, in the order of names, and each list is sorted: so there is one
// text for one meaning.
Status parse_information(std::string_view from, BundleInformation& out) {
  if (!from.empty() && from.back() != '\n') return bad("the information does not end in a newline");
  std::string_view last;
  for (std::string_view line : lines_of(from)) {
    if (!last.empty() && line <= last) return bad("the information is not sorted");
    last = line;
    const size_t equals = line.find('=');
    const std::string_view name = line.substr(0, equals);
    auto* list = name == "arch"       ? &out.archs
                 : name == "compiler" ? &out.compilers
                 : name == "tuned"    ? &out.tuned
                                      : nullptr;
    if (equals == line.npos || !list)
      return bad("the information holds a line other than arch=, compiler= and tuned=");
    list->emplace_back(line.substr(equals + 1));
  }
  return {};
}

// Why the opened file may not be used; empty if it may. Whose link led to it does not matter.
std::string distrust(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "is not a regular file";
  if (!is_owner(status, Trust::user_and_root))
    return text("belongs to user ", status.st_uid, ", neither to ", geteuid(), " nor to root");
  if (status.st_mode & (S_IWGRP | S_IWOTH)) {
    char mode[8];
    const auto end = std::to_chars(mode, mode + sizeof(mode), status.st_mode & 07777, 8);
    return text("has mode 0", std::string(mode, end.ptr),
                ", which lets others write code into it (remedy: chmod go-w)");
  }
  return {};
}

}  // namespace

std::string encode_head(const BundleInformation& information, std::vector<BundleItem> items) {
  std::string out(kBundleHeaderBytes, '\0');
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  put_number(&out[kVersionAt], kBundleVersion, 4);
  put_number(&out[kHeaderBytesAt], kBundleHeaderBytes, 4);
  put_number(&out[kCountAt], items.size(), 8);
  for (const std::string& value : information.archs) out += "arch=" + value + "\n";
  for (const std::string& value : information.compilers) out += "compiler=" + value + "\n";
  for (const std::string& value : information.tuned) out += "tuned=" + value + "\n";
  put_number(&out[kInformationAt], out.size() - kBundleHeaderBytes, 8);
  uint64_t offset = out.size() + kItemBytes * items.size();
  for (BundleItem& item : items) {
    item.offset = offset;
    offset += item.length;
    char bytes[kItemBytes];
    std::memcpy(bytes, item.key.bytes.data(), kDigestBytes);
    put_number(bytes + kOffsetAt, item.offset, 8);
    put_number(bytes + kLengthAt, item.length, 8);
    out.append(bytes, kItemBytes);
  }
  std::memcpy(&out[kChecksumAt], checksum(out).bytes.data(), kDigestBytes);
  return out;
}

Result<uint64_t> head_bytes(std::string_view header, uint64_t file_bytes) {
  const uint64_t there = std::min<uint64_t>(header.size(), file_bytes);
  if (there < kBundleHeaderBytes)
    return bad(text("it has ", there, " bytes, a bundle's header alone has ", kBundleHeaderBytes));
  if (header.substr(0, kMagic.size()) != kMagic)
    return bad("it does not begin with a bundle's magic");
  if (const uint64_t version = get_number(&header[kVersionAt], 4); version != kBundleVersion)
    return bad(text("bundle version ", version, ", known is ", kBundleVersion));
  if (const uint64_t bytes = get_number(&header[kHeaderBytesAt], 4); bytes != kBundleHeaderBytes)
    return bad(text("header of ", bytes, " bytes, version 1 has ", kBundleHeaderBytes));
  if (header.substr(kReservedAt, kDigestBytes).find_first_not_of('\0') != header.npos)
    return bad("its reserved bytes are not zero");
  const uint64_t most = std::min(kMaxHeadBytes, file_bytes) - kBundleHeaderBytes;
  const uint64_t information = get_number(&header[kInformationAt], 8);
  const uint64_t count = get_number(&header[kCountAt], 8);
  if (information > most || count > (most - information) / kItemBytes)
    return bad(text("its index of ", count, " entries and information of ", information,
                    " bytes are more than it holds"));
  return kBundleHeaderBytes + information + kItemBytes * count;
}

Result<BundleHead> decode_head(std::string_view head, uint64_t file_bytes) {
  LATHE_ASSIGN(const uint64_t bytes, head_bytes(head.substr(0, kBundleHeaderBytes), file_bytes));
  if (head.size() != bytes)
    return bad(text("its head has ", head.size(), " bytes in place of ", bytes));
  if (std::memcmp(&head[kChecksumAt], checksum(head).bytes.data(), kDigestBytes) != 0)
    return bad("the checksum of its index does not match");
  const size_t information = static_cast<size_t>(get_number(&head[kInformationAt], 8));
  BundleHead out;
  LATHE_TRY(parse_information(head.substr(kBundleHeaderBytes, information), out.information));
  head.remove_prefix(kBundleHeaderBytes + information);
  uint64_t at = bytes;
  for (; !head.empty(); head.remove_prefix(kItemBytes)) {
    BundleItem item;
    std::memcpy(item.key.bytes.data(), head.data(), kDigestBytes);
    item.offset = get_number(&head[kOffsetAt], 8);
    item.length = get_number(&head[kLengthAt], 8);
    const std::string name = "entry " + item.key.hex();
    if (!out.items.empty() && item.key.bytes <= out.items.back().key.bytes)
      return bad(name + " is twice in the index, or out of order");
    if (item.offset != at)
      return bad(text(name, " begins at byte ", item.offset, ", the one before ends at ", at));
    if (item.length < kEntryHeaderBytes || item.length > kMaxEntryBytes ||
        item.length > file_bytes - at)
      return bad(text(name, " of ", item.length, " bytes is not in the file: it was cut"));
    at += item.length;
    out.items.push_back(item);
  }
  if (at != file_bytes) return bad(text(file_bytes - at, " bytes follow its end"));
  return out;
}

Result<std::shared_ptr<const Bundle>> Bundle::open(const std::string& path, const FileSystem& fs) {
  const auto refused = [&](const std::string& why) { return bad("bundle " + path + " " + why); };
  const auto unreadable = [&](const char* step, int error) {
    const Code code = error == ENOENT || error == ENOTDIR ? Code::invalid_argument : Code::cache_io;
    return Status(code, text("bundle ", path, " cannot be ", step, ": ", reason(error)));
  };
  std::shared_ptr<Bundle> bundle(new Bundle(fs));
  // A FIFO must not hang us.
  Opened opened = open_at(bundle->fs_, AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!opened) return unreadable("opened", opened.error);
  struct stat status = {};
  if (uninterrupted([&] { return fs.fstat(opened.fd(), &status); }) != 0)
    return unreadable("examined", errno);
  if (std::string why = distrust(status); !why.empty()) return refused(why);
  bundle->bytes_ = static_cast<uint64_t>(status.st_size);

  std::string head;
  if (const int error = read_all_at(fs, opened.fd(), 0, kBundleHeaderBytes, head))
    return unreadable("read", error);
  const Result<uint64_t> bytes = head_bytes(head, bundle->bytes_);
  if (!bytes.ok()) return refused("is refused: " + bytes.status().text());
  if (const int error = read_all_at(fs, opened.fd(), 0, static_cast<size_t>(*bytes), head))
    return unreadable("read", error);
  Result<BundleHead> decoded = decode_head(head, bundle->bytes_);
  if (!decoded.ok()) return refused("is refused: " + decoded.status().text());
  bundle->path_ = path;
  bundle->file_ = Descriptor(bundle->fs_, opened.file.release());
  bundle->head_ = std::move(*decoded);
  return std::shared_ptr<const Bundle>(std::move(bundle));
}

const BundleItem* Bundle::find(const Digest& key) const {
  const auto found = std::lower_bound(
      head_.items.begin(), head_.items.end(), key,
      [](const BundleItem& item, const Digest& sought) { return item.key.bytes < sought.bytes; });
  return found != head_.items.end() && found->key == key ? &*found : nullptr;
}

Bundle::Found Bundle::read(const BundleItem& item) const {
  Found found;
  std::string bytes;
  found.error = read_all_at(fs_, file_.get(), item.offset, static_cast<size_t>(item.length), bytes);
  if (found.error != 0) {
    found.why = reason(found.error);
    return found;
  }
  Result<Entry> entry = decode_entry(bytes);
  if (!entry.ok()) {
    found.why = entry.status().text();
  } else if (!(entry->key.digest == item.key)) {
    found.why = "it holds another key than the index says";
  } else {
    found.entry = std::move(*entry);
  }
  return found;
}

std::vector<Digest> Bundle::keys() const {
  std::vector<Digest> out;
  for (const BundleItem& item : head_.items) out.push_back(item.key);
  return out;
}

Result<Entry> Bundle::read(const Digest& key) const {
  const BundleItem* item = find(key);
  if (!item) return Status(Code::not_cached, "no such entry");
  Found found = read(*item);
  if (found.entry) return std::move(*found.entry);
  return Status(Code::cache_io, path_ + ": " + found.why);
}

}  // namespace lathe
