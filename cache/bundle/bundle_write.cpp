// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writing bundles: entries are read twice, once for the head and once to be copied, so that a
// bundle of any size needs the memory of one entry.
#include <algorithm>
#include <map>
#include <set>

#include "cache/bundle/bundle.h"
#include "cache/nearest.h"
#include "cache/store/new_file.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

// One entry to be written: where it comes from, and what it was when it was looked at.
struct Chosen {
  Digest key;
  EntrySource* from = nullptr;
  uint64_t length = 0;
  Digest content;
};

// Keys with the first source that has each, ascending.
std::vector<Chosen> choose_all(const std::vector<EntrySource*>& sources) {
  std::map<std::array<uint8_t, 16>, EntrySource*> first;
  for (EntrySource* source : sources)
    for (const Digest& key : source->keys()) first.emplace(key.bytes, source);
  std::vector<Chosen> out;
  for (const auto& [bytes, source] : first) out.push_back({Digest{bytes}, source, 0, {}});
  return out;
}

Result<std::vector<Chosen>> choose_some(const std::vector<EntrySource*>& sources,
                                        std::vector<Digest> keys) {
  std::sort(keys.begin(), keys.end(),
            [](const Digest& a, const Digest& b) { return a.bytes < b.bytes; });
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<Chosen> out;
  for (const Digest& key : keys) {
    Status why(Code::not_cached, "there is no cache");
    Chosen chosen{key, nullptr, 0, {}};
    for (EntrySource* source : sources) {
      const Result<Entry> entry = source->read(key);
      if (entry.ok()) {
        chosen.from = source;
        break;
      }
      // The user learns more from damage in one tier than from absence in another.
      if (why.code() == Code::not_cached) why = entry.status();
    }
    if (!chosen.from)
      return Status(why.code(), text("entry ", key.hex(), " cannot be packed: ", why.text()));
    out.push_back(chosen);
  }
  return out;
}

// Looks at each entry: what the head says of it. Entries that cannot be read go, and are told.
BundleHead read_head(std::vector<Chosen>& chosen, const std::vector<std::string>& tuned,
                     BundleReport& report) {
  std::set<std::string> archs, compilers;
  BundleHead head;
  std::vector<Chosen> good;
  for (Chosen& each : chosen) {
    const Result<Entry> entry = each.from->read(each.key);
    if (!entry.ok()) {
      ++report.bad;
      report.problems += each.key.hex() + ": " + entry.status().text() + "\n";
      continue;
    }
    const std::string bytes = encode_entry(*entry);
    each.length = bytes.size();
    each.content = digest(bytes);
    archs.emplace(value_of(entry->key.text, "arch"));
    compilers.emplace(value_of(entry->key.text, "compiler"));
    head.items.push_back({each.key, 0, each.length});
    good.push_back(each);
  }
  chosen = std::move(good);
  head.information.archs.assign(archs.begin(), archs.end());
  head.information.compilers.assign(compilers.begin(), compilers.end());
  head.information.tuned = unite_tuned(tuned);
  return head;
}

Result<BundleReport> write_bundle(const std::string& path, std::vector<Chosen> chosen,
                                  const std::vector<std::string>& tuned, const FileSystem& fs,
                                  bool all_of_them) {
  BundleReport report;
  const BundleHead head = read_head(chosen, tuned, report);
  if (all_of_them && report.bad > 0)
    return Status(Code::cache_io, text("bundle ", path, " was not written: ", report.bad,
                                       " entries changed meanwhile; try again"));
  NewFile file("bundle", path, fs);
  LATHE_TRY(file.create());
  const std::string bytes = encode_head(head.information, head.items);
  LATHE_TRY(file.write(bytes));
  report.bytes = bytes.size();
  for (const Chosen& each : chosen) {
    const Result<Entry> entry = each.from->read(each.key);
    const std::string content = entry.ok() ? encode_entry(*entry) : std::string();
    // Evicted, or built anew by somebody else since.
    if (content.size() != each.length || !(digest(content) == each.content))
      return Status(Code::cache_io, text("bundle ", path, " was not written: entry ",
                                         each.key.hex(), " changed meanwhile; try again"));
    LATHE_TRY(file.write(content));
    ++report.entries;
    report.bytes += content.size();
  }
  LATHE_TRY(file.put_in_place());
  return report;
}

class MergeSource : public EntrySource {
 public:
  explicit MergeSource(std::shared_ptr<const Bundle> bundle) : bundle_(std::move(bundle)) {}
  const Bundle& bundle() const { return *bundle_; }
  std::vector<Digest> keys() override { return bundle_->keys(); }
  Result<Entry> read(const Digest& key) override { return bundle_->read(key); }

 private:
  std::shared_ptr<const Bundle> bundle_;
};

// Returns the source to take of two that have one key, or an error if their code differs. Compile
// time and date may differ between equal kernels. The smaller bytes are taken then, so that the
// order in which bundles are named does not show in the result.
Result<EntrySource*> resolve_conflict(const Digest& key, MergeSource* one, MergeSource* other) {
  const Result<Entry> a = one->read(key), b = other->read(key);
  if (!a.ok()) return static_cast<EntrySource*>(b.ok() ? other : one);
  if (!b.ok()) return static_cast<EntrySource*>(one);
  if (a->key.text != b->key.text || a->cubin != b->cubin || a->ptx != b->ptx)
    return Status(Code::invalid_argument,
                  text("entry ", key.hex(), " differs between the bundles ", one->bundle().path(),
                       " and ", other->bundle().path(), "; nothing was written"));
  return static_cast<EntrySource*>(encode_entry(*b) < encode_entry(*a) ? other : one);
}

}  // namespace

Result<BundleReport> pack_bundle(const std::string& path, const std::vector<EntrySource*>& sources,
                                 const std::vector<Digest>* keys,
                                 const std::vector<std::string>& tuned, const FileSystem& fs) {
  if (!keys) return write_bundle(path, choose_all(sources), tuned, fs, false);
  LATHE_ASSIGN(std::vector<Chosen> chosen, choose_some(sources, *keys));
  return write_bundle(path, std::move(chosen), tuned, fs, true);
}

Result<BundleReport> merge_bundles(const std::string& path, const std::vector<std::string>& from,
                                   const FileSystem& fs) {
  std::vector<std::unique_ptr<MergeSource>> sources;
  std::vector<std::string> tuned;
  for (const std::string& each : from) {
    LATHE_ASSIGN(std::shared_ptr<const Bundle> bundle, Bundle::open(each, fs));
    const std::vector<std::string>& more = bundle->information().tuned;
    tuned.insert(tuned.end(), more.begin(), more.end());
    sources.push_back(std::make_unique<MergeSource>(std::move(bundle)));
  }
  std::map<std::array<uint8_t, 16>, MergeSource*> chosen;
  for (const auto& source : sources) {
    for (const Digest& key : source->keys()) {
      const auto [at, fresh] = chosen.emplace(key.bytes, source.get());
      if (fresh) continue;
      LATHE_ASSIGN(EntrySource * taken, resolve_conflict(key, at->second, source.get()));
      at->second = static_cast<MergeSource*>(taken);
    }
  }
  std::vector<Chosen> list;
  for (const auto& [bytes, source] : chosen) list.push_back({Digest{bytes}, source, 0, {}});
  return write_bundle(path, std::move(list), tuned, fs, false);
}

}  // namespace lathe
