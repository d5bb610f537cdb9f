// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Problems of the KDA operators that tests declare, as they are or with a change, and calls of them
// that are never launched.
#pragma once

#include <doctest/doctest.h>

#include <map>

#include "ops/check.h"
#include "ops/kda/request.h"
#include "tests/harness/support.h"

namespace test {

using Tensors = std::vector<Declaration>;
using Options = std::vector<std::pair<const char*, const char*>>;

inline const Tensors kKda = {
    {"q", LATHE_BF16, {-1, -1, 2, 64}}, {"k", LATHE_BF16, {-1, -1, 2, 64}},
    {"v", LATHE_BF16, {-1, -1, 4, 32}}, {"g", LATHE_F32, {-1, -1, 4, 64}},
    {"beta", LATHE_F16, {-1, -1, 4}},   {"o", LATHE_BF16, {-1, -1, 4, 32}}};

// Tensors declared otherwise, or more of them.
inline Tensors with(Tensors tensors, const Tensors& others) {
  for (const auto& other : others) {
    std::erase_if(tensors, [&](const auto& each) { return each.name == other.name; });
    tensors.push_back(other);
  }
  return tensors;
}
inline Tensors without(Tensors tensors, const std::string& name) {
  std::erase_if(tensors, [&](const auto& each) { return each.name == name; });
  return tensors;
}

// A problem that is declared, and what was refused about it.
inline Builder declared(const char* op, const Tensors& tensors, const Options& options) {
  Builder builder(op);
  builder.tensors(tensors);
  for (const auto& [name, value] : options) builder.set(name, value);
  return builder;
}

// What a tensor or an option is refused for: all of `text` is in the refusal.
struct Bad {
  Tensors tensors;
  Options options;
  std::vector<const char*> text;
};
template <class Request>
void check_refused(const std::vector<Bad>& bad, const Request& request,
                   lathe::Code code = lathe::Code::invalid_argument) {
  for (const Bad& each : bad) {
    const auto found = request(each.tensors, each.options);
    CAPTURE(each.text[0]);
    REQUIRE_FALSE(found.ok());
    CHECK(found.status().code() == code);
    for (const char* part : each.text) {
      CHECK_MESSAGE(contains(found.status().text(), part), found.status().text());
    }
  }
}

// A call; nothing of it is ever launched.
struct KdaFixture {
  Builder builder;
  lathe::Extents promised;
  std::vector<lathe::Slot> slots;
  std::map<std::string, Array> arrays;
  std::unique_ptr<lathe::Work> work;

  KdaFixture(const char* op, const Tensors& tensors, const Options& options = {})
      : builder(declared(op, tensors, options)) {
    REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
    const auto checked = lathe::check_problem(*builder.problem);
    REQUIRE_MESSAGE(checked.ok(), checked.status().text());
    promised = *checked;
    slots = lathe::make_slots(*builder.problem, promised);
    auto made = lathe::make_work(*builder.problem, promised, *lathe::facts_of_arch("sm_80"));
    REQUIRE_MESSAGE(made.ok(), made.status().text());
    work = std::move(*made);
  }
  void fill(int64_t batch, int64_t tokens, int64_t value_heads = 4) {
    arrays["q"] = arrays["k"] = Array(LATHE_BF16, {batch, tokens, 2, 64});
    arrays["v"] = arrays["o"] = Array(LATHE_BF16, {batch, tokens, value_heads, 32});
    arrays["g"] = Array(LATHE_F32, {batch, tokens, value_heads, 64});
    arrays["beta"] = Array(LATHE_F16, {batch, tokens, value_heads});
  }
  lathe::Result<lathe::Call> call() {
    std::vector<const DLTensor*> tensors;
    uintptr_t address = 0;
    for (const lathe::Slot& slot : slots) {
      Array& array = arrays.at(slot.name);
      array.view.data = reinterpret_cast<void*>(address += 0x100000);
      tensors.push_back(array.get());
    }
    lathe::Call made;
    LATHE_TRY(lathe::read_call(*builder.problem->op, slots, promised, tensors.data(),
                               lathe::Look::all, 0, &made));
    return made;
  }
  lathe::Result<size_t> workspace() {
    const auto made = call();
    LATHE_TRY(made);
    return work->workspace_bytes(*made);
  }
  lathe::Status run() {
    const auto made = call();
    LATHE_TRY(made);
    LATHE_TRY(work->workspace_bytes(*made));
    return work->run(*made);
  }
  void check_refused(std::vector<const char*> parts,
                     lathe::Code code = lathe::Code::invalid_argument) {
    const lathe::Status found = run();
    CHECK(found.code() == code);
    for (const char* part : parts) CHECK_MESSAGE(contains(found.text(), part), found.text());
  }
};

}  // namespace test
