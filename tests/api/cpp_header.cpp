// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This program reads lathe.h as C++, the oldest that is in use.
#include <cstdio>
#include <cstring>

#include "lathe.h"

int main() {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  if (options.size != sizeof(options)) return 1;
  if (std::strcmp(lathe_status_name(LATHE_INTERNAL), "INTERNAL") != 0) return 2;
  std::printf("lathe %s from C++: %zu operators\n", lathe_version(), lathe_operator_count());
  return 0;
}
