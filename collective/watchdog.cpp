// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the watchdog's thread and its sleep.
#include "collective/watchdog.h"

#include <pthread.h>
#include <semaphore.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace lathe {
namespace {

constexpr auto kPause = std::chrono::milliseconds(5);

struct Watchdog {
  std::mutex mutex;
  std::vector<std::shared_ptr<WatchEntry>> entries;
  std::atomic<bool> asleep{false};
  sem_t bell;
  Watchdog() { sem_init(&bell, 0, 0); }
};

std::vector<std::shared_ptr<WatchEntry>> entries_of(Watchdog& dog) {
  const std::lock_guard lock(dog.mutex);
  return dog.entries;
}

bool look_at_all(Watchdog& dog) {
  bool busy = false, ended = false;
  const auto now = Watched::Clock::now();
  for (const auto& entry : entries_of(dog)) {
    const std::lock_guard lock(entry->mutex);
    if (entry->what == nullptr) {
      ended = true;
    } else if (entry->what->inspect(now)) {
      busy = true;
    }
  }
  if (!ended) return busy;
  const std::lock_guard lock(dog.mutex);
  std::erase_if(dog.entries, [](const auto& entry) {
    const std::lock_guard held(entry->mutex);
    return entry->what == nullptr;
  });
  return busy;
}

bool anything_pending(Watchdog& dog) {
  for (const auto& entry : entries_of(dog)) {
    const std::lock_guard lock(entry->mutex);
    if (entry->what != nullptr && entry->what->pending()) return true;
  }
  return false;
}

void run(Watchdog& dog) {
  for (;;) {
    if (look_at_all(dog)) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    // The run path stores what is pending before it asks for `asleep`, so one of the two sees it.
    dog.asleep.store(true);
    if (anything_pending(dog)) {
      dog.asleep.store(false);
      continue;
    }
    while (sem_wait(&dog.bell) != 0) {
    }
  }
}

Watchdog& the_watchdog();

// A child of fork() has no watchdog, and needs none as CUDA refuses to work there; but it ends what
// it has inherited, so none of the locks may be held by a thread that is not there.
void lock_all() {
  Watchdog& dog = the_watchdog();
  dog.mutex.lock();
  for (const auto& entry : dog.entries) entry->mutex.lock();
}
void unlock_all() {
  Watchdog& dog = the_watchdog();
  for (const auto& entry : dog.entries) entry->mutex.unlock();
  dog.mutex.unlock();
}

// The watchdog is never destroyed, because threads may still use it while static objects are
// destroyed.
Watchdog& the_watchdog() {
  static Watchdog& dog = *[] {
    auto* made = new Watchdog;
    std::thread([made] { run(*made); }).detach();
    return made;
  }();
  static const int registered = pthread_atfork(lock_all, unlock_all, unlock_all);
  (void)registered;
  return dog;
}

}  // namespace

std::shared_ptr<WatchEntry> watch(Watched& what) {
  auto entry = std::make_shared<WatchEntry>();
  entry->what = &what;
  Watchdog& dog = the_watchdog();
  const std::lock_guard lock(dog.mutex);
  dog.entries.push_back(entry);
  return entry;
}

void wake_watchdog() {
  Watchdog& dog = the_watchdog();
  if (dog.asleep.load() && dog.asleep.exchange(false)) sem_post(&dog.bell);
}

}  // namespace lathe
