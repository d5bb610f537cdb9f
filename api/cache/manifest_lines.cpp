// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A manifest as it is read line by line: a line is a problem, or says a part of a model.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/cache/manifest.h"
#include "api/cache/serving_line.h"
#include "codegen/base/digest.h"
#include "ops/infer.h"

struct lathe_manifest {
  struct Item {
    std::unique_ptr<const lathe_problem> problem;
    size_t line = 0;
  };
  std::vector<Item> items;
  size_t lines = 0;          // that were read
  lathe::ServedLayer model;  // of the last line that has one
  std::set<std::array<uint8_t, 16>> known;
};

namespace lathe {
namespace {

// More are no manifest: each is chosen kernels for.
constexpr size_t kMostProblems = 1 << 17;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == line.npos; }

bool names_outputs(const lathe_problem& problem) {
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const TensorInfo& tensor = problem.op->tensors[i];
    if (problem.tensors[i].given && tensor.role == Role::output && !tensor.given_if) return true;
  }
  return false;
}

Status add(lathe_manifest* manifest, size_t line, std::unique_ptr<lathe_problem> problem) {
  if (!manifest->known.insert(digest(problem_text(*problem)).bytes).second) return {};
  if (manifest->items.size() == kMostProblems) {
    return invalid(text("the manifest has more than ", kMostProblems, " problems; allowed are ",
                        kMostProblems, ": split it"));
  }
  manifest->items.push_back({std::move(problem), line});
  return {};
}

Status read(lathe_manifest* manifest, std::string_view given) {
  LATHE_ASSIGN(const LineJson line, read_line_json(given));
  if (is_serving_line(line)) {
    LATHE_ASSIGN(std::vector<lathe_problem> problems, read_serving_line(line, &manifest->model));
    for (lathe_problem& problem : problems) {
      LATHE_TRY(
          add(manifest, manifest->lines, std::make_unique<lathe_problem>(std::move(problem))));
    }
    return {};
  }
  LATHE_ASSIGN(std::unique_ptr<lathe_problem> problem, parse_problem(line));
  // A line that names inputs alone asks for what `lathe run` makes of them.
  if (!names_outputs(*problem)) LATHE_TRY(infer(problem.get(), nullptr));
  return add(manifest, manifest->lines, std::move(problem));
}

}  // namespace
}  // namespace lathe

using namespace lathe;

extern "C" {

lathe_status lathe_manifest_create(lathe_manifest** out) {
  return boundary({{out, "out"}}, [&] { *out = new lathe_manifest; });
}

void lathe_manifest_destroy(lathe_manifest* manifest) { delete manifest; }

lathe_status lathe_manifest_read(lathe_manifest* manifest, const char* line, size_t bytes) {
  return boundary({{manifest, "manifest"}, {line, "line"}}, [&]() -> Status {
    ++manifest->lines;
    const std::string_view given(line, bytes);
    if (is_blank(given)) return {};
    const Status status = read(manifest, given);
    if (status.ok()) return {};
    return Status(status.code(), text("line ", manifest->lines, ": ", status.text()));
  });
}

size_t lathe_manifest_count(const lathe_manifest* manifest) {
  return manifest ? manifest->items.size() : 0;
}

lathe_status lathe_manifest_problem(const lathe_manifest* manifest, size_t index,
                                    const lathe_problem** out, size_t* line) {
  return boundary({{manifest, "manifest"}, {out, "out"}}, [&]() -> Status {
    if (index >= manifest->items.size()) {
      return invalid(text("index is ", index, "; the manifest has ", manifest->items.size(),
                          " problems, counted from 0"));
    }
    *out = manifest->items[index].problem.get();
    if (line) *line = manifest->items[index].line;
    return {};
  });
}

}  // extern "C"
