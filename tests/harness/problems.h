// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tests declare problems by table with this file, check what is refused about them, and make calls
// that are never launched.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <utility>

#include "ops/executor.h"
#include "ops/resolve.h"
#include "tests/harness/support.h"

namespace test {

using Tensors = std::vector<Declaration>;
using Options = std::vector<std::pair<const char*, const char*>>;

// Returns `tensors` with `others` declared otherwise or added.
inline Tensors with(Tensors tensors, const Tensors& others) {
  for (const auto& other : others) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const auto& each) { return each.name == other.name; });
    if (found == tensors.end()) {
      tensors.push_back(other);
    } else {
      *found = other;
    }
  }
  return tensors;
}
inline Tensors without(Tensors tensors, const std::string& name) {
  std::erase_if(tensors, [&](const auto& each) { return each.name == name; });
  return tensors;
}

// Returns a problem that is declared, and what was refused about it.
inline Builder declared(const char* op, const Tensors& tensors, const Options& options) {
  Builder builder(op);
  builder.tensors(tensors);
  for (const auto& [name, value] : options) builder.set(name, value);
  return builder;
}

// Checks that all of `parts` are in the refusal.
inline void check_refused(const lathe::Status& status, const std::vector<const char*>& parts,
                          lathe::Code code = lathe::Code::invalid_argument) {
  CHECK(status.code() == code);
  for (const char* part : parts) CHECK_MESSAGE(contains(status.text(), part), status.text());
}

// A Bad is a problem that is refused, and what its refusal says.
struct Bad {
  Tensors tensors;
  Options options;
  std::vector<const char*> text;
};

// Makes an operator's request from a problem, as lathe_plan_create does up to the choice of
// kernels.
template <class Request>
struct Requests {
  const char* op;
  lathe::Result<Request> (*make)(const lathe::Resolved&);

  lathe::Result<Request> of(const Builder& builder, int alignment = 16) const {
    if (builder.status != LATHE_OK) {
      return lathe::Status(static_cast<lathe::Code>(builder.status), error());
    }
    REQUIRE(lathe_problem_alignment(builder.problem.get(), alignment) == LATHE_OK);
    const auto resolved = lathe::resolve(*builder.problem);
    if (!resolved.ok()) return resolved.status();
    return make(*resolved);
  }
  lathe::Result<Request> operator()(const Tensors& tensors, const Options& options = {},
                                    int alignment = 16) const {
    return of(declared(op, tensors, options), alignment);
  }
  Request accepted(const Tensors& tensors, const Options& options = {}, int alignment = 16) const {
    const auto found = (*this)(tensors, options, alignment);
    REQUIRE_MESSAGE(found.ok(), found.status().text());
    return *found;
  }
  void check_refused(const Bad& bad, lathe::Code code = lathe::Code::invalid_argument,
                     int alignment = 16) const {
    const auto found = (*this)(bad.tensors, bad.options, alignment);
    CAPTURE(std::string(bad.text[0]));
    REQUIRE_FALSE(found.ok());
    test::check_refused(found.status(), bad.text, code);
  }
  void check_refused(const std::vector<Bad>& all,
                     lathe::Code code = lathe::Code::invalid_argument) const {
    for (const Bad& each : all) check_refused(each, code);
  }
};

// Checks that all of the flags of a request are set, or that none is.
inline void check_flags(bool expected, const std::vector<bool>& flags) {
  for (size_t i = 0; i < flags.size(); ++i) {
    CAPTURE(i);
    CHECK(flags[i] == expected);
  }
}

// A DeclaredCall has the tensors of a call.
struct DeclaredCall {
  Builder builder;
  lathe::Extents declared;
  std::vector<lathe::Slot> slots;
  std::map<std::string, Array> arrays;

  DeclaredCall(const char* op, const Tensors& tensors, const Options& options = {})
      : builder(test::declared(op, tensors, options)) {
    REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
    const auto resolved = lathe::resolve(*builder.problem);
    REQUIRE_MESSAGE(resolved.ok(), resolved.status().text());
    declared = resolved->extents;
    slots = lathe::make_slots(*resolved);
  }
  lathe::Status read(lathe::Call* call, lathe::Checks checks = lathe::Checks::all) {
    std::vector<const DLTensor*> tensors;
    for (const lathe::Slot& slot : slots) {
      const auto found = arrays.find(slot.name);
      tensors.push_back(found == arrays.end() ? nullptr : found->second.get());
    }
    return lathe::read_call(*builder.problem->op, slots, declared, tensors.data(), checks, 0, call);
  }
};

// An ExecutorCall is a call with its executor, and is never launched.
struct ExecutorCall : DeclaredCall {
  std::unique_ptr<lathe::Executor> work;

  ExecutorCall(const char* op, const Tensors& tensors, const Options& options = {})
      : DeclaredCall(op, tensors, options) {
    const auto resolved = lathe::resolve(*builder.problem);
    auto made = lathe::make_executor(*resolved, *lathe::facts_of_arch("sm_80"));
    REQUIRE_MESSAGE(made.ok(), made.status().text());
    work = std::move(*made);
  }
  lathe::Result<lathe::Call> call(lathe::Checks checks = lathe::Checks::all) {
    uintptr_t address = 0;
    for (const lathe::Slot& slot : slots) {
      arrays.at(slot.name).view.data = reinterpret_cast<void*>(address += uintptr_t{1} << 52);
    }
    lathe::Call made;
    LATHE_TRY(read(&made, checks));
    return made;
  }
  lathe::Result<size_t> workspace(lathe::Checks checks = lathe::Checks::all) {
    LATHE_ASSIGN(const lathe::Call made, call(checks));
    return work->workspace_bytes(made);
  }
  lathe::Status run() {
    LATHE_ASSIGN(const lathe::Call made, call());
    LATHE_TRY(work->workspace_bytes(made));
    return work->run(made);
  }
  lathe::Estimate estimate(lathe::Checks checks = lathe::Checks::all) {
    const auto made = call(checks);
    REQUIRE_MESSAGE(made.ok(), made.status().text());
    const auto found = work->estimate(*made);
    REQUIRE_MESSAGE(found.ok(), found.status().text());
    return *found;
  }
  void check_refused(const std::vector<const char*>& parts,
                     lathe::Code code = lathe::Code::invalid_argument) {
    test::check_refused(run(), parts, code);
  }
};

}  // namespace test
