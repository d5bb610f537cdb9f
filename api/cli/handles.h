// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Owners of the library's objects.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/cli/failure.h"

namespace lathe::cli {

template <auto Destroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    Destroy(object);
  }
};

// Makes an object of the library: made<Plan>(lathe_plan_create, context, problem).
template <typename Owner, typename Create, typename... Arguments>
Owner made(Create create, const Arguments&... arguments) {
  typename Owner::pointer object = nullptr;
  check(create(&object, arguments...));
  return Owner(object);
}

// Returns the struct that the library fills: told<lathe_kernel_info>(lathe_plan_kernel, plan, 0).
template <typename Info, typename Get, typename... Arguments>
Info told(Get get, const Arguments&... arguments) {
  Info info{};
  info.size = sizeof info;
  check(get(arguments..., &info));
  return info;
}

// A list of names in C's terms.
inline std::vector<const char*> pointers(const std::vector<std::string>& names) {
  std::vector<const char*> out;
  for (const std::string& name : names) out.push_back(name.c_str());
  return out;
}

using Context = std::unique_ptr<lathe_context, Destroyer<lathe_context_destroy>>;
using ProblemHandle = std::unique_ptr<lathe_problem, Destroyer<lathe_problem_destroy>>;
using Plan = std::unique_ptr<lathe_plan, Destroyer<lathe_plan_destroy>>;
using OperatorHandle = std::unique_ptr<lathe_operator, Destroyer<lathe_operator_destroy>>;
using Group = std::unique_ptr<lathe_group, Destroyer<lathe_group_destroy>>;
using Warming = std::unique_ptr<lathe_warming, Destroyer<lathe_warming_destroy>>;
using Shard = std::unique_ptr<lathe_shard, Destroyer<lathe_shard_destroy>>;

// Gives back what a context lent.
template <auto Return>
struct Returner {
  lathe_context* context = nullptr;
  void operator()(void* lent) const { Return(context, lent); }
};
using Stream = std::unique_ptr<void, Returner<lathe_stream_destroy>>;
using DeviceBytes = std::unique_ptr<void, Returner<lathe_free>>;

inline Stream make_stream(lathe_context* context) {
  void* stream = nullptr;
  check(lathe_stream_create(context, &stream));
  return Stream(stream, {context});
}

inline DeviceBytes device_bytes(lathe_context* context, size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) check(lathe_malloc(context, &data, bytes));
  return DeviceBytes(data, {context});
}

}  // namespace lathe::cli
