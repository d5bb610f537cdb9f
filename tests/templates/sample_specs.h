// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every family has a tests/ops/<family>/sample_specs.cpp: specs that reach each of its templates.
// CMake finds these files, and a SampleSpecs object in each of them adds the family to the list.
#pragma once

#include <vector>

#include "codegen/device_facts.h"
#include "codegen/spec.h"

namespace templates_test {

struct SampleSpecs {
  using Make = std::vector<lathe::KernelSpec> (*)(const lathe::DeviceFacts& facts);
  const char* folder;  // of templates/, where the sources of these specs lie
  Make make;
};

inline std::vector<SampleSpecs>& sample_specs() {
  static std::vector<SampleSpecs> families;
  return families;
}
// Defined at namespace scope in a family's file, this adds the family.
struct AddSampleSpecs {
  AddSampleSpecs(const char* folder, SampleSpecs::Make make) {
    sample_specs().push_back({folder, make});
  }
};

}  // namespace templates_test
