// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes bundles. Whatever the bytes: a head is refused with a reason, or encodes to
// the very same bytes; a file is refused, or gives entries under their own keys. Each input is
// looked at as it is, with the checksum that its head should have, and as the parts of a good
// bundle.

#include <algorithm>
#include <cstring>
#include <set>

#include "cache/bundle/bundle.h"
#include "tests/fuzz/memory_file.h"

using namespace lathe;

namespace {

constexpr size_t kChecksumAt = 48, kDigestBytes = 16;

void check_refusal(const Status& status) {
  FUZZ_CHECK(status.code() == Code::invalid_argument);
  FUZZ_CHECK(!status.text().empty());
}

void check_head(std::string_view bytes) {
  const Result<uint64_t> length = head_bytes(bytes.substr(0, kBundleHeaderBytes), bytes.size());
  if (!length.ok()) return check_refusal(length.status());
  FUZZ_CHECK(*length <= bytes.size());
  const std::string_view head = bytes.substr(0, static_cast<size_t>(*length));
  const Result<BundleHead> decoded = decode_head(head, bytes.size());
  if (!decoded.ok()) return check_refusal(decoded.status());
  FUZZ_CHECK(encode_head(decoded->information, decoded->items) == head);
  uint64_t end = *length;
  for (const BundleItem& item : decoded->items) {
    FUZZ_CHECK(item.offset == end);
    end += item.length;
  }
  FUZZ_CHECK(end == bytes.size());
}

void check_file(std::string_view bytes) {
  const fuzz::MemoryFile file(bytes);
  const auto bundle = Bundle::open(file.path());
  if (!bundle.ok()) return check_refusal(bundle.status());
  FUZZ_CHECK((*bundle)->bytes() == bytes.size());
  for (const BundleItem& item : (*bundle)->items()) {
    FUZZ_CHECK((*bundle)->find(item.key) == &item);
    const Bundle::Found found = (*bundle)->read(item);
    FUZZ_CHECK(found.entry ? found.entry->key.digest == item.key : !found.why.empty());
  }
}

// With the checksum of its own head, if it has one.
std::string signed_again(std::string_view bytes) {
  std::string out(bytes);
  const Result<uint64_t> length = head_bytes(bytes.substr(0, kBundleHeaderBytes), bytes.size());
  if (!length.ok()) return out;
  out.replace(kChecksumAt, kDigestBytes, kDigestBytes, '\0');
  const Digest sum = digest(std::string_view(out).substr(0, static_cast<size_t>(*length)));
  std::memcpy(&out[kChecksumAt], sum.bytes.data(), kDigestBytes);
  return out;
}

// A bundle of entries and information as the input cuts them.
void check_whole(std::string_view input) {
  std::set<std::string> archs, tuned;
  std::vector<Entry> entries;
  while (!input.empty() && entries.size() < 8) {
    Entry entry;
    entry.key.text = fuzz::take(input, fuzz::take_number(input, 1));
    entry.key.digest = digest(entry.key.text);
    entry.cubin = fuzz::take(input, fuzz::take_number(input, 1));
    std::string line(fuzz::take(input, fuzz::take_number(input, 1) % 16));
    line.erase(std::remove(line.begin(), line.end(), '\n'), line.end());
    (entries.size() % 2 ? archs : tuned).insert(line);
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.key.digest.bytes < b.key.digest.bytes; });
  entries.erase(
      std::unique(entries.begin(), entries.end(),
                  [](const Entry& a, const Entry& b) { return a.key.text == b.key.text; }),
      entries.end());
  BundleInformation information;
  information.archs.assign(archs.begin(), archs.end());
  information.tuned.assign(tuned.begin(), tuned.end());
  std::vector<BundleItem> items;
  std::string bodies;
  for (const Entry& entry : entries) {
    const std::string body = encode_entry(entry);
    items.push_back({entry.key.digest, 0, body.size()});
    bodies += body;
  }
  const fuzz::MemoryFile file(encode_head(information, items) + bodies);
  const auto bundle = Bundle::open(file.path());
  FUZZ_CHECK(bundle.ok());
  FUZZ_CHECK((*bundle)->information().archs == information.archs);
  FUZZ_CHECK((*bundle)->information().tuned == information.tuned);
  FUZZ_CHECK((*bundle)->items().size() == entries.size());
  for (const Entry& entry : entries) {
    const Result<Entry> found = (*bundle)->read(entry.key.digest);
    FUZZ_CHECK(found.ok() && found->key.text == entry.key.text && found->cubin == entry.cubin);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::as_text(data, size);
  const std::string signed_bytes = signed_again(input);
  for (const std::string_view bytes : {input, std::string_view(signed_bytes)}) {
    check_head(bytes);
    check_file(bytes);
  }
  check_whole(input);
  return 0;
}
