// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/nvrtc_memo/memo.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

const memo::Source kSource = {
    "entry.cu",
    "#include \"a.cuh\"\nint f;\n",
    {{"a.cuh", "  #  include <b.cuh>\n"}, {"b.cuh", "int b;\n"}, {"c.cuh", "int c;\n"}}};

std::string key(const memo::Source& source) {
  return memo::key_of("nvrtc", source, {"-arch=sm_80"});
}

struct Folder {
  std::string path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-memo-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("a memo's key holds what is reached, and nothing else") {
  const std::string plain = key(kSource);
  CHECK(plain.size() == 32);
  memo::Source other = kSource;
  other.headers[2].second = "int d;\n";
  CHECK(key(other) == plain);
  for (const size_t reached : {0, 1}) {
    other = kSource;
    other.headers[reached].second += ' ';
    CHECK(key(other) != plain);
  }
  other = kSource;
  other.text += ' ';
  CHECK(key(other) != plain);
  other = kSource;
  other.name = "other.cu";
  CHECK(key(other) != plain);
  CHECK(memo::key_of("another", kSource, {"-arch=sm_80"}) != plain);
  CHECK(memo::key_of("nvrtc", kSource, {"-arch=sm_90"}) != plain);
  CHECK(memo::key_of("nvrtc", kSource, {"-arch=", "sm_80"}) != plain);
}

TEST_CASE("what a memo cannot know is not kept") {
  for (const char* text : {"#include NAME\n", "#include \"absent.cuh\"\n", "#include \"a.cuh\n",
                           "#if __has_include(\"a.cuh\")\n#endif\n"}) {
    memo::Source source = kSource;
    source.text = text;
    CHECK_MESSAGE(key(source).empty(), text);
  }
  CHECK(memo::key_of("nvrtc", kSource, {"-I/somewhere"}).empty());
}

TEST_CASE("a memo gives what was saved, or nothing") {
  const Folder folder;
  const memo::Outputs saved = {"log", std::string("ptx\0", 4), std::string("\0cubin:5:", 9)};
  CHECK_FALSE(memo::load(folder.path, key(kSource)));
  memo::save(folder.path, key(kSource), saved);
  const auto loaded = memo::load(folder.path, key(kSource));
  REQUIRE(loaded);
  CHECK(loaded->log == saved.log);
  CHECK(loaded->ptx == saved.ptx);
  CHECK(loaded->cubin == saved.cubin);

  const std::string path = folder.path + '/' + key(kSource).substr(0, 2) + '/' + key(kSource);
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    for (const std::string& bad : {flipped, whole.substr(0, i)}) {
      std::ofstream(path, std::ios::binary) << bad;
      CHECK_FALSE(memo::load(folder.path, key(kSource)));
    }
  }
}

TEST_CASE("a memo that cannot be written is passed over") {
  const Folder folder;
  std::ofstream(folder.path + "/file") << "in the way";
  memo::save(folder.path + "/file", key(kSource), {"log", "ptx", "cubin"});
  CHECK_FALSE(memo::load(folder.path + "/file", key(kSource)));
}
