// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the embedded device text, and the scan of what a unit reaches.
#include "codegen/templates.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "codegen/base/digest.h"

using namespace lathe;

namespace {

std::vector<std::string> names_of(const std::vector<const TemplateFile*>& files) {
  std::vector<std::string> names;
  for (const TemplateFile* file : files) names.emplace_back(file->name);
  return names;
}

}  // namespace

TEST_CASE("embedded files are sorted and begin with their own name") {
  const std::vector<TemplateFile>& files = template_files();
  CHECK(files.size() >= 8);
  CHECK(std::is_sorted(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return std::strcmp(a.name, b.name) < 0;
  }));
  for (const TemplateFile& file : files) {
    CAPTURE(file.name);
    const std::string first = std::string("#line 1 \"/lathe/") + file.name + "\"\n";
    CHECK(file.text.substr(0, first.size()) == first);
    CHECK(file.text.back() == '\n');
    // NVRTC takes the text as a C string.
    CHECK(std::strlen(file.text.data()) == file.text.size());
  }
}

TEST_CASE("device text names no place, no time and no header of a tool kit") {
  for (const TemplateFile& file : template_files()) {
    CAPTURE(file.name);
    for (const char* word : {"__DATE__", "__TIME__", "__FILE__", "__TIMESTAMP__", "#include <"}) {
      CAPTURE(word);
      CHECK(file.text.find(word) == std::string_view::npos);
    }
    CHECK(reached_templates(file.text).ok());
  }
}

TEST_CASE("a unit reaches its includes and theirs, each once, sorted") {
  const auto reached = reached_templates("// text\n  #  include \"conv/causal_conv1d.cuh\"\n");
  REQUIRE(reached.ok());
  CHECK(names_of(*reached) ==
        std::vector<std::string>{"common/async_copy.cuh", "common/copy.cuh", "common/math.cuh",
                                 "common/types.cuh", "common/varlen.cuh", "conv/causal_conv1d.cuh",
                                 "conv/ring.cuh", "conv/window.cuh", "params/conv.h"});
  CHECK(names_of(*reached_templates("#include <common/math.cuh>")) ==
        std::vector<std::string>{"common/math.cuh"});
  CHECK(reached_templates("int x;  // #include \"nothing.cuh\"\n#pragma once\n")->empty());
}

TEST_CASE("what was found when a file was embedded is what its text says") {
  const std::regex include("(?:^|\n)[ \t]*#[ \t]*include[ \t]*\"([^\"]*)\"");
  std::map<std::string, std::set<std::string>> reached;
  for (const TemplateFile& file : template_files()) {
    const std::string source(file.text);
    auto& names = reached[file.name] = {file.name};
    for (std::sregex_iterator it(source.begin(), source.end(), include), end; it != end; ++it)
      if ((*it)[1].str().substr(0, 7) != "caller/") names.insert((*it)[1]);
  }
  // This loop adds the files that are reached over others, until nothing is added.
  for (bool grew = true; grew;) {
    grew = false;
    for (auto& [name, names] : reached) {
      std::set<std::string> more = names;
      for (const std::string& each : names) more.insert(reached[each].begin(), reached[each].end());
      grew = grew || more.size() > names.size();
      names = std::move(more);
    }
  }
  for (const TemplateFile& file : template_files()) {
    CAPTURE(file.name);
    REQUIRE(file.digest_hex != nullptr);
    CHECK(file.digest() == digest(file.text).hex());
    const auto found = reached_templates("#include \"" + std::string(file.name) + "\"\n");
    REQUIRE(found.ok());
    const auto& names = reached[file.name];
    CHECK(names_of(*found) == std::vector<std::string>(names.begin(), names.end()));
  }
}

TEST_CASE("a name that is not embedded is an error that names it and its place") {
  const auto reached = reached_templates("#include \"conv/missing.cuh\"\n");
  REQUIRE(!reached.ok());
  CHECK(reached.status().text().find("conv/missing.cuh") != std::string::npos);
}
