// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The fuzz target reads any bytes as PTX. This file has libFuzzer's entry; main.cpp is a driver for
// compilers without it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/ptx/module.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string log;
  const auto module =
      sim::Module::parse(std::string_view(reinterpret_cast<const char*>(data), size), &log);
  if (!module && log.empty()) __builtin_trap();  // a refusal says why
  return 0;
}
