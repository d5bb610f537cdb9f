// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file tells the names of the error codes that abi/driver_types.h has; the sentence is the
// name in words.
#include <array>
#include <cstring>
#include <string>

#include "sim/model/letters.h"
#include "sim/names/runtime_errors.h"
#include "sim/runtime/entry.h"

namespace sim::runtime {
namespace {

struct Entry {
  cudaError_t code;
  const char* name;
};

#define SIM_ERROR(code) {code, #code},
constexpr Entry kErrors[] = {SIM_RUNTIME_ERRORS(SIM_ERROR)};
#undef SIM_ERROR

constexpr size_t kCount = sizeof(kErrors) / sizeof(kErrors[0]);
constexpr char kUnrecognized[] = "unrecognized error code";

size_t index_of(int error) {
  size_t at = 0;
  while (at < kCount && kErrors[at].code != error) ++at;
  return at;
}

// "cudaErrorECCUncorrectable" -> "ecc uncorrectable"
std::string in_words(const char* name) {
  if (std::strcmp(name, "cudaSuccess") == 0) return "no error";
  std::string words;
  for (const char* at = name + std::strlen("cudaError"); *at != 0; ++at) {
    const bool starts = is_upper(*at) && (is_lower(at[-1]) || is_lower(at[1]));
    if (starts && !words.empty()) words += ' ';
    words += to_lower(*at);
  }
  return words;
}

}  // namespace

bool is_known(int error) { return index_of(error) < kCount; }

}  // namespace sim::runtime

using namespace sim::runtime;

SIM_RUNTIME const char* cudaGetErrorName(cudaError_t error) {
  const size_t at = index_of(error);
  return at < kCount ? kErrors[at].name : kUnrecognized;
}

SIM_RUNTIME const char* cudaGetErrorString(cudaError_t error) {
  static const auto* texts = [] {
    auto* made = new std::array<std::string, kCount>;
    for (size_t at = 0; at < kCount; ++at) (*made)[at] = in_words(kErrors[at].name);
    return made;
  }();
  const size_t at = index_of(error);
  return at < kCount ? (*texts)[at].c_str() : kUnrecognized;
}
