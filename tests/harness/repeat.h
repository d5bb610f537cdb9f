// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file runs work under other schedules of the simulator: the order of warps and blocks, of
// what is asynchronous, of the tensor cores' sums. A process has one schedule, so each is a child.
#pragma once

#include <functional>

#include "tests/harness/call.h"

namespace apitest {

struct Schedule {
  uint64_t seed = 0;
  const char* async = "lazy";  // LATHE_SIM_ASYNC
  const char* sum = "exact";   // LATHE_SIM_TENSOR_SUM
  int threads = 0;             // LATHE_SIM_THREADS
  const char* arch = "";       // of the device and its kernels; "": the tests' own
};
// Makes the schedule of a number, which decides the order of everything; sums are exact.
Schedule schedule_number(uint64_t number, const char* arch = "");

// Hands one answer of a child to its parent. If it throws, the answer has the text as its error and
// the child goes on.
using Give = std::function<void(const std::function<Answer()>&)>;
// Runs `work` in a child. The parent may not have opened the simulator before: a child would share
// its threads' locks.
std::vector<Answer> in_child(const Schedule& schedule,
                             const std::function<void(const Give&)>& work);

// Runs pieces of work in three children, number i in that of schedule i % 3, and hands each answer
// to `check` here. With `sums` the tensor cores' sums differ between the children too.
void under_schedules(size_t count, const std::function<Answer(size_t)>& work,
                     const std::function<void(size_t, const Answer&)>& check, const char* arch = "",
                     bool sums = false);

// Checks that `count` schedules give the same answer, and returns it. The output `but` may differ
// by what `near` allows.
Answer check_repeats(int count, const std::function<Answer()>& work, const std::string& but = "",
                     const std::function<bool(const Values&, const Values&)>& near = {});

}  // namespace apitest
