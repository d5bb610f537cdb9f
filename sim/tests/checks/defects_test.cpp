// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the corpus of defective kernels: each defect is found, by the right check, with
// its kind and line, whatever the seed and the policy of copies; its repaired twin is clean under
// every seed and policy, and right.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "sim/exec/tensor_map.h"
#include "sim/tests/checks/defect_case.h"
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr AsyncPolicy kPolicies[] = {AsyncPolicy::eager, AsyncPolicy::lazy, AsyncPolicy::random};
constexpr size_t kWords = 1024;
constexpr uint64_t kSeeds = 20;

std::vector<uint32_t> numbers(size_t n) {
  std::vector<uint32_t> v(n);
  for (size_t k = 0; k < n; ++k) v[k] = static_cast<uint32_t>(3 * k + 1);
  return v;
}

int setting(const DefectCase& c, bool repaired, const std::string& name, int otherwise) {
  if (repaired && c.repaired_launch.count(name)) return c.repaired_launch.at(name);
  return c.launch.count(name) ? c.launch.at(name) : otherwise;
}

// A device, with a buffer for each name that a kernel's parameters may have.
class Bench {
 public:
  Bench() {
    in_ = device_.upload(numbers(kWords));  // a kernel may change it: see run
    small_ = device_.upload(numbers(32));
    freed_ = device_.upload(numbers(kWords));
    device_.memory.release(freed_);
    host_.resize(64);
  }

  Outcome run(const DefectCase& c, const std::shared_ptr<const Module>& module, bool repaired,
              AsyncPolicy policy, uint64_t seed, bool checked = true) {
    std::string log;
    const auto image = load_image(module, device_.memory, &log);
    REQUIRE(image != nullptr);
    Settings settings;
    settings.seed = seed;
    if (repaired || c.check == "regcheck") settings.check |= kRegcheck;
    if (!checked) settings.check = kCheckNone;
    settings.async_policy = policy;
    settings.threads = 2;
    settings.instruction_limit = static_cast<uint64_t>(setting(c, repaired, "limit", 4'000'000));
    const auto input = numbers(kWords);
    std::memcpy(reinterpret_cast<void*>(in_), input.data(), input.size() * 4);
    out_ = device_.upload(std::vector<uint32_t>(kWords, 0));
    fresh_ = device_.buffer(kWords * 4);
    Grid grid;
    grid.kernel = module->find_kernel("k");
    REQUIRE(grid.kernel != nullptr);
    grid.image = image.get();
    grid.grid[0] = static_cast<uint32_t>(setting(c, repaired, "blocks", 1));
    grid.block[0] = static_cast<uint32_t>(setting(c, repaired, "threads", 32));
    grid.cluster[0] = static_cast<uint32_t>(setting(c, repaired, "cluster", 1));
    grid.dynamic_shared_bytes = static_cast<uint32_t>(setting(c, repaired, "dynamic", 0));
    grid.params.resize(grid.kernel->param_bytes);
    const auto& params = grid.kernel->params;
    REQUIRE(params.size() == c.parameters.size());
    for (size_t k = 0; k < params.size(); ++k) {
      place(c.parameters[k], grid.params.data() + params[k].offset);
    }
    Outcome outcome = run_grid(grid, device_.profile, device_.memory, settings);
    words_ = device_.download<uint32_t>(out_, kWords);
    device_.memory.release(out_);
    device_.memory.release(fresh_);
    unload_image(*image, device_.memory);
    return outcome;
  }
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  void place(const std::string& name, uint8_t* at) {
    // 32 columns of 32 words, in boxes of 32 by 8.
    if (name == "map") {
      TensorMapView map;
      map.dtype = 2;
      map.rank = 2;
      map.element_bytes = 4;
      map.base = in_;
      map.dims[0] = map.dims[1] = 32;
      map.strides[0] = 4;
      map.strides[1] = 128;
      map.box[0] = 32;
      map.box[1] = 8;
      encode_tensor_map(map, at);
      return;
    }
    const uint64_t value = name == "in"      ? in_
                           : name == "out"   ? out_
                           : name == "small" ? small_
                           : name == "fresh" ? fresh_
                           : name == "freed" ? freed_
                           : name == "host"  ? reinterpret_cast<uint64_t>(host_.data())
                                             : 0;
    std::memcpy(at, &value, 8);
  }

  Device device_;
  uint64_t in_ = 0, out_ = 0, small_ = 0, fresh_ = 0, freed_ = 0;
  std::vector<uint32_t> host_, words_;
};

std::string describe(const Outcome& o) {
  std::string all = "error " + std::to_string(o.error) + "\n";
  for (const Finding& f : o.findings) {
    all += f.check + " " + f.kind + " line " + std::to_string(f.ptx_line) + " block " +
           std::to_string(f.block[0]) + " thread " + std::to_string(f.thread[0]) + ": " + f.text +
           "\n";
  }
  return all;
}

// Returns the PTX line of a race's other party; 0 if there is none.
template <class F>
int other_line(const F& f) {
  if constexpr (requires { f.other_ptx_line; }) {
    return f.other_ptx_line;
  } else {
    const size_t at = f.text.find("PTX line ");
    return at == std::string::npos ? 0 : std::atoi(f.text.c_str() + at + 9);
  }
}

bool is_it(const DefectCase& c, const Finding& f, int line) {
  if (f.check != c.check || f.kind != c.kind) return false;
  // The schedule decides which party of a race comes second.
  const bool swapped = c.other_line && f.ptx_line == c.other_line && other_line(f) == line;
  if (f.ptx_line != line && !swapped) return false;
  for (const std::string& part : c.texts) {
    if (f.text.find(part) == std::string::npos) return false;
  }
  const auto at = [&](const char* name, uint32_t value) {
    return !c.launch.count(name) || static_cast<uint32_t>(c.launch.at(name)) == value;
  };
  if (!at("thread", f.thread[0]) || !at("block", f.block[0])) return false;
  return !c.other_line || swapped || other_line(f) == c.other_line;
}

// Every line of the defect has its finding, or one of them where that is enough.
bool found(const DefectCase& c, const Outcome& o) {
  const std::vector<int> nowhere = {0};
  size_t lines = 0;
  for (const int line : c.lines.empty() ? nowhere : c.lines) {
    lines += std::any_of(o.findings.begin(), o.findings.end(),
                         [&](const Finding& f) { return is_it(c, f, line); });
  }
  return lines >= (c.any_line ? 1 : std::max<size_t>(1, c.lines.size()));
}

// Returns what the launch of a defective kernel reports but its file does not announce.
std::string surprise(const DefectCase& c, const Outcome& o) {
  if (o.error != c.error) return "error " + std::to_string(o.error);
  for (const Finding& f : o.findings) {
    if (f.kind == c.kind || std::count(c.also.begin(), c.also.end(), f.kind)) continue;
    return f.kind + " at line " + std::to_string(f.ptx_line);
  }
  return "";
}

void expect_defect(const DefectCase& c, Bench& bench) {
  std::string log;
  const auto module = Module::parse(c.defective, &log);
  INFO(log);
  CHECK(module != nullptr);
  if (!module) return;
  for (const AsyncPolicy policy : kPolicies) {
    if (c.policies.count(policy) == 0) continue;
    std::string seen;
    uint64_t hits = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Outcome o = bench.run(c, module, false, policy, seed);
      const bool hit = found(c, o);
      hits += hit;
      if (!hit) seen = "seed " + std::to_string(seed) + ", " + describe(o);
      if (hit && std::getenv("SIM_DEFECTS_SHOW") && hits == 1) {
        std::printf("%s\n%s", c.path.c_str(), describe(o).c_str());
      }
      if (c.some_seeds && !hit) continue;
      const std::string wrong = surprise(c, o);
      CHECK_MESSAGE(wrong.empty(), "seed ", seed, ": ", wrong, ", in ", describe(o));
      if (!wrong.empty()) return;
    }
    CHECK_MESSAGE(hits >= (c.some_seeds ? 1 : kSeeds), "policy ", static_cast<int>(policy),
                  ", found by ", hits, " of ", kSeeds, " seeds: ", c.check, " ", c.kind, "; ",
                  seen);
  }
}

// Without any check the kernel ends as on hardware. (Without memcheck a wild address would end the
// process.)
void expect_unchecked(const DefectCase& c, Bench& bench) {
  if (c.folder == "memcheck" || c.folder == "aligncheck") return;
  std::string log;
  const auto module = Module::parse(c.defective, &log);
  if (!module) return;
  for (const AsyncPolicy policy : c.policies) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const Outcome o = bench.run(c, module, false, policy, seed, false);
      CAPTURE(static_cast<int>(policy));
      CAPTURE(seed);
      INFO(describe(o));
      const bool as_stated = c.unchecked_errors.count(o.error) > 0;
      CHECK(as_stated);
      if (!as_stated) return;
      if (o.error == 0) CHECK(o.findings.empty());
    }
  }
}

void expect_repaired(const DefectCase& c, Bench& bench) {
  std::string log;
  const auto module = Module::parse(c.repaired, &log);
  INFO(log);
  CHECK(module != nullptr);
  if (!module) return;
  const auto in = numbers(kWords);
  for (const AsyncPolicy policy : kPolicies) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Outcome o = bench.run(c, module, true, policy, seed);
      CAPTURE(static_cast<int>(policy));
      CAPTURE(seed);
      INFO(describe(o));
      CHECK(o.error == 0);
      CHECK(o.findings.empty());
      if (o.error || !o.findings.empty()) return;
      for (int i = 0; i < c.count; ++i) {
        const auto want = static_cast<uint32_t>(evaluate(c.expression, i, in));
        const uint32_t got = bench.words()[static_cast<size_t>(i)];
        CAPTURE(i);
        CHECK(got == want);
        if (got != want) return;
      }
    }
  }
}

std::vector<std::filesystem::path> files_of(const std::string& check) {
  std::vector<std::filesystem::path> files;
  const auto root = std::filesystem::path(SIM_DEFECTS) / check;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (entry.path().extension() == ".ptx") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void run_all(const std::string& check, size_t at_least) {
  const auto files = files_of(check);
  CHECK(files.size() >= at_least);
  const char* only = std::getenv("SIM_DEFECTS_ONLY");
  for (const auto& file : files) {
    const std::string name = check + "/" + file.stem().string();
    if (only && name.find(only) == std::string::npos) continue;
    CAPTURE(name);
    const DefectCase c = read_defect(file.string(), check);
    Bench bench;
    expect_defect(c, bench);
    expect_unchecked(c, bench);
    expect_repaired(c, bench);
  }
}

}  // namespace

TEST_CASE("defects: memcheck") { run_all("memcheck", 30); }
TEST_CASE("defects: initcheck") { run_all("initcheck", 18); }
TEST_CASE("defects: racecheck") { run_all("racecheck", 30); }
TEST_CASE("defects: synccheck") { run_all("synccheck", 40); }
TEST_CASE("defects: asynccheck") { run_all("asynccheck", 40); }
TEST_CASE("defects: aligncheck") { run_all("aligncheck", 2); }

TEST_CASE("defects: regcheck") { run_all("regcheck", 5); }

TEST_CASE("the corpus's expressions are C's") {
  const std::vector<uint32_t> in = {5, 6, 7, 8};
  CHECK(evaluate("i * 3 + 1", 4, in) == 13);
  CHECK(evaluate("1 + i % 4 * 2 - (i - 1)", 6, in) == 0);
  CHECK(evaluate("i < 2 ? in[i + 1] : i == 2 ? 0x10 : in[0] ^ 1", 1, in) == 7);
  CHECK(evaluate("i < 2 ? in[i + 1] : i == 2 ? 0x10 : in[0] ^ 1", 2, in) == 16);
  CHECK(evaluate("i < 2 ? in[i + 1] : i == 2 ? 0x10 : in[0] ^ 1", 3, in) == 4);
  CHECK(evaluate("1 << i | 3 & 2", 2, in) == 6);
}
