// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Children by fork() have none of the library's threads, and its locks as they happened to be. So
// every call of such a child is refused before it takes a lock, as NVIDIA's driver does it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <new>

namespace sim {

inline std::atomic<bool> is_forked_child{false};

// Returns true in a process that was forked from one that used the library.
inline bool forked() { return is_forked_child.load(std::memory_order_relaxed); }

// From here on a child cannot use the library; called when it is used first.
inline void refuse_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; });
  (void)registered;
}

// Runs the body of an exported function, which throws nothing to its caller.
template <typename Result, typename F>
Result without_exceptions(Result out_of_memory, Result unknown, F body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory;
  } catch (...) {
    return unknown;
  }
}

}  // namespace sim
