// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tests of api/ share this file: problems and DLPack tensors in one line each.
#pragma once

#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/harness/owners.h"

namespace test {

using apitest::Context;
using apitest::Group;
using apitest::Plan;
using apitest::Problem;
using apitest::Shard;

// A Folder is removed when the test ends.
struct Folder {
  std::string path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-test-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

inline Context make_context(lathe_device_kind kind, const std::string& cache_dir,
                            const char* arch = "sm_90a") {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = kind;
  options.arch = arch;
  options.cache_dir = cache_dir.c_str();
  lathe_context* context = nullptr;
  lathe_context_create(&context, &options);
  return Context(context);
}

struct Declaration {
  std::string name;
  lathe_dtype dtype;
  std::vector<int64_t> shape;
};

// A Builder declares a problem as a caller does. It stops at the first failure, which `status`
// keeps.
struct Builder {
  Problem problem;
  lathe_status status;

  explicit Builder(const char* op) {
    lathe_problem* made = nullptr;
    status = lathe_problem_create(&made, op);
    problem.reset(made);
  }
  Builder& tensor(const Declaration& declared) {
    if (status == LATHE_OK) {
      status = lathe_problem_tensor(problem.get(), declared.name.c_str(), declared.dtype,
                                    static_cast<int>(declared.shape.size()), declared.shape.data());
    }
    return *this;
  }
  Builder& tensors(const std::vector<Declaration>& all) {
    for (const Declaration& each : all) tensor(each);
    return *this;
  }
  Builder& set(const char* option, const char* value) {
    if (status == LATHE_OK) status = lathe_problem_set_string(problem.get(), option, value);
    return *this;
  }
};

// An Array is a DLTensor that owns its shape and strides.
struct Array {
  std::vector<int64_t> shape, strides;
  DLTensor view = {};

  Array() = default;
  Array(lathe_dtype dtype, std::vector<int64_t> extents, void* data = nullptr)
      : shape(std::move(extents)) {
    const bool integer = dtype == LATHE_I32 || dtype == LATHE_I64;
    const bool byte = dtype == LATHE_F8_E4M3 || dtype == LATHE_U8;
    const int bits = dtype == LATHE_I64                         ? 64
                     : dtype == LATHE_F32 || dtype == LATHE_I32 ? 32
                     : byte                                     ? 8
                                                                : 16;
    view.dtype.code = byte                  ? kDLUInt
                      : integer             ? kDLInt
                      : dtype == LATHE_BF16 ? kDLBfloat
                                            : kDLFloat;
    view.dtype.bits = static_cast<uint8_t>(bits);
    view.dtype.lanes = 1;
    view.device.device_type = kDLCUDA;
    view.data = data;
  }
  // The addresses are set anew: the object may have moved since.
  const DLTensor* get() {
    view.ndim = static_cast<int>(shape.size());
    view.shape = shape.data();
    view.strides = strides.empty() ? nullptr : strides.data();
    return &view;
  }
};

inline std::string error() { return lathe_last_error(); }

// Returns the tensors of a call in the order of the plan's slots. Throws if the plan has no slot of
// a name.
inline std::vector<const DLTensor*> slots_of(const lathe_plan* plan,
                                             std::map<std::string, Array>& arrays) {
  std::vector<const DLTensor*> slots(lathe_plan_slot_count(plan));
  for (auto& [name, array] : arrays) {
    size_t slot = 0;
    if (lathe_plan_slot(plan, name.c_str(), &slot) != LATHE_OK) throw std::out_of_range(error());
    slots.at(slot) = array.get();
  }
  return slots;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

using Values = std::vector<float>;

// Returns numbers of few bits, others for each seed.
inline Values pattern(size_t count, int seed) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        static_cast<float>(static_cast<int>((i * 37 + static_cast<size_t>(seed) * 101) % 64) - 32) /
        16.0f;
  }
  return values;
}

}  // namespace test
