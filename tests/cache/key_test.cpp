// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The key changes with everything that can alter the code and with nothing else. The table of
// embedded files is this test's own, so that a source can change by one byte.
#include "cache/key.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <set>

#include "codegen/templates.h"
#include "tests/cache/support.h"

namespace {

std::string common = "#pragma once\nstruct Common {};\n";
std::string kernel_text = "#include \"common/types.cuh\"\nvoid kernel();\n";

}  // namespace

// In place of the one that codegen embeds.
const std::vector<lathe::TemplateFile>& lathe::template_files() {
  static std::vector<TemplateFile> files;
  files = {{"common/types.cuh", common}, {"conv/a.cuh", kernel_text}, {"conv/b.cuh", kernel_text}};
  return files;
}

using namespace lathe;

namespace {

struct Parts {
  KernelSpec spec;
  std::string unit = "#include \"conv/a.cuh\"\n";
  std::string arch = "sm_90a", compiler = "nvrtc 13.0 65be0db3";
  std::vector<std::string> options = {"-std=c++17", "--ptxas-options=-v"};

  Parts() {
    spec.kernel = std::string("a");
    spec.source = "conv/a.cuh";
    spec.threads = 128;
    spec.constants = {Constant::type("x", "Element", Dtype::bf16),
                      Constant::integer("width", "kWidth", 4),
                      Constant::flag("silu", "kSilu", true)};
  }
  Result<Key> key() const { return make_key(spec.text(), unit, arch, compiler, options); }
};

}  // namespace

TEST_CASE("the text is the one that the cache reference shows") {
  const Result<Key> key = Parts().key();
  REQUIRE(key.ok());
  CHECK(key->text ==
        "lathe-key 1\narch=sm_90a\ncompiler=nvrtc 13.0 65be0db3\n"
        "option=--ptxas-options=-v\noption=-std=c++17\nsource=common/types.cuh " +
            digest(common).hex() + "\nsource=conv/a.cuh " + digest(kernel_text).hex() +
            "\nspec=" + Parts().spec.text() + "\nunit=" + digest(Parts().unit).hex() + "\n");
  CHECK(key->digest == digest(key->text));
}

TEST_CASE("the digest is canonical XXH3-128") {
  // The value that xxHash documents for the empty input with seed 0.
  CHECK(digest("").hex() == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("each single change gives another key") {
  const std::vector<std::function<void(Parts&)>> changes = {
      [](Parts&) {},
      [](Parts& p) { p.arch = std::string("sm_90"); },
      [](Parts& p) { p.compiler = "nvrtc 13.0 65be0db4"; },
      [](Parts& p) { p.compiler = "nvrtc 13.1 65be0db3"; },
      [](Parts& p) { p.options.push_back("-lineinfo"); },
      [](Parts& p) { p.options.pop_back(); },
      [](Parts& p) { p.options[0] = "-std=c++20"; },
      [](Parts& p) { p.unit += " "; },
      [](Parts& p) { p.unit = "#include \"conv/b.cuh\"\n"; },
      [](Parts& p) { p.spec.kernel = std::string("b"); },
      [](Parts& p) { p.spec.threads = 256; },
      [](Parts& p) { p.spec.smem_bytes = 1024; },
      [](Parts& p) { p.spec.constants[0].value = static_cast<int>(Dtype::f16); },
      [](Parts& p) { p.spec.constants[1].value = 5; },
      [](Parts& p) { p.spec.constants[2].value = 0; },
      [](Parts& p) { p.spec.constants.pop_back(); },
      [](Parts&) { common[3] ^= 1; },
      [](Parts&) { kernel_text += "\n"; },
  };
  std::set<std::string> texts, digests;
  for (const auto& change : changes) {
    const std::string common_before = common, kernel_before = kernel_text;
    Parts parts;
    change(parts);
    const Result<Key> key = parts.key();
    REQUIRE(key.ok());
    texts.insert(key->text);
    digests.insert(key->digest.hex());
    common = common_before;
    kernel_text = kernel_before;
  }
  CHECK(texts.size() == changes.size());
  CHECK(digests.size() == changes.size());
}

TEST_CASE("the order of options, the place and the environment do not matter") {
  const std::string before = Parts().key()->text;
  Parts turned;
  std::swap(turned.options[0], turned.options[1]);
  CHECK(turned.key()->text == before);

  const test::TemporaryDirectory elsewhere;
  const auto here = std::filesystem::current_path();
  const test::Environment home("HOME", elsewhere.path());
  const test::Environment cache("LATHE_CACHE_DIR", elsewhere / "cache");
  const test::Environment user("USER", "somebody");
  std::filesystem::current_path(elsewhere.path());
  CHECK(Parts().key()->text == before);
  std::filesystem::current_path(here);
}

TEST_CASE("a newline or an unknown source is refused") {
  Parts parts;
  parts.compiler = "nvrtc\nspec=other";
  const Result<Key> with_newline = parts.key();
  REQUIRE_FALSE(with_newline.ok());
  CHECK(with_newline.status().text().find("compiler") != std::string::npos);

  Parts unknown;
  unknown.unit = "#include \"conv/c.cuh\"\n";
  const Result<Key> without_source = unknown.key();
  REQUIRE_FALSE(without_source.ok());
  CHECK(without_source.status().text().find("conv/c.cuh") != std::string::npos);
}
