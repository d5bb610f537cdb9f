// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches, copies and fills of different streams: what no event orders races, whichever ran first
// here; flags that one kernel releases and another acquires order what lies behind them.
#include "sim/check/race_world.h"
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr uint32_t kThreads = 64;

// Each thread has an element of `data`, %w; the flag is at %f, %p holds for thread 0.
std::string kernel(const std::string& name, const std::string& body) {
  return ".visible .entry " + name + R"((.param .u64 data, .param .u64 flag)
{
  .reg .b32 %t, %v;
  .reg .b64 %w, %f;
  .reg .pred %p;
  mov.u32 %t, %tid.x;
  ld.param.u64 %w, [data];
  mul.wide.u32 %f, %t, 4;
  add.u64 %w, %w, %f;
  ld.param.u64 %f, [flag];
  setp.eq.u32 %p, %t, 0;
)" + body +
         "\n  ret;\n}\n";
}

const std::string kWrite = "  st.global.u32 [%w], %t;\n";
const std::string kRead = "  ld.global.u32 %v, [%w];\n";
const std::string kAdd = "  red.global.add.u32 [%w], 1;\n";
const std::string kRelease = "  bar.sync 0;\n  @%p st.release.gpu.global.u32 [%f], 1;\n";
const std::string kAcquire = "  @%p ld.acquire.gpu.global.u32 %v, [%f];\n  bar.sync 0;\n";

struct Streams : Device {
  explicit Streams(const std::string& text) {
    load(unit(text));
    data = upload(std::vector<uint32_t>(kThreads, 0));
    flag = upload(std::vector<uint32_t>(4, 0));
    world = std::make_shared<RaceWorld>();
  }
  Outcome launch(const std::string& name, LaunchOrder where) {
    order = std::move(where);
    return run(name, 1, kThreads, data, flag);
  }
  uint64_t data = 0, flag = 0;
};

// The first is launch 1 of line 1; the second is of line 2, after what `before` says.
std::string second_finds(const std::string& first, const std::string& second,
                         const std::map<uint32_t, uint64_t>& before) {
  Streams streams(kernel("first", first) + kernel("second", second));
  CHECK(kinds(streams.launch("first", {1, 1, {}, {}})) == "");
  const Outcome o = streams.launch("second", {2, 1, before, {}});
  INFO(texts(o));
  for (const Finding& f : o.findings) {
    if (f.kind == "nc_written") continue;
    CHECK(f.other_kernel == "first");
    CHECK(f.text.find("of kernel first: nothing orders the two; work of different streams needs an "
                      "event between them") != std::string::npos);
  }
  return kinds(o);
}

}  // namespace

TEST_CASE("kernels of two streams race unless an event orders them") {
  const struct {
    std::string first, second;
    bool race;
  } cases[] = {{kWrite, kRead, true}, {kRead, kWrite, true}, {kWrite, kWrite, true},
               {kRead, kRead, false}, {kAdd, kAdd, false},   {kAdd, kRead, true},
               {kWrite, "", false}};
  for (const auto& each : cases) {
    CAPTURE(each.first);
    CAPTURE(each.second);
    CHECK(second_finds(each.first, each.second, {}) == (each.race ? "race" : ""));
    CHECK(second_finds(each.first, each.second, {{1, 1}}) == "");
  }
}

TEST_CASE("a flag orders what two kernels do at the same time") {
  CHECK(second_finds(kWrite + kRelease, kAcquire + kRead, {}) == "");
  CHECK(second_finds(kWrite + kRelease, kRead + kAcquire, {}) == "race");
  CHECK(second_finds(kWrite, kAcquire + kRead, {}) == "race");
  // Accesses after the release are not ordered by it.
  CHECK(second_finds(kRelease + kWrite, kAcquire + kRead, {}) == "race");
}

TEST_CASE("who acquires from a kernel learns what came before that one") {
  for (const bool acquires : {true, false}) {
    Streams streams(kernel("first", kWrite) + kernel("between", kRelease) +
                    kernel("last", (acquires ? kAcquire : "") + kRead));
    CHECK(kinds(streams.launch("first", {1, 1, {}, {}})) == "");
    CHECK(kinds(streams.launch("between", {1, 2, {{1, 1}}, {}})) == "");
    CHECK(kinds(streams.launch("last", {2, 1, {}, {}})) == (acquires ? "" : "race"));
  }
}

TEST_CASE("the order of two launches of one stream says nothing of a third's") {
  Streams streams(kernel("first", kWrite) + kernel("second", kRead) + kernel("third", kWrite));
  CHECK(kinds(streams.launch("first", {1, 1, {}, {}})) == "");
  CHECK(kinds(streams.launch("second", {1, 2, {{1, 1}}, {}})) == "");
  // An event behind the first: the third comes after the write, but not after the read.
  const Outcome o = streams.launch("third", {2, 1, {{1, 1}}, {}});
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].other_kernel == "second");
}

TEST_CASE("reads through the read-only cache end with their kernel") {
  const std::string cached = "  ld.global.nc.u32 %v, [%w];\n";
  CHECK(second_finds(cached, kWrite, {{1, 1}}) == "");
  CHECK(second_finds(kWrite, cached, {{1, 1}}) == "");
  CHECK(second_finds(cached, kWrite, {}) == "race");
  CHECK(second_finds(kWrite, cached, {}) == "race");
  CHECK(second_finds(cached, cached + kWrite, {{1, 1}}) == "nc_written");
}

TEST_CASE("copies and fills race with kernels of other streams") {
  for (const bool writes : {true, false}) {
    for (const bool ordered : {true, false}) {
      CAPTURE(writes);
      CAPTURE(ordered);
      Streams streams(kernel("first", writes ? kWrite : kRead) + kernel("last", kWrite));
      streams.launch("first", {1, 1, {}, {}});
      std::map<uint32_t, uint64_t> before;
      if (ordered) before[1] = 1;
      // From the middle of an element on.
      const Move read = {"copy", {2, 1, before, {}}, 0, streams.data + 130, 60};
      const auto reads = race_move(*streams.world, read);
      CHECK(reads.size() == (writes && !ordered ? 1 : 0));
      if (!reads.empty()) {
        CHECK(reads[0].text.find("the copy's read of global address 0x") == 0);
        CHECK(reads[0].other_kernel == "first");
      }
      // A fill that comes after the copy, too, if it is ordered at all.
      if (ordered) before[2] = 1;
      const Move write = {"fill", {3, 1, before, {}}, streams.data + 130, 0, 60};
      CHECK(race_move(*streams.world, write).size() == (ordered ? 0 : 2));
      const Outcome last = streams.launch("last", {4, 1, {{1, 1}, {2, 1}}, {}});
      REQUIRE(last.findings.size() == 1);
      CHECK(last.findings[0].other_access == "fill");
    }
  }
}

TEST_CASE("memory that was freed meanwhile is another memory") {
  Streams streams(kernel("first", kWrite) + kernel("second", kWrite));
  streams.launch("first", {1, 1, {}, {}});
  streams.world->forget(streams.data, 4 * kThreads);
  CHECK(kinds(streams.launch("second", {2, 1, {}, {}})) == "");
}
