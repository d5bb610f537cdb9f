// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The order of the tiers, and read-only directories: a directory of Store's layout, read as Store
// reads it.
#include "cache/tiers.h"

#include <algorithm>

#include "cache/store/store_state.h"
#include "codegen/base/env.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr size_t kMaxTunedBytes = 16 << 20;

class ReadOnlyDirectory : public ReadOnlyTier {
 public:
  ReadOnlyDirectory(const std::string& path, const FileSystem& fs)
      : store_(Store::open_read_only(path, fs)) {}
  const std::string& name() const override { return store_->root(); }
  const std::string& problem() const override { return store_->problem(); }
  Origin origin() const override { return Origin::disk; }
  std::optional<Entry> get(const Key& key) override { return store_->get(key); }
  std::vector<std::string> compilers() override { return store_->compilers(); }
  void compare(NearestKey& nearest) override { store_->compare(nearest); }
  std::string tuned(const std::string& gpu) override {
    return store_->read_text("tuned", gpu + ".txt", kMaxTunedBytes);
  }
  StoreStat stat() override { return store_->stat(); }
  std::vector<Digest> keys() override { return store_->keys(); }
  Result<Entry> read(const Digest& key) override { return store_->read(key); }

 private:
  std::shared_ptr<Store> store_;
};

// The paths of a colon-separated list, each once; empty ones are passed over.
std::vector<std::string> paths_of(const char* variable) {
  std::vector<std::string> out;
  std::string left = environment(variable).value_or("");
  while (!left.empty()) {
    const size_t colon = left.find(':');
    std::string path = left.substr(0, colon);
    left.erase(0, colon == left.npos ? colon : colon + 1);
    if (!path.empty() && std::find(out.begin(), out.end(), path) == out.end())
      out.push_back(std::move(path));
  }
  return out;
}

}  // namespace

const char* word(Origin origin) {
  switch (origin) {
    case Origin::compiler:
      return "compiler";
    case Origin::disk:
      return "disk";
    case Origin::memory:
      return "memory";
    case Origin::bundle:
      return "bundle";
  }
  return "?";
}

std::string ReadOnlyTier::nearest_difference(const Key& key) {
  NearestKey nearest(key.text);
  compare(nearest);
  return nearest.difference();
}

std::shared_ptr<ReadOnlyTier> open_read_only_directory(const std::string& path,
                                                       const FileSystem& fs) {
  return std::make_shared<ReadOnlyDirectory>(path, fs);
}

Tiers::Tiers(std::shared_ptr<Store> store, List read_only)
    : store_(std::move(store)), read_only_(std::move(read_only)) {}

std::shared_ptr<Tiers> Tiers::open(const std::string& root, const FileSystem& fs) {
  List read_only;
  auto store = Store::open(root, fs);
  for (const std::string& path : paths_of("LATHE_CACHE_READONLY"))
    read_only.push_back(open_read_only_directory(path, fs));
  for (const std::string& path : paths_of("LATHE_BUNDLES"))
    read_only.push_back(open_bundle_tier(path, fs));
  return std::make_shared<Tiers>(std::move(store), std::move(read_only));
}

std::optional<Tiers::Hit> Tiers::get(const Key& key, Keep keep) {
  if (auto entry = store_->get(key, false, keep)) return Hit{std::move(*entry), Origin::disk};
  for (const auto& tier : read_only_) {
    auto entry = tier->get(key);
    if (!entry) continue;
    keep_only(keep, *entry);
    return Hit{std::move(*entry), tier->origin()};
  }
  return std::nullopt;
}

std::vector<std::string> Tiers::compilers() {
  std::vector<std::string> out = store_->compilers();
  for (const auto& tier : read_only_) {
    for (std::string& identity : tier->compilers()) {
      if (std::find(out.begin(), out.end(), identity) == out.end())
        out.push_back(std::move(identity));
    }
  }
  return out;
}

std::string Tiers::nearest_difference(const Key& key) {
  NearestKey nearest(key.text);
  store_->compare(nearest);
  for (const auto& tier : read_only_) tier->compare(nearest);
  return nearest.difference();
}

std::string Tiers::names() {
  std::string out = store_->root().empty() ? "memory (" + store_->problem() + ")" : store_->root();
  for (const auto& tier : read_only_) {
    out += text(", ", tier->origin() == Origin::bundle ? "bundle " : "read-only ", tier->name());
    if (!tier->problem().empty()) out += " (refused: " + tier->problem() + ")";
  }
  return out;
}

std::vector<EntrySource*> Tiers::sources() {
  std::vector<EntrySource*> out = {store_.get()};
  for (const auto& tier : read_only_) out.push_back(tier.get());
  return out;
}

}  // namespace lathe
