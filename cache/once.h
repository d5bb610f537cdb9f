// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One computation per key in this process: the first caller computes, the others wait.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "codegen/base/digest.h"
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
    std::shared_ptr<Slot> slot;
    {
      std::unique_lock<std::mutex> guard(mutex_);
      std::shared_ptr<Slot>& found = table_[key];
      first = !found;
      if (first) found = std::make_shared<Slot>();
      slot = found;
      if (!first) {
        if (busy && !slot->result) {
          guard.unlock();
          busy();
          guard.lock();
        }
        computed_.wait(guard, [&] { return slot->result.has_value(); });
        return *slot->result;
      }
    }
    // The others must not wait for what never comes.
    Result<T> result = guarded(compute);
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (!result.ok()) table_.erase(key);
      slot->result = result;
    }
    computed_.notify_all();
    return result;
  }

  // Later callers get this value of a key that has been computed.
  void replace(const Digest& key, T value) {
    auto slot = std::make_shared<Slot>();
    slot->result = std::move(value);
    const std::lock_guard<std::mutex> guard(mutex_);
    table_[key] = std::move(slot);
  }

 private:
  struct Slot {
    std::optional<Result<T>> result;  // guarded by mutex_
  };
  std::mutex mutex_;
  std::condition_variable computed_;
  std::unordered_map<Digest, std::shared_ptr<Slot>, DigestHash> table_;
};

}  // namespace lathe
