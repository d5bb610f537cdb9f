// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Threads that compile: as many as there is work, cores and memory for, and none where nothing has
// to be compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lathe {

// A compile takes at most this much memory, mostly the compiler's own.
inline constexpr int64_t kWorkerBytes = 250'000'000;
inline constexpr size_t kWorkerStackBytes = 8 << 20;

// The system says this of its memory, as text.
struct MachineTexts {
  struct Group {  // a control group, or one around it
    std::string limit, used, stat;
  };
  int cores = 1;
  std::string meminfo;
  std::vector<Group> groups;
};
// `root` stands before /proc and /sys.
MachineTexts machine_texts(const std::string& root = {});
// Returns at least 1. A figure that cannot be read bounds nothing.
int workers_allowed(const MachineTexts& machine);

// Called by an item's work that is about to take long: a compile, or waiting for another's.
using Busy = std::function<void()>;

// Calls work(i, busy) for each i below `count`, in that order, on this thread and on others that
// begin once an item calls `busy` and others are left. False from `work`: no further item is begun.
// `most` threads; 0: workers_allowed, of which the process's other calls take their share. All
// threads have ended when it returns. `work` must not throw.
void work_through(size_t count, int most, const std::function<bool(size_t, const Busy&)>& work);

}  // namespace lathe
