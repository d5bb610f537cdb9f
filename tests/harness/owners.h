// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds owners of the C API's objects.
#pragma once

#include <memory>

#include "api/lathe.h"

namespace apitest {

template <auto kDestroy>
struct Destroy {
  template <typename T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
using Context = std::unique_ptr<lathe_context, Destroy<lathe_context_destroy>>;
using Problem = std::unique_ptr<lathe_problem, Destroy<lathe_problem_destroy>>;
using Plan = std::unique_ptr<lathe_plan, Destroy<lathe_plan_destroy>>;
using Group = std::unique_ptr<lathe_group, Destroy<lathe_group_destroy>>;
using Shard = std::unique_ptr<lathe_shard, Destroy<lathe_shard_destroy>>;

}  // namespace apitest
