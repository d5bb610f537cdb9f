// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The program `lathe` reads its command line: verbs, flags that all of them share, and faults in
// the words.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "api/cli/failure.h"
#include "api/cli/options.h"
#include "api/cli/reports/progress.h"

namespace lathe::cli {
namespace {

int verbosity = 1;

void log_line(void*, int level, const char* text) {
  if (level <= verbosity) say((level == 1 ? "warning: " : "") + std::string(text));
}

// The help of a verb that was given an operator says what the operator takes and gives.
void print_operator_help(const CLI::App& app) {
  for (const CLI::App* verb : app.get_subcommands()) {
    const CLI::Option* op = verb->get_option_no_throw("OP");
    if (op == nullptr || op->results().empty()) continue;
    const std::string& name = op->results().front();
    const auto* info =
        name.ends_with(kKernelEnding) ? find_operator(name) : lathe_operator_find(name.c_str());
    if (info) std::printf("\n%s", operator_text(*info).c_str());
  }
}

// Says what CLI11 found wrong, in one line. Help and version are not errors.
int parse_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    const int code = app.exit(error);
    if (error.get_name() == "CallForHelp") print_operator_help(app);
    return code;
  }
  std::string text = error.what();
  std::ranges::replace(text, '\n', ' ');
  say(text + " (see --help)");
  return kBadInput;
}

// An option given as "" is an unset variable of a shell, and no value of any option here.
void check_values_given(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.empty()) refuse(option->get_name(), " is \"\", but needs a value");
    }
  }
  for (const CLI::App* verb : app.get_subcommands()) check_values_given(*verb);
}

// `lathe check FLAG... -- PROGRAM ARGUMENT...` has a command line of its own: the words behind the
// dashes are the program's.
bool checks_program(int count, char** words, int* dashes) {
  *dashes = static_cast<int>(std::find(words, words + count, std::string_view("--")) - words);
  return count > 1 && words[1] == std::string_view("check") && *dashes < count;
}

// Does what the words of a command line ask for and returns the exit code. Throws Failure.
int run_command_line(int count, char** words) {
  if (int dashes = 0; checks_program(count, words, &dashes)) {
    if (dashes + 1 == count) refuse("behind -- there is no program");
    return check_program_command(dashes - 1, words + 1, {words + dashes + 1, words + count});
  }
  CLI::App app("lathe: CUDA kernels made at run time, for the problem at hand", "lathe");
  app.set_version_flag("--version", std::string("lathe ") + lathe_version());
  app.require_subcommand(1);
  app.add_flag(
      "-v,--verbose", [](int64_t times) { verbosity = 1 + static_cast<int>(times); },
      "say what is compiled and found; twice for more");
  app.fallthrough();
  std::vector<Action> actions;
  for (AddVerb* add : {add_demo, add_run, add_ops, add_check, add_warm, add_explain, add_dump,
                       add_doctor, add_cache, add_plan, add_tune, add_count, add_new}) {
    actions.push_back(add(&app));
  }
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return parse_error(app, error);
  }
  check_values_given(app);
  lathe_set_log(log_line, nullptr);
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  for (size_t i = 0; i < verbs.size(); ++i) {
    if (verbs[i]->parsed()) return actions[i]();
  }
  return kBadInput;
}

}  // namespace
}  // namespace lathe::cli

int main(int count, char** words) {
  using namespace lathe::cli;
  try {
    const int code = run_command_line(count, words);
    if (std::fflush(stdout) != 0) fail("standard output cannot be written");
    return code;
  } catch (const Failure& failure) {
    say(failure.what());
    return failure.code;
  } catch (const std::bad_alloc&) {
    say("there is not enough memory for these tensors");
    return kFailed;
  } catch (const std::exception& error) {
    say(error.what());
    return kFailed;
  }
}
