// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds what a caller has declared through the C functions. This code checks each call by itself;
// resolve.h checks all together when a plan is made.
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
  std::array<int64_t, kMaxRank> called{};  // before extents that may vary were opened
};

}  // namespace lathe

struct lathe_group;

struct lathe_problem {
  const lathe::Operator* op = nullptr;
  std::array<lathe::Declared, lathe::kMaxTensors> tensors;  // as in the table
  std::vector<std::optional<std::string>> options;          // as in the table, checked
  std::vector<lathe::Mod> mods;                             // the texts of those that take a FILE
  int alignment = 16;
  bool opened = false;  // by lathe_problem_open: `called` holds
  lathe_group* group = nullptr;
  unsigned group_flags = 0;
  std::shared_ptr<lathe_group> said_group;  // of a problem that was read: only its world is known
  std::shared_ptr<const lathe::Choices> choices;  // in place of what was tuned; null: that

  bool has(int tensor) const { return tensors[tensor].given; }
  // Returns which of a tensor's shapes of one rank the options choose.
  int shape_number() const;
  // Returns the shape of a declared tensor, as the options choose it.
  lathe::Shape shape(int tensor) const;
  // Returns whether a run writes a declared tensor.
  bool writes(int tensor) const;
  // Returns the text of an option's value: the value that was set, or the table's default. Kernels
  // read the parsed options of Resolved.
  std::string option(const char* name) const;
};

namespace lathe {

// These functions implement the C functions lathe_problem_tensor and the setters of options.
// `given` is the setter's type; text fits every option.
Status declare(lathe_problem& problem, const char* name, int dtype, int rank, const int64_t* shape);
Status set_alignment(lathe_problem& problem, int64_t bytes);
// Checks the flags of lathe_problem_group.
Status check_group_flags(const Operator& op, unsigned flags);
// Returns UNSUPPORTED, for this reason, if the problem's group has LATHE_RANK_INVARIANT.
Status refuse_rank_invariant(const lathe_problem& problem, const char* why);
Status set_option(lathe_problem* problem, const char* name, OptionType given,
                  const std::string& value);

// Returns whether the value of an option is the name of a file, whose text the problem keeps.
bool takes_file(const OptionInfo& option);
// Keeps `bytes` as the text of an option that has none yet.
Status set_option_text(lathe_problem* problem, const char* option, std::string bytes);

}  // namespace lathe
