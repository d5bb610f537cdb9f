// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The program `lathe`: kernels from templates, run, checked, explained and cached.
#include <cstdio>
#include <exception>
#include <new>

#include "api/cli/command_line.h"
#include "api/cli/failure.h"
#include "api/cli/reports/progress.h"

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
