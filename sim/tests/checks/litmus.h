// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A litmus test is a kernel in a right form and in broken ones, run under many seeds. Lines end
// with tags ("// A"), which findings are compared with.
#pragma once

#include <algorithm>
#include <set>

#include "sim/tests/kernel_run.h"

namespace sim::test {

// The kernel's registers are: %t thread, %w warp, %l lane, %c block; %rd1 and %rd2: zeroed words a
// and b; %r8: shared s, of which %r9 is the thread's word. Each statement has a line of its own.
inline std::string litmus_kernel(const std::string& body) {
  return R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb) {
  .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<40>; .reg .b64 %rd<10>;
  .reg .b32 %t; .reg .b32 %w; .reg .b32 %l; .reg .b32 %c;
  .shared .align 16 .b8 s[4096];
  mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; shr.u32 %w, %t, 5; and.b32 %l, %t, 31;
  ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pb];
  mov.u32 %r8, s; mad.lo.u32 %r9, %t, 4, %r8; mad.wide.u32 %rd3, %t, 4, %rd1;
)" + body +
         "\nEND:\n  ret;\n}\n";
}

// Returns the line with this tag; 0 if none.
inline int tagged(const std::string& text, const std::string& tag) {
  const size_t at = text.find("// " + tag + "\n");
  if (at == std::string::npos) return 0;
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
}

struct Edit {
  std::string from, to;  // in the right form
  std::string pairs =
      "AB";  // what is found: tags by twos, or one alone; the first pair for certain
  std::string kind = "race";
};

struct Litmus {
  std::string name;
  uint32_t blocks, threads;
  std::string body;
  std::vector<Edit> broken;
  uint32_t cluster = 1;
};

inline Outcome run_litmus(const std::string& text, const Litmus& test, uint64_t seed,
                          uint32_t check = kCheckAll) {
  Device device;
  device.settings.seed = seed;
  device.cluster = test.cluster;
  device.settings.check = check & ~kInitcheck;  // what a broken form reads may be too early
  device.settings.instruction_limit = 20'000'000;
  device.load(text);
  const uint64_t a = device.upload(std::vector<uint32_t>(1024, 0));
  const uint64_t b = device.upload(std::vector<uint32_t>(64, 0));
  return device.run("k", test.blocks, test.threads, a, b);
}

constexpr uint64_t kLitmusSeeds = 20;

inline void check_right(const Litmus& test) {
  const std::string text = litmus_kernel(test.body);
  for (uint64_t seed = 0; seed < kLitmusSeeds; ++seed) {
    const Outcome o = run_litmus(text, test, seed);
    CAPTURE(test.name);
    CAPTURE(seed);
    CAPTURE(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
  }
}

// Checks that every finding is one of the pairs, and that the first is found.
inline void check_broken(const Litmus& test, const Edit& edit) {
  std::string body = test.body;
  const size_t at = body.find(edit.from);
  CAPTURE(test.name);
  CAPTURE(edit.from);
  REQUIRE(at != std::string::npos);
  body.replace(at, edit.from.size(), edit.to);
  const std::string text = litmus_kernel(body);
  std::set<std::pair<int, int>> wanted;
  std::pair<int, int> first;
  if (edit.pairs.size() == 1) {  // a finding that has no other party
    first = {0, tagged(text, edit.pairs)};
    REQUIRE(first.second != 0);
    wanted.insert(first);
  }
  for (size_t k = 0; k + 1 < edit.pairs.size(); k += 2) {
    const int x = tagged(text, edit.pairs.substr(k, 1)),
              y = tagged(text, edit.pairs.substr(k + 1, 1));
    REQUIRE(x * y != 0);
    wanted.insert(std::minmax(x, y));
    if (k == 0) first = std::minmax(x, y);
  }
  // Some forms are also wrong in other ways: a race is looked for alone.
  const bool race = edit.kind == "race" || edit.kind == "narrow_scope";
  const uint32_t check = race ? kCheckAll & ~kAsynccheck : kCheckAll;
  int found = 0;
  for (uint64_t seed = 0; seed < kLitmusSeeds; ++seed) {
    const Outcome o = run_litmus(text, test, seed, check);
    CAPTURE(seed);
    CAPTURE(texts(o));
    CHECK(o.error == 0);
    for (const Finding& f : o.findings) {
      const std::pair<int, int> lines = std::minmax(f.ptx_line, f.other_ptx_line);
      CHECK(f.kind == edit.kind);
      CHECK(f.check == (race ? "racecheck" : "asynccheck"));
      CHECK(wanted.count(lines) == 1);
      found += lines == first;
    }
  }
  CHECK(found > 0);
}

inline void check_litmus(const std::string& name, uint32_t blocks, uint32_t threads,
                         const std::string& body, const std::vector<Edit>& broken,
                         uint32_t cluster = 1) {
  const Litmus test = {name, blocks, threads, body, broken, cluster};
  check_right(test);
  for (const Edit& edit : test.broken) check_broken(test, edit);
}

}  // namespace sim::test
