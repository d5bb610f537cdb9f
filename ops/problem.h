// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a caller has declared, as the C functions leave it: each call is checked on its own here,
// and all together in resolve.h when a plan is made.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/choice.h"
#include "codegen/spec.h"
#include "ops/schema.h"

namespace lathe {

struct Declared {
  bool given = false;
  bool aliased = false;  // a result that is wanted and always equals another tensor: no slot
  Dtype dtype = Dtype::f32;
  Shape shape;  // which of the table's
  std::array<int64_t, kMaxRank> extents{};
};

}  // namespace lathe

struct lathe_group;

struct lathe_problem {
  const lathe::Operator* op = nullptr;
  std::array<lathe::Declared, lathe::kMaxTensors> tensors;  // as in the table
  std::vector<std::optional<std::string>> options;          // as in the table, checked
  std::vector<lathe::Mod> mods;                             // the texts of those that take a FILE
  int alignment = 16;
  lathe_group* group = nullptr;
  unsigned group_flags = 0;
  std::shared_ptr<lathe_group> said_group;  // of a problem that was read: only its world is known
  std::shared_ptr<const lathe::Choices> choices;  // in place of what was tuned; null: that

  bool has(int tensor) const { return tensors[tensor].given; }
  // Which of a tensor's shapes of one rank the options choose.
  int shape_number() const;
  // The shape of a declared tensor, as the options have it.
  lathe::Shape shape(int tensor) const;
  // Of a declared tensor: whether a run writes it.
  bool writes(int tensor) const;
  // The text of the value that holds: what was set, or the table's default. Kernels read options
  // as Resolved has them, parsed.
  std::string option(const char* name) const;
};

namespace lathe {

// As the C functions: lathe_problem_tensor, and the setters of options, of which `given` is the
// type; text fits every option.
Status declare(lathe_problem& problem, const char* name, int dtype, int rank, const int64_t* shape);
Status set_alignment(lathe_problem& problem, int64_t bytes);
// What lathe_problem_group says to these flags.
Status check_group_flags(const Operator& op, unsigned flags);
Status set_option(lathe_problem* problem, const char* name, OptionType given,
                  const std::string& value);

}  // namespace lathe
