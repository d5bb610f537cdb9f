// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file tells the names of the error codes that cuda.h has; the sentence is the name in words.
#include <array>
#include <string>

#include "sim/driver/entry.h"
#include "sim/model/letters.h"
#include "sim/names/driver_errors.h"

namespace {

struct Entry {
  CUresult code;
  const char* name;
};

#define SIM_ERROR(code) {code, #code},
constexpr Entry kErrors[] = {SIM_DRIVER_ERRORS(SIM_ERROR)};
#undef SIM_ERROR

constexpr size_t kCount = sizeof(kErrors) / sizeof(kErrors[0]);

// "CUDA_ERROR_ILLEGAL_ADDRESS" -> "illegal address"
std::string in_words(const std::string& name) {
  const size_t start = name.rfind("CUDA_ERROR_", 0) == 0 ? 11 : 5;
  std::string words;
  for (char letter : name.substr(start)) {
    words += letter == '_' ? ' ' : sim::to_lower(letter);
  }
  return words;
}

size_t index_of(CUresult error) {
  size_t at = 0;
  while (at < kCount && kErrors[at].code != error) ++at;
  return at;
}

}  // namespace

SIM_API cuGetErrorName(CUresult error, const char** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t at = index_of(error);
  *out = at < kCount ? kErrors[at].name : nullptr;
  return at < kCount ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_API cuGetErrorString(CUresult error, const char** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const size_t at = index_of(error);
  if (at == kCount) return CUDA_ERROR_INVALID_VALUE;
  return sim::driver::guarded([&] {
    static const auto* texts = [] {
      auto* made = new std::array<std::string, kCount>;
      for (size_t i = 0; i < kCount; ++i) (*made)[i] = in_words(kErrors[i].name);
      return made;
    }();
    *out = (*texts)[at].c_str();
    return CUDA_SUCCESS;
  });
}
