// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests are generated: over specs of every template that makes a kernel, each single
// ingredient changed gives another key, no two of all these agree, and what is no ingredient
// changes nothing. The table of embedded files is read from the tree here, so that each of its
// bytes can change.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <set>

#include "cache/key.h"
#include "codegen/includes.h"
#include "codegen/source.h"
#include "codegen/templates.h"
#include "tests/cache/support.h"

using namespace lathe;
namespace files = std::filesystem;

namespace {

// name -> text of templates/, as the build embeds it but for the line that names it.
std::vector<std::pair<std::string, std::string>>& tree() {
  static auto all = [] {
    std::vector<std::pair<std::string, std::string>> out;
    const files::path root = LATHE_SOURCE_DIR "/templates";
    for (const auto& item : files::recursive_directory_iterator(root)) {
      const std::string suffix = item.path().extension();
      if (suffix == ".cuh" || suffix == ".h")
        out.emplace_back(files::relative(item.path(), root),
                         for_device(test::read_file(item.path())));
    }
    std::sort(out.begin(), out.end());
    return out;
  }();
  return all;
}

}  // namespace

// In place of the table that codegen embeds.
const std::vector<TemplateFile>& lathe::template_files() {
  static std::vector<TemplateFile> table;
  table.clear();
  for (const auto& [name, text] : tree()) table.push_back({name.c_str(), text});
  return table;
}

namespace {

struct Parts {
  KernelSpec spec;
  std::string arch = "sm_90a", compiler = "nvrtc 13.0 65be0db342ad51a06876e71e210bccc5aa8322cf";
  std::vector<std::string> options = {"--no-source-include", "--ptxas-options=-v", "-std=c++17"};
  Result<Key> key() const {
    return make_key(spec.text(), emit_unit(spec, arch), arch, compiler, options);
  }
};

using Random = std::mt19937_64;
int below(Random& random, int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); }

// A template that makes kernels: not a header of parameters, and none that others include.
std::vector<std::string> kernel_templates() {
  std::set<std::string> included;
  for (const auto& [name, text] : tree())
    for (const auto& [other, unused] : tree())
      if (text.find("\"" + other + "\"") != text.npos) included.insert(other);
  std::vector<std::string> out;
  for (const auto& [name, text] : tree())
    if (!included.count(name) && name.substr(name.size() - 4) == ".cuh") out.push_back(name);
  return out;
}

Parts generate(Random& random, const std::string& source) {
  Parts out;
  KernelSpec& spec = out.spec;
  spec.source = source;
  spec.kernel = files::path(source).stem();
  spec.params = "Params";
  spec.params_bytes = 8 * (1 + below(random, 40));
  spec.last_field = "last";
  spec.last_field_offset = spec.params_bytes - 4;
  spec.threads = 32 << below(random, 5);
  if (below(random, 2) == 0) {
    spec.smem = "Smem";
    spec.smem_bytes = 16 * (1 + below(random, 4000));
  }
  for (int i = 0, n = 3 + below(random, 6); i < n; ++i) {
    const std::string number = std::to_string(i), name = "c" + number, member = "kC" + number;
    switch (below(random, 3)) {
      case 0:
        spec.constants.push_back(
            Constant::type(name, member, static_cast<Dtype>(below(random, 3))));
        break;
      case 1:
        spec.constants.push_back(Constant::integer(name, member, below(random, 300)));
        break;
      default:
        spec.constants.push_back(Constant::flag(name, member, below(random, 2) == 0));
    }
  }
  for (const char* mod : {"score_mod", "mask_mod"})
    if (below(random, 3) == 0) spec.mods.push_back({mod, "where.cuh", "return score * 0.5f;"});
  return out;
}

using Change = std::function<void(Parts&)>;

// Every single change of an ingredient that `parts` has.
std::vector<std::pair<std::string, Change>> ingredients(const Parts& parts) {
  std::vector<std::pair<std::string, Change>> out;
  const auto add = [&](std::string what, Change change) {
    out.emplace_back(std::move(what), std::move(change));
  };
  add("kernel", [](Parts& p) { p.spec.kernel += "x"; });
  add("params", [](Parts& p) { p.spec.params += "x"; });
  add("params_bytes", [](Parts& p) { p.spec.params_bytes += 8; });
  add("last_field", [](Parts& p) { p.spec.last_field += "x"; });
  add("last_field_offset", [](Parts& p) { p.spec.last_field_offset -= 4; });
  add("smem", [](Parts& p) { p.spec.smem += "x"; });
  add("smem_bytes", [](Parts& p) { p.spec.smem_bytes += 16; });
  add("threads", [](Parts& p) { p.spec.threads += 32; });
  for (size_t i = 0; i < parts.spec.constants.size(); ++i) {
    const std::string name = parts.spec.constants[i].name;
    const bool flag = parts.spec.constants[i].kind == Constant::Kind::flag;
    add("value of " + name, [i, flag](Parts& p) {
      long long& value = p.spec.constants[i].value;
      value = flag ? !value : value < 2 ? value + 1 : value - 1;
    });
    add("name of " + name, [i](Parts& p) { p.spec.constants[i].name += "x"; });
    add("member of " + name, [i](Parts& p) { p.spec.constants[i].member += "x"; });
    add("without " + name,
        [i](Parts& p) { p.spec.constants.erase(p.spec.constants.begin() + static_cast<long>(i)); });
  }
  add("another constant",
      [](Parts& p) { p.spec.constants.push_back(Constant::integer("more", "kMore", 1)); });
  for (size_t i = 0; i < parts.spec.mods.size(); ++i) {
    add("mod's text", [i](Parts& p) { p.spec.mods[i].text[7] ^= 1; });
    add("mod's end", [i](Parts& p) { p.spec.mods[i].text += " "; });
    add("mod's name", [i](Parts& p) {
      std::string& name = p.spec.mods[i].name;
      name = name == "score_mod" ? "mask_mod" : "score_mod";
    });
    add("without a mod",
        [i](Parts& p) { p.spec.mods.erase(p.spec.mods.begin() + static_cast<long>(i)); });
  }
  for (const char* arch : {"sm_90", "sm_100a", "sm_90f", "sm_9"})
    add(std::string("arch ") + arch, [arch](Parts& p) { p.arch = arch; });
  add("compiler's build", [](Parts& p) { p.compiler.back() ^= 1; });
  add("compiler's version", [](Parts& p) { p.compiler[9] ^= 1; });
  for (size_t i = 0; i < parts.options.size(); ++i) {
    add("option changed", [i](Parts& p) { p.options[i].back() ^= 1; });
    add("option dropped",
        [i](Parts& p) { p.options.erase(p.options.begin() + static_cast<long>(i)); });
    add("option twice", [i](Parts& p) { p.options.push_back(p.options[i]); });
  }
  add("option added", [](Parts& p) { p.options.push_back("-lineinfo"); });
  add("options run together", [](Parts& p) {
    p.options[0] += " " + p.options[1];
    p.options.erase(p.options.begin() + 1);
  });
  return out;
}

std::string text_of(const Parts& parts) {
  const Result<Key> key = parts.key();
  REQUIRE_MESSAGE(key.ok(), key.status().text());
  CHECK(key->digest == digest(key->text));
  return key->text;
}

uint64_t seed() {
  const char* given = std::getenv("LATHE_TEST_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 20261122;
}

}  // namespace

TEST_CASE("each single ingredient changed gives a key that no other change gives") {
  CAPTURE(seed());
  Random random(seed());
  size_t tried = 0;
  std::set<std::string> texts, digests;
  const std::vector<std::string> sources = kernel_templates();
  CHECK(sources.size() > 30);
  for (const std::string& source : sources) {
    const Parts base = generate(random, source);
    REQUIRE(texts.insert(text_of(base)).second);
    ++tried;
    for (const auto& [what, change] : ingredients(base)) {
      // Two mods of one name are nothing that a caller can ask for.
      if (what == "mod's name" && base.spec.mods.size() == 2) continue;
      CAPTURE(source);
      CAPTURE(what);
      Parts changed = base;
      change(changed);
      const Result<Key> key = changed.key();
      REQUIRE(key.ok());
      CHECK(texts.insert(key->text).second);
      digests.insert(key->digest.hex());
      ++tried;
    }
  }
  CHECK(texts.size() == tried);
  CHECK(digests.size() == tried - sources.size());
}

TEST_CASE("one byte of any source that is reached gives another key, of any other the same") {
  CAPTURE(seed());
  Random random(seed());
  size_t reached = 0, beyond = 0;
  for (const std::string& source : kernel_templates()) {
    Parts parts = generate(random, source);
    const std::string before = text_of(parts);
    for (auto& [name, text] : tree()) {
      CAPTURE(source);
      CAPTURE(name);
      // In the first line, the copyright's, behind the slashes: no include line stands there.
      const size_t at = 3 + static_cast<size_t>(below(random, 20));
      REQUIRE(text.find('\n') > at);
      text[at] ^= 1;
      const Result<Key> after = parts.key();
      text[at] ^= 1;
      REQUIRE(after.ok());
      // "source=<name> " stands in the text if the file is reached.
      const bool is_reached = before.find("\nsource=" + name + " ") != before.npos;
      CHECK((after->text != before) == is_reached);
      ++(is_reached ? reached : beyond);
    }
    CHECK(text_of(parts) == before);
  }
  CHECK(reached > 200);
  CHECK(beyond > 200);
}

TEST_CASE("every byte of a source counts, its comments and blanks too") {
  Random random(seed());
  Parts parts = generate(random, "conv/causal_conv1d_halo_add.cuh");
  const std::string before = text_of(parts);
  for (auto& [name, text] : tree()) {
    if (name != parts.spec.source) continue;
    for (size_t at = 0; at < text.size(); ++at) {
      text[at] ^= 1;
      const Result<Key> after = parts.key();
      text[at] ^= 1;
      // A name that no file has is refused, which is no key at all.
      if (after.ok()) CHECK(after->text != before);
    }
    for (size_t bytes = 0; bytes < text.size(); bytes += 7) {
      const std::string whole = text;
      text.resize(bytes);
      CHECK(text_of(parts) != before);
      text = whole;
    }
  }
}

TEST_CASE("what is no ingredient changes nothing") {
  CAPTURE(seed());
  Random random(seed());
  for (const std::string& source : kernel_templates()) {
    const Parts base = generate(random, source);
    const std::string before = text_of(base);
    Parts other = base;
    for (Mod& mod : other.spec.mods) mod.file = "/another/place/of.cuh";
    std::vector<std::string>& options = other.options;
    std::sort(options.begin(), options.end());
    do CHECK(text_of(other) == before);
    while (std::next_permutation(options.begin(), options.end()));
  }
  const Parts base = generate(random, "conv/causal_conv1d.cuh");
  const std::string before = text_of(base);
  const test::TemporaryDirectory elsewhere;
  const files::path here = files::current_path();
  for (const char* name : {"HOME", "USER", "LOGNAME", "LATHE_CACHE_DIR", "LATHE_NVRTC", "TMPDIR",
                           "CUDA_HOME", "LD_LIBRARY_PATH", "LANG", "TZ", "SOURCE_DATE_EPOCH"}) {
    const test::Environment variable(name, elsewhere / name);
    files::current_path(elsewhere.path());
    CHECK(text_of(base) == before);
    files::current_path(here);
  }
}

TEST_CASE("a key names no place, time, user or host") {
  Random random(seed());
  for (const std::string& source : kernel_templates()) {
    const std::string text = text_of(generate(random, source));
    CHECK(text.find(LATHE_SOURCE_DIR) == text.npos);
    CHECK(text.find(" /") == text.npos);
    CHECK(text.find("=/") == text.npos);
    CHECK(text.substr(0, 12) == "lathe-key 1\n");  // the format's number, alone on its line
  }
}

TEST_CASE("a value cannot pretend to be another line") {
  Random random(seed());
  const Parts base = generate(random, "conv/causal_conv1d.cuh");
  const std::vector<Change> tricks = {
      [](Parts& p) { p.arch = "sm_90a\ncompiler=other"; },
      [](Parts& p) { p.compiler += "\noption=-G"; },
      [](Parts& p) { p.options[1] += "\nspec=other"; },
      [](Parts& p) { p.spec.kernel += "\nunit=0"; },
      [](Parts& p) { p.spec.constants[0].name += "\n"; },
  };
  for (const Change& trick : tricks) {
    Parts parts = base;
    trick(parts);
    CHECK_FALSE(parts.key().ok());
  }
}
