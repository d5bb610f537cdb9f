// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Each host thread has one object, behind a pthread key. It is not thread_local: the C library
// frees the thread-local block of an opened library when it reuses a dead thread's stack, which
// thread sanitizers take for a race.
#pragma once

#include <pthread.h>

namespace sim {

template <typename T>
T& per_thread() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    pthread_key_create(&made, [](void* object) { delete static_cast<T*>(object); });
    return made;
  }();
  void* object = pthread_getspecific(key);
  if (object == nullptr) {
    object = new T;
    pthread_setspecific(key, object);
  }
  return *static_cast<T*>(object);
}

}  // namespace sim
