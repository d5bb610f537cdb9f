// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover safetensors: what is written is read back, and no lie in a file is believed.
#include "api/cli/inputs/safetensors.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "api/cli/failure.h"
#include "api/cli/output.h"

using namespace lathe::cli;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "lathe-safetensors-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

std::string file_text(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + std::string(data_bytes, 'x');
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Returns the message of the refusal; fails the test if there is none.
std::string refusal(const fs::path& path) {
  try {
    read_safetensors(path);
  } catch (const Failure& failure) {
    CHECK(failure.code == kBadInput);
    return failure.what();
  }
  FAIL("the file was believed");
  return "";
}

HostTensor counted(lathe_dtype dtype, std::vector<int64_t> shape) {
  HostTensor tensor = empty_tensor({dtype, std::move(shape)});
  for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = static_cast<std::byte>(i * 7);
  return tensor;
}

TensorMap sample() {
  return {{"x", counted(LATHE_BF16, {2, 3, 5})},  {"weight", counted(LATHE_F32, {5, 4})},
          {"half", counted(LATHE_F16, {7})},      {"cu_seqlens", counted(LATHE_I64, {3})},
          {"ids", counted(LATHE_I32, {1, 1, 1})}, {"nothing", counted(LATHE_F32, {0, 4})},
          {"scalar", counted(LATHE_F32, {})}};
}

std::string written(const TensorMap& tensors) {
  std::ostringstream out;
  write_safetensors(out, tensors);
  return out.str();
}

}  // namespace

TEST_CASE("what is written is read back") {
  const Folder folder;
  write_safetensors_file(folder / "a", sample());
  CHECK(folder.files() == 1);  // nothing temporary stays
  const TensorMap back = read_safetensors(folder / "a");
  const TensorMap expected = sample();
  REQUIRE(back.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    REQUIRE(back.contains(name));
    CHECK(back.at(name).spec.dtype == tensor.spec.dtype);
    CHECK(back.at(name).spec.shape == tensor.spec.shape);
    CHECK(back.at(name).data == tensor.data);
  }
  const Specs header = read_safetensors_header(folder / "a");
  CHECK(header.at("x").shape == std::vector<int64_t>{2, 3, 5});
}

TEST_CASE("the data section is aligned to 8 bytes") {
  uint64_t length = 0;
  std::memcpy(&length, written(sample()).data(), 8);
  CHECK(length % 8 == 0);
}

TEST_CASE("no tensors at all is a file too") {
  const Folder folder;
  write_safetensors_file(folder / "a", {});
  CHECK(read_safetensors(folder / "a").empty());
}

TEST_CASE("a failed write leaves nothing") {
  const Folder folder;
  fs::create_directory(folder / "taken");
  CHECK_THROWS_AS(write_safetensors_file(folder / "taken", sample()), Failure);
  CHECK(folder.files() == 1);
  CHECK_THROWS_AS(check_output("--output", folder / "taken"), Failure);
  CHECK_THROWS_AS(check_output("--output", folder / "no/where"), Failure);
  CHECK(folder.files() == 1);
}

TEST_CASE("writing follows no link, neither of its own name nor of a temporary one") {
  const Folder folder;
  write(folder / "victim", "precious");
  fs::create_symlink(folder / "victim", folder / "link");
  // The name that a temporary file had before names were random.
  fs::create_symlink(folder / "victim", folder / ("a.tmp." + std::to_string(getpid())));
  write_safetensors_file(folder / "a", sample());
  CHECK(fs::symlink_status(folder / "a").type() == fs::file_type::regular);
  CHECK_THROWS_AS(write_safetensors_file(folder / "link", sample()), Failure);
  CHECK(fs::is_symlink(folder / "link"));
  std::ostringstream text;
  text << std::ifstream(folder / "victim").rdbuf();
  CHECK(text.str() == "precious");
}

// Reading took a minute for 40,000 and an hour for these.
TEST_CASE("a header of 100,000 tensors is read") {
  const Folder folder;
  std::string header = "{";
  for (int i = 0; i < 100000; ++i) {
    header += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  write(folder / "a", file_text(header + "}", 0));
  CHECK(read_safetensors_header(folder / "a").size() == 100000);
  write(folder / "a", file_text(header + R"(,"t7":{}})", 0));
  CHECK(refusal(folder / "a").find("\"t7\" stands twice") != std::string::npos);
}

TEST_CASE("a header begins with a brace and is all of its text") {
  using namespace std::string_literals;
  const Folder folder;
  for (const std::string& header :
       {" {}"s, "\xef\xbb\xbf{}"s, "\n{}"s, "{}\0garbage"s, "{}\0"s, "{}{}"s, "\0{}"s}) {
    CAPTURE(header);
    write(folder / "a", file_text(header, 0));
    CHECK(refusal(folder / "a").find("the header is not") != std::string::npos);
  }
  write(folder / "a", file_text("{}   ", 0));
  CHECK(read_safetensors(folder / "a").empty());
}

TEST_CASE("every truncation is refused") {
  const Folder folder;
  const std::string whole = written(sample());
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    write(folder / "a", whole.substr(0, size));
    refusal(folder / "a");
  }
  write(folder / "a", whole + "x");
  CHECK(refusal(folder / "a").find("bytes of data") != std::string::npos);
}

TEST_CASE("a flipped header byte is refused or changes a name only") {
  const Folder folder;
  const std::string whole = written(sample());
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  for (size_t i = 0; i < 8 + length; ++i) {
    for (const unsigned bit : {0u, 3u, 6u, 7u}) {
      std::string bad = whole;
      bad[i] = static_cast<char>(bad[i] ^ (1u << bit));
      write(folder / "a", bad);
      try {
        size_t bytes = 0;
        for (const auto& [name, tensor] : read_safetensors(folder / "a")) {
          bytes += tensor.data.size();
        }
        CHECK(bytes == whole.size() - 8 - length);
      } catch (const Failure& failure) {
        CHECK(failure.code == kBadInput);
      }
    }
  }
}

TEST_CASE("lying headers are refused, with the reason") {
  struct Lie {
    const char* header;
    size_t data_bytes;
    const char* reason;
  };
  const Lie lies[] = {
      {"", 0, "not valid JSON"},
      {"[]", 0, "not a JSON object"},
      {"{", 0, "not valid JSON"},
      {"{} x", 0, "not valid JSON"},
      {R"({"x":1})", 0, "its entry is not"},
      {R"({"x":{"shape":[1],"data_offsets":[0,4]}})", 4, "no dtype"},
      {R"({"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "allowed: F32"},
      {R"({"x":{"dtype":3,"shape":[1],"data_offsets":[0,8]}})", 8, "no dtype"},
      {R"({"x":{"dtype":"F32","data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"x":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"x":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"x":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
       "shape must be"},
      {R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "too large"},
      {R"({"x":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "too large"},
      {R"({"x":{"dtype":"F32","shape":[1]}})", 4, "data_offsets must be"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets must be"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "begin <= end"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "the file has 3"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "the file has 5"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "takes 8 bytes"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "leaving a gap"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("y":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "overlapping"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "overlapping"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "stands twice"},
      {R"({"x":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}})", 4,
       "stands twice"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"note":1}})", 4, "\"note\""},
      {R"({"__metadata__":[]})", 0, "__metadata__"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__"},
  };
  const Folder folder;
  for (const Lie& lie : lies) {
    CAPTURE(lie.header);
    write(folder / "a", file_text(lie.header, lie.data_bytes));
    CHECK(refusal(folder / "a").find(lie.reason) != std::string::npos);
  }
}

TEST_CASE("the header length is compared with the file before memory is taken") {
  const Folder folder;
  for (const uint64_t length : {uint64_t{9}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string text = file_text("{}", 0);
    std::memcpy(text.data(), &length, 8);
    write(folder / "a", text);
    CHECK(refusal(folder / "a").find("header length") != std::string::npos);
  }
}

TEST_CASE("what is no file is refused") {
  const Folder folder;
  CHECK(refusal(folder / "none").find("no such file") != std::string::npos);
  fs::create_directory(folder / "folder");
  CHECK(refusal(folder / "folder").find("regular file") != std::string::npos);
}

TEST_CASE("a hostile name stays on one line") {
  const Folder folder;
  write(folder / "a", file_text(R"({"a\nb\u0007":1})", 0));
  const std::string text = refusal(folder / "a");
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.find("\\x0a") != std::string::npos);
}

TEST_CASE("metadata is skipped") {
  const Folder folder;
  write(folder / "a", file_text(R"({"__metadata__":{"op":"conv"}, )"
                                R"("x":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}   )",
                                4));
  CHECK(read_safetensors(folder / "a").size() == 1);
}
