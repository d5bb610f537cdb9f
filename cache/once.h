// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One computation per key in this process: the first caller computes, the others wait.
#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <unordered_map>

#include "codegen/base/digest.h"
#include "codegen/base/guarded.h"
#include "codegen/base/status.h"

namespace lathe {

struct DigestHash {
  size_t operator()(const Digest& of) const {
    size_t out;
    std::memcpy(&out, of.bytes.data(), sizeof out);
    return out;
  }
};

// A failure goes to all who wait for it and is then forgotten.
template <typename T>
class Once {
 public:
  // compute() -> Result<T>. `first` tells whether this caller was the one who computed; `busy` is
  // called before waiting for another who does.
  template <typename Compute>
  Result<T> get(const Digest& key, bool& first, Compute compute,
                const std::function<void()>& busy = {}) {
    std::promise<Result<T>> promise;
    std::shared_future<Result<T>> future;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      const auto found = table_.find(key);
      first = found == table_.end();
      future = first ? promise.get_future().share() : found->second;
      if (first) table_.emplace(key, future);
    }
    if (!first) {
      if (busy && future.wait_for(std::chrono::seconds(0)) != std::future_status::ready) busy();
      return future.get();
    }
    // The others must not wait on a broken promise.
    Result<T> result = guarded(compute);
    if (!result.ok()) {
      const std::lock_guard<std::mutex> guard(mutex_);
      table_.erase(key);
    }
    promise.set_value(result);
    return result;
  }

  // What later callers get of a key that has been computed.
  void replace(const Digest& key, T value) {
    std::promise<Result<T>> promise;
    promise.set_value(std::move(value));
    const std::lock_guard<std::mutex> guard(mutex_);
    table_.insert_or_assign(key, promise.get_future().share());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Digest, std::shared_future<Result<T>>, DigestHash> table_;
};

}  // namespace lathe
