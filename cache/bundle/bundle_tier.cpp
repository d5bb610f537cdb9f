// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A bundle as a tier. It stays the file that was opened, whatever is at its path later; only where
// a network file system has lost that file (ESTALE) it is opened anew, once for each look-up.
#include <atomic>
#include <mutex>
#include <set>

#include "cache/bundle/bundle.h"
#include "cache/tiers.h"
#include "codegen/base/log.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

class BundleTier : public ReadOnlyTier {
 public:
  BundleTier(const std::string& path, const FileSystem& fs) : path_(path), fs_(fs) {
    Result<std::shared_ptr<const Bundle>> bundle = Bundle::open(path, fs_);
    if (bundle.ok()) {
      bundle_ = std::move(*bundle);
    } else {
      problem_ = bundle.status().text() + "; it is not used";
      log_message(LogLevel::warning, problem_);
    }
  }
  const std::string& name() const override { return path_; }
  const std::string& problem() const override { return problem_; }
  Origin origin() const override { return Origin::bundle; }

  std::optional<Entry> get(const Key& key) override {
    Bundle::Found found;
    std::shared_ptr<const Bundle> bundle = current();
    for (int attempt = 0; bundle && attempt < 2; ++attempt) {
      const BundleItem* item = bundle->find(key.digest);
      found = item ? bundle->read(*item) : Bundle::Found();
      if (found.error != ESTALE || attempt > 0) break;
      bundle = reopen();
    }
    // Another text under the same 128 bits is another kernel.
    if (found.entry && found.entry->key.text == key.text) {
      ++hits_;
      return std::move(found.entry);
    }
    ++misses_;
    if (!found.entry && !found.why.empty()) complain(key, found);
    return std::nullopt;
  }

  std::vector<std::string> compilers() override {
    const auto bundle = current();
    return bundle ? bundle->information().compilers : std::vector<std::string>();
  }

  void compare(NearestKey& nearest) override {
    const auto bundle = current();
    if (!bundle) return;
    int left = NearestKey::kMostCompared;
    for (const BundleItem& item : bundle->items()) {
      const Bundle::Found found = bundle->read(item);
      if (found.entry) nearest.look_at(found.entry->key.text);
      if (--left == 0) return;
    }
  }

  std::string tuned(const std::string& gpu) override {
    const auto bundle = current();
    std::string out;
    if (!bundle) return out;
    const std::string prefix = gpu + " | ";
    for (const std::string& record : bundle->information().tuned)
      if (record.compare(0, prefix.size(), prefix) == 0) out += record.substr(prefix.size()) + "\n";
    return out;
  }

  StoreStat stat() override {
    StoreStat out;
    out.hits = hits_;
    out.misses = misses_;
    out.corrupt = corrupt_;
    if (const auto bundle = current()) {
      out.entries = bundle->items().size();
      out.bytes = bundle->bytes();
    }
    return out;
  }

  std::vector<Digest> keys() override {
    const auto bundle = current();
    return bundle ? bundle->keys() : std::vector<Digest>();
  }
  Result<Entry> read(const Digest& key) override {
    const auto bundle = current();
    return bundle ? bundle->read(key) : Status(Code::not_cached, problem_);
  }

 private:
  std::shared_ptr<const Bundle> current() {
    const std::lock_guard<std::mutex> guard(mutex_);
    return bundle_;
  }
  std::shared_ptr<const Bundle> reopen() {
    Result<std::shared_ptr<const Bundle>> bundle = Bundle::open(path_, fs_);
    const std::lock_guard<std::mutex> guard(mutex_);
    if (bundle.ok()) bundle_ = std::move(*bundle);
    return bundle_;
  }
  // Once for each entry, and once for each errno: that is one problem of the file.
  void complain(const Key& key, const Bundle::Found& found) {
    if (found.error == 0) ++corrupt_;
    const std::string name = key.digest.hex();
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (!warned_.insert(found.error ? found.why : name).second) return;
    }
    log_message(LogLevel::warning, text("entry ", name, " of bundle ", path_,
                                        " was bad and is passed over: ", found.why));
  }

  const std::string path_;
  const FileSystem fs_;
  std::string problem_;
  std::atomic<uint64_t> hits_{0}, misses_{0}, corrupt_{0};
  std::mutex mutex_;
  std::shared_ptr<const Bundle> bundle_;  // guarded by mutex_; null if refused
  std::set<std::string> warned_;          // guarded by mutex_
};

}  // namespace

std::shared_ptr<ReadOnlyTier> open_bundle_tier(const std::string& path, const FileSystem& fs) {
  return std::make_shared<BundleTier>(path, fs);
}

}  // namespace lathe
