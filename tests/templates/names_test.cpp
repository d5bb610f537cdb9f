// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One stem on both sides: a template with an entry has a spec of the same name, and vice versa.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "codegen/templates.h"
#include "ops/exact_sums.h"
#include "ops/row_kernels.h"
#include "tests/templates/sample_specs.h"

using namespace lathe;

namespace {

// Templates whose file "folder/stem.cuh" defines `void stem(`: a kernel's body. One that has to be
// told to be inlined begins with what a launch is told, which tells it from functions that always
// are.
std::set<std::string> template_stems() {
  std::set<std::string> stems;
  for (const TemplateFile& file : template_files()) {
    const std::string name = file.name;
    const size_t slash = name.rfind('/'), dot = name.rfind(".cuh");
    if (dot == std::string::npos) continue;
    const std::string stem = name.substr(slash + 1, dot - slash - 1);
    const auto defines = [&](const std::string& text) {
      return file.text.find(text) != std::string_view::npos;
    };
    if (defines("__device__ void " + stem + "(") ||
        defines("__device__ __forceinline__ void " + stem + "(const ")) {
      stems.insert(name);
    }
  }
  return stems;
}

// The kernels that families share.
std::vector<KernelSpec> row_specs(const DeviceFacts&) {
  return {copy_rows_spec(RowIndex::none, 16),
          add_rows_spec(Dtype::f32, Dtype::f32),
          sum_parts_spec(Dtype::f32, Dtype::f32, 4),
          move_rows_spec(16),
          sum_rows_spec(Dtype::f32, Dtype::f32, true),
          repeat_offsets_spec(),
          exact_sums_spec(),
          exact_round_spec()};
}

const templates_test::AddSampleSpecs kRows("rows", row_specs);

}  // namespace

TEST_CASE("specs and templates have the same stems") {
  std::set<std::string> sources;
  for (const auto& family : templates_test::sample_specs()) {
    for (const KernelSpec& spec : family.make(*facts_of_arch("sm_80"))) {
      INFO(spec.source);
      CHECK(spec.source.starts_with(std::string(family.folder) + "/"));
      CHECK(spec.source.ends_with("/" + spec.kernel + ".cuh"));
      sources.insert(spec.source);
    }
  }
  CHECK(sources == template_stems());
}
