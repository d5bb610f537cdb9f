// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The verbs of the program, and the flags that several of them share.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "api/cli/device.h"
#include "api/cli/problem.h"

namespace lathe::cli {

// Each verb adds itself to the command line and gives back what to do if it was chosen, which gives
// the exit code.
using Action = std::function<int()>;
using AddVerb = Action(CLI::App* app);
AddVerb add_demo, add_run, add_ops, add_check, add_warm, add_explain, add_dump, add_doctor,
    add_cache, add_plan, add_tune, add_count, add_new;
// `lathe check` with the words before the dashes, and the program behind them.
int check_program_command(int count, char** words, std::vector<std::string> program);

// Lists tensors, shapes, options, defaults and sentences of one operator, in lines.
std::string operator_text(const lathe_operator_info& op);

// Adds --device, --arch and --cache-dir. `devices` lists what --device allows; the first is the
// default.
void add_device_flags(CLI::App* verb, DeviceOptions* options,
                      const std::vector<std::string>& devices);
void add_json_flag(CLI::App* verb, bool* json);

// Explain and dump take a problem from a file's header, or tensor by tensor.
struct ProblemOptions {
  std::string op;
  std::string input;
  std::vector<std::string> tensors;  // x=bf16:1,-1,4096
  std::vector<std::string> set;
  int alignment = kBestAlignment;
};
void add_problem_flags(CLI::App* verb, ProblemOptions* options);
Problem problem_from(const ProblemOptions& options);
// Reads "x=bf16:1,-1,4096".
std::pair<std::string, TensorSpec> parse_tensor(const std::string& text);

// Adds "OP", a positional argument with the known operators in its help.
void add_operator(CLI::App* verb, std::string* op);
void add_set_flag(CLI::App* verb, std::vector<std::string>* set);
void add_alignment_flag(CLI::App* verb, int* alignment);
// Reads the "key=value" texts of --set; each key once.
Settings parse_settings(const std::vector<std::string>& texts);
// Reads "key=value"; a refusal says that `expected` is what the flag needs.
std::pair<std::string, std::string> parse_pair(const char* flag, const std::string& text,
                                               const char* expected);

// A whole number; anything else, or one outside [low, high], is refused.
int64_t parse_int(const std::string& flag, const std::string& text, int64_t low, int64_t high);

// Splits "a,b" into {"a", "b"}.
std::vector<std::string> split(const std::string& text, char separator);
// The lines of a text that are not empty, each with so many fields between tabs.
std::vector<std::vector<std::string>> rows_of(const std::string& text, size_t fields);
// What lathe_doctor says of the machine: name, "found" or "missing", where and version, remedy.
std::vector<std::vector<std::string>> doctor_rows();

// Casts for printf's %llu.
inline unsigned long long llu(uint64_t value) { return value; }

}  // namespace lathe::cli
