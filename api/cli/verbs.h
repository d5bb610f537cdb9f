// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The verbs of the program: each adds itself to the command line and gives back what to do if it
// was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "api/lathe.h"

namespace lathe::cli {

using Action = std::function<int()>;  // gives the exit code

// Lists tensors, shapes, options, defaults and sentences of one operator, in lines.
std::string operator_text(const lathe_operator_info& op);

Action add_run(CLI::App* app);
Action add_ops(CLI::App* app);
Action add_check(CLI::App* app);
Action add_demo(CLI::App* app);
Action add_warm(CLI::App* app);
Action add_explain(CLI::App* app);
Action add_dump(CLI::App* app);
Action add_doctor(CLI::App* app);
Action add_cache(CLI::App* app);
Action add_count(CLI::App* app);
Action add_plan(CLI::App* app);
Action add_tune(CLI::App* app);

}  // namespace lathe::cli
