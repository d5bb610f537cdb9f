// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A bundle: many entries in one file, which is opened in place and read entry by entry. The same
// entries make the same bytes. Format version 1, little-endian, without gaps:
//
//   offset  size   field
//        0     8   magic "LATHB\r\n\x1a": a text-mode copy breaks it
//        8   4+4   format version = 1; header bytes = 64
//       16     8   n, the number of entries
//       24     8   i, the bytes of the information text
//       32    16   reserved, zero
//       48    16   XXH3-128 of the first 64 + i + 32 n bytes with these 16 bytes zero, canonical
//       64     i   information: sorted lines `arch=`, `compiler=` and `tuned=`, none twice
//            32 n  index: key (16, canonical), offset (8), length (8); keys ascend
//                  the entries as the cache has them (entry.h), in this order; the file ends there
//
// A file that breaks any of this is refused as a whole. The inside of an entry is checked when it
// is read, by the entry's own checksum.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/directory.h"
#include "cache/store/entry.h"
#include "cache/store/entry_source.h"
#include "cache/store/fs.h"
#include "cache/store/store.h"

namespace lathe {

inline constexpr uint32_t kBundleVersion = 1;
inline constexpr size_t kBundleHeaderBytes = 64;

struct BundleItem {
  Digest key;
  uint64_t offset = 0, length = 0;
};

// These facts hold for all entries of a bundle. `tuned`: see tiers.h.
struct BundleInformation {
  std::vector<std::string> archs, compilers, tuned;  // each sorted, none twice
};

// The head of a bundle: everything before the entries.
struct BundleHead {
  BundleInformation information;
  std::vector<BundleItem> items;
};
std::string encode_head(const BundleInformation& information, std::vector<BundleItem> items);
// How many bytes the head has, from its first kBundleHeaderBytes. `file_bytes`: of the whole file.
Result<uint64_t> head_bytes(std::string_view header, uint64_t file_bytes);
Result<BundleHead> decode_head(std::string_view head, uint64_t file_bytes);

// An opened bundle. Immutable, so any thread may read.
class Bundle {
 public:
  // INVALID_ARGUMENT and the reason for what is no bundle or may not be trusted, CACHE_IO for what
  // cannot be read.
  static Result<std::shared_ptr<const Bundle>> open(const std::string& path,
                                                    const FileSystem& fs = real_fs());
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  const BundleInformation& information() const { return head_.information; }
  const std::vector<BundleItem>& items() const { return head_.items; }
  const BundleItem* find(const Digest& key) const;

  // Why an entry could not be had: an errno, or 0 and what is wrong with its bytes.
  struct Found {
    std::optional<Entry> entry;
    std::string why;
    int error = 0;
  };
  Found read(const BundleItem& item) const;
  // As an EntrySource.
  std::vector<Digest> keys() const;
  Result<Entry> read(const Digest& key) const;

 private:
  explicit Bundle(const FileSystem& fs) : fs_(fs) {}
  FileSystem fs_;  // a copy, as in Store
  std::string path_;
  Descriptor file_;
  uint64_t bytes_ = 0;
  BundleHead head_;
};

// ---- writing (bundle_write.cpp) ----

struct BundleReport {
  uint64_t entries = 0, bytes = 0;  // of the bundle, or of what was looked at
  uint64_t added = 0, present = 0;  // by unpacking: published, and there before
  uint64_t bad = 0;                 // entries that were damaged and left out
  std::string problems;             // a line for each of them
};

// Entries of `sources` into a new file that takes the place of `path`; the first source that has a
// key gives it. `keys` null: all there are, without the damaged; otherwise these, and one that is
// missing is NOT_CACHED. `tuned`: records for the information. Entries are read twice; what differs
// the second time is CACHE_IO. Until the end nothing is at `path` but what was.
Result<BundleReport> pack_bundle(const std::string& path, const std::vector<EntrySource*>& sources,
                                 const std::vector<Digest>* keys,
                                 const std::vector<std::string>& tuned,
                                 const FileSystem& fs = real_fs());

// The union of `from`. Two payloads under one key are INVALID_ARGUMENT, which names it.
Result<BundleReport> merge_bundles(const std::string& path, const std::vector<std::string>& from,
                                   const FileSystem& fs = real_fs());

// Publishes what `store` lacks. CACHE_IO if it did not take an entry.
Result<BundleReport> unpack_bundle(const Bundle& bundle, Store& store);

// A tuned choice in a bundle is "<gpu> | " and the record's text (tuned.h). Among those that say
// the same of the same the better one, sorted: the order in which they come does not show.
std::vector<std::string> unite_tuned(const std::vector<std::string>& records);

}  // namespace lathe
