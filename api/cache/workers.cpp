// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A crew grows by one thread whenever one of it gets busy and work is left.
#include "api/cache/workers.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace lathe {
namespace {

// Threads beyond the callers' own, of all crews of this process.
std::atomic<int> helpers_of_process{0};

// Takes one of the process's helpers if there are fewer than `most`.
bool take_helper(int most) {
  int now = helpers_of_process.load();
  while (now < most) {
    if (helpers_of_process.compare_exchange_weak(now, now + 1)) return true;
  }
  return false;
}

class Crew {
 public:
  Crew(size_t count, int most, const std::function<bool(size_t, const Busy&)>& work)
      : count_(count), most_(most), work_(work), busy_([this] { grow(); }) {}

  void run() {
    take_items();
    // A helper may still add others; none is added once the items are gone.
    for (size_t joined = 0;; ++joined) {
      pthread_t thread;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (joined == helpers_.size()) return;
        thread = helpers_[joined];
      }
      pthread_join(thread, nullptr);
      --helpers_of_process;
    }
  }

 private:
  void take_items() {
    for (;;) {
      size_t item;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (stopped_ || next_ == count_) return;
        item = next_++;
      }
      if (work_(item, busy_)) continue;
      const std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
  }

  void grow() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_ || next_ == count_) return;
    if (most_ == 0) most_ = workers_allowed(machine_texts());
    const int helpers = static_cast<int>(helpers_.size());
    helpers_.reserve(helpers_.size() + 1);
    if (helpers + 1 >= most_ || !take_helper(most_ - 1)) return;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kWorkerStackBytes);
    pthread_t thread;
    const auto body = [](void* crew) -> void* {
      static_cast<Crew*>(crew)->take_items();
      return nullptr;
    };
    if (pthread_create(&thread, &attributes, body, this) == 0) {
      helpers_.push_back(thread);
    } else {
      --helpers_of_process;  // then those that there are do it
    }
    pthread_attr_destroy(&attributes);
  }

  const size_t count_;
  int most_;
  const std::function<bool(size_t, const Busy&)>& work_;
  const Busy busy_;
  std::mutex mutex_;
  size_t next_ = 0;
  bool stopped_ = false;
  std::vector<pthread_t> helpers_;
};

}  // namespace

void work_through(size_t count, int most, const std::function<bool(size_t, const Busy&)>& work) {
  Crew(count, most, work).run();
}

}  // namespace lathe
