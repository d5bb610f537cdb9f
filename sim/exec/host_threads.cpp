// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/exec/host_threads.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace sim {
namespace {

struct Job {
  const std::function<void(uint64_t)>* f = nullptr;
  uint64_t next = 1, count = 0;
  std::atomic<uint64_t> running{0};
  std::condition_variable done;
};

// Never destroyed: its threads may outlive static destructors.
class Pool {
 public:
  static Pool& get() {
    static Pool& pool = *new Pool;
    return pool;
  }

  void start(Job& job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
    wanted_ += job.count - 1;
    try {
      for (; idle_ < wanted_; ++idle_) std::thread([this] { serve(); }).detach();
    } catch (const std::system_error&) {
      // Fewer then: what nobody takes is left out.
    }
    for (uint64_t k = 1; k < job.count; ++k) work_.notify_one();
  }

  void finish(Job& job) {
    std::unique_lock lock(mutex_);
    if (job.next < job.count) {
      wanted_ -= job.count - job.next;
      std::erase(jobs_, &job);
    }
    // Others mostly end about now; sleeping would take longer.
    lock.unlock();
    for (int k = 0; k < 100 && job.running; ++k) std::this_thread::yield();
    lock.lock();
    job.done.wait(lock, [&] { return job.running == 0; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return !jobs_.empty(); });
      Job& job = *jobs_.front();
      const uint64_t mine = job.next++;
      if (job.next == job.count) jobs_.pop_front();
      --wanted_;
      --idle_;
      ++job.running;
      lock.unlock();
      (*job.f)(mine);
      lock.lock();
      ++idle_;
      if (--job.running == 0) job.done.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Job*> jobs_;  // that want more threads
  uint64_t wanted_ = 0;    // by all of them
  uint64_t idle_ = 0;      // threads, those included that have not come up yet
};

}  // namespace

void run_together(uint64_t count, const std::function<void(uint64_t)>& f) {
  if (count < 2) return f(0);
  Job job;
  job.f = &f;
  job.count = count;
  Pool::get().start(job);
  f(0);
  Pool::get().finish(job);
}

}  // namespace sim
