// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: what a grid does before griddepcontrol.wait is not in order with
// the grid in front of it. Found under every seed; with the wait in its place, nothing is.
#include "sim/check/race_world.h"
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr uint32_t kThreads = 64, kBlocks = 3;

// The first kernel: out[i] = i. `last` comes after its stores.
std::string first(const std::string& last = "griddepcontrol.launch_dependents;") {
  return R"(.visible .entry first(.param .u64 out)
{
  .reg .b32 %t, %n, %i, %v;
  .reg .b64 %out, %w;
  mov.u32 %t, %tid.x;
  mov.u32 %n, %ctaid.x;
  mad.lo.u32 %i, %n, 64, %t;
  ld.param.u64 %out, [out];
  mul.wide.u32 %w, %i, 4;
  add.u64 %w, %out, %w;
  st.global.u32 [%w], %i;
)" + last +
         "\n  ret;\n}\n";
}

// The second, from line 22 of the unit on: `body` has the address of its element of the first
// array, %w, and of its own, %x.
std::string second(const std::string& body, const std::string& name = "second") {
  return ".visible .entry " + name + R"((.param .u64 out, .param .u64 own)
{
  .reg .b32 %t, %n, %i, %v;
  .reg .b64 %out, %w, %x;
  .reg .pred %p;
  .shared .align 16 .b8 s[256];
  mov.u32 %t, %tid.x;
  mov.u32 %n, %ctaid.x;
  mad.lo.u32 %i, %n, 64, %t;
  setp.eq.u32 %p, %t, 0;
  ld.param.u64 %out, [out];
  mul.wide.u32 %w, %i, 4;
  add.u64 %w, %out, %w;
  ld.param.u64 %out, [own];
  mul.wide.u32 %x, %i, 4;
  add.u64 %x, %out, %x;
)" + body +
         "\n  ret;\n}\n";
}

struct Pair : Device {
  explicit Pair(const std::string& text) {
    load(unit(text));
    out = upload(std::vector<uint32_t>(kThreads * kBlocks, 0));
    own = upload(std::vector<uint32_t>(kThreads * kBlocks, 0));
    world = std::make_shared<RaceWorld>();
  }
  Outcome start() {
    order = {1, 1, {}, {}};
    dependence = std::make_shared<Dependence>();
    return run("first", kBlocks, kThreads, out);
  }
  // The next launch in the stream, which may start early.
  Outcome follow(const std::string& name = "second") {
    order.early = dependence->early_for_next(order);
    order.before = {{1, order.number++}};
    dependence = std::make_shared<Dependence>();
    return run(name, kBlocks, kThreads, out, own);
  }
  uint64_t out = 0, own = 0;
};

template <class F>
void each_run(F f) {
  for (const AsyncPolicy policy : {AsyncPolicy::eager, AsyncPolicy::lazy, AsyncPolicy::random}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(seed);
      f(policy, seed);
    }
  }
}

void finds(const std::string& body, const std::string& access, const std::string& other) {
  CAPTURE(body);
  each_run([&](AsyncPolicy policy, uint64_t seed) {
    Pair pair(first() + second(body));
    pair.settings.async_policy = policy;
    pair.settings.seed = seed;
    pair.start();
    const Outcome o = pair.follow();
    INFO(texts(o));
    REQUIRE(o.findings.size() == 1);
    const Finding& f = o.findings[0];
    CHECK(f.check == "racecheck");
    CHECK(f.kind == "race");
    CHECK(f.text.find(access + " global address") == 0);
    CHECK(f.text.find("of kernel first: it may still run, so griddepcontrol.wait") !=
          std::string::npos);
    CHECK(f.other_kernel == "first");
    CHECK(f.other_access == other);
    CHECK(f.other_ptx_line == 14);
  });
}

void clean(const std::string& body, const std::string& front = first()) {
  CAPTURE(body);
  each_run([&](AsyncPolicy policy, uint64_t seed) {
    Pair pair(front + second(body));
    pair.settings.async_policy = policy;
    pair.settings.seed = seed;
    pair.start();
    const Outcome o = pair.follow();
    INFO(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
  });
}

const std::string kWait = "  griddepcontrol.wait;\n";
const std::string kLoad = "  ld.global.u32 %v, [%w];\n  st.global.u32 [%x], %v;\n";
const std::string kStore = "  st.global.u32 [%w], %i;\n";
const std::string kCopy = R"(  mov.u32 %v, s;
  mad.lo.u32 %v, %t, 4, %v;
  cp.async.ca.shared.global [%v], [%w], 4;
  cp.async.wait_all;
)";

}  // namespace

TEST_CASE("dependent launch: accesses before the wait race") {
  finds(kLoad + kWait, "load from", "store");
  finds(kStore + kWait, "store to", "store");
  finds(kCopy + kWait, "copy on", "store");
  finds("  red.global.add.u32 [%w], 1;\n", "atomic on", "store");
}

TEST_CASE("dependent launch: the wait orders, also for those whom a barrier orders after it") {
  clean(kWait + kLoad);
  clean(kWait + kStore);
  clean(kWait + kCopy);
  clean("  @%p griddepcontrol.wait;\n  bar.sync 0;\n" + kLoad);
  // The wait of one warp alone is nobody else's.
  Pair pair(first() + second("  @%p griddepcontrol.wait;\n" + kLoad));
  pair.start();
  const Outcome o = pair.follow();
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].thread[0] >= 32);
}

TEST_CASE("dependent launch: other memory, and a front that lets nobody start, do not race") {
  clean("  st.global.u32 [%x], %i;\n" + kWait);
  clean(kLoad, first(""));
}

TEST_CASE("dependent launch: whoever has not waited leaves that to the next") {
  const std::string trigger = "  griddepcontrol.launch_dependents;\n";
  const struct {
    std::string control;
    size_t races;
  } cases[] = {{trigger, 1}, {kWait + trigger, 0}, {trigger + kWait, 1}, {kWait, 0}, {"", 1}};
  for (const auto& each : cases) {
    CAPTURE(each.control);
    Pair pair(first() + second("  st.global.u32 [%x], %i;\n" + each.control, "middle") +
              second(kLoad));
    pair.start();
    const Outcome middle = pair.follow("middle");
    INFO(texts(middle));
    CHECK(middle.findings.empty());
    pair.own = pair.upload(std::vector<uint32_t>(kThreads * kBlocks, 0));
    const Outcome last = pair.follow();
    INFO(texts(last));
    CHECK(last.findings.size() == each.races);
  }
}
