// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover bad tensors of a call, by table: what every run checks on the host.
#include "ops/tensors.h"

#include <doctest/doctest.h>

#include <functional>

#include "ops/conv/schema.h"
#include "tests/harness/problems.h"

namespace {

using lathe::Dim;
using test::Array;
using test::contains;

// The tensors of one call, good until a test breaks one of them.
using Fixture = test::DeclaredCall;

void* address(uintptr_t value) { return reinterpret_cast<void*>(value); }

Fixture packed() {
  Fixture fixture("causal_conv1d", {{"x", LATHE_BF16, {-1, -1, 64}},
                                    {"weight", LATHE_F32, {64, 4}},
                                    {"initial_state", LATHE_BF16, {-1, 64, 4}},
                                    {"cu_seqlens", LATHE_I32, {-1}},
                                    {"y", LATHE_BF16, {-1, -1, 64}}});
  fixture.arrays["x"] = Array(LATHE_BF16, {1, 100, 64}, address(0x10000));
  fixture.arrays["weight"] = Array(LATHE_F32, {64, 4}, address(0x20000));
  fixture.arrays["initial_state"] = Array(LATHE_BF16, {3, 64, 4}, address(0x30000));
  fixture.arrays["cu_seqlens"] = Array(LATHE_I32, {4}, address(0x40000));
  fixture.arrays["y"] = Array(LATHE_BF16, {1, 100, 64}, address(0x50000));
  return fixture;
}

Fixture batched() {
  Fixture fixture("causal_conv1d", {{"x", LATHE_F16, {-1, -1, 64}},
                                    {"weight", LATHE_F32, {64, 4}},
                                    {"y", LATHE_F16, {-1, -1, 64}},
                                    {"final_state", LATHE_F16, {-1, 64, 4}}});
  fixture.arrays["x"] = Array(LATHE_F16, {2, 100, 64}, address(0x10000));
  fixture.arrays["weight"] = Array(LATHE_F32, {64, 4}, address(0x20000));
  fixture.arrays["y"] = Array(LATHE_F16, {2, 100, 64}, address(0x30000));
  fixture.arrays["final_state"] = Array(LATHE_F16, {2, 64, 4}, address(0x40000));
  return fixture;
}

TEST_CASE("a good call is read into extents, addresses and strides") {
  Fixture fixture = packed();
  lathe::Call call;
  REQUIRE(fixture.read(&call).ok());
  CHECK(call.extents[Dim::B] == 1);
  CHECK(call.extents[Dim::T] == 100);
  CHECK(call.extents[Dim::N] == 3);
  CHECK(call.extents[Dim::D] == 64);
  CHECK(call.tensors[lathe::conv::x].stride[1] == 64);
  CHECK(call.tensors[lathe::conv::bias].data == nullptr);

  Fixture rows = batched();
  rows.arrays["x"].strides = {200 * 96, 96, 1};
  rows.arrays["x"].view.byte_offset = 32;
  lathe::Call again;
  REQUIRE(rows.read(&again).ok());
  CHECK(again.extents[Dim::N] == 2);
  CHECK(again.tensors[lathe::conv::x].stride[0] == 200 * 96);
  CHECK(again.tensors[lathe::conv::x].stride[1] == 96);
  CHECK(again.tensors[lathe::conv::x].data == address(0x10020));
}

TEST_CASE("tokens may be outside, batches inside") {
  Fixture fixture = batched();
  fixture.arrays["x"].strides = {64, 128, 1};
  lathe::Call call;
  CHECK(fixture.read(&call).ok());
}

struct Bad {
  const char* what;
  std::function<void(std::map<std::string, Array>&)> breaks;
  std::vector<const char*> text;
};

const Bad kBadPacked[] = {
    {"a missing tensor", [](auto& a) { a.erase("y"); }, {"y (slot", "is NULL"}},
    {"another dtype",
     [](auto& a) { a["x"].view.dtype.code = kDLFloat; },
     {"x has dtype f16", "allowed is bf16"}},
    {"unsigned offsets",
     [](auto& a) { a["cu_seqlens"].view.dtype.code = kDLUInt; },
     {"cu_seqlens has dtype u32", "i32"}},
    {"lanes", [](auto& a) { a["x"].view.dtype.lanes = 2; }, {"x has dtype bf16 in 2 lanes"}},
    {"another rank",
     [](auto& a) {
       a["weight"].shape = {64, 4, 1};
     },
     {"weight has rank 3", "[D,W]"}},
    {"another D than declared",
     [](auto& a) { a["x"].shape[2] = 63; },
     {"x has shape [1, 100, 63]", "D = 64"}},
    {"another W", [](auto& a) { a["weight"].shape[1] = 3; }, {"weight", "W is 3", "W = 4"}},
    {"tokens that disagree",
     [](auto& a) { a["y"].shape[1] = 99; },
     {"y has shape [1, 99, 64]", "T is 99", "T = 100"}},
    {"sequences that disagree",
     [](auto& a) { a["cu_seqlens"].shape[0] = 5; },
     {"cu_seqlens has shape [5]", "N is 4", "N = 3"}},
    {"no offsets", [](auto& a) { a["cu_seqlens"].shape[0] = 0; }, {"cu_seqlens", "[0]", "1 to"}},
    {"packed and a batch",
     [](auto& a) { a["x"].shape[0] = a["y"].shape[0] = 2; },
     {"cu_seqlens", "B = 2"}},
    {"a negative extent", [](auto& a) { a["x"].shape[1] = -1; }, {"x", "-1", "0 to 2147483647"}},
    {"an extent past 2^31",
     [](auto& a) { a["x"].shape[1] = int64_t{1} << 31; },
     {"x", "2147483648"}},
    {"a null address", [](auto& a) { a["x"].view.data = nullptr; }, {"x has a NULL address"}},
    {"a host address",
     [](auto& a) { a["y"].view.device.device_type = kDLCPU; },
     {"y is on CPU memory", "kDLCUDA"}},
    {"another device",
     [](auto& a) { a["y"].view.device.device_id = 3; },
     {"y", "(2, 3)", "(2, 0)"}},
    {"a misaligned activation",
     [](auto& a) { a["x"].view.byte_offset = 8; },
     {"x is at 0x10008", "16 bytes"}},
    {"a misaligned weight",
     [](auto& a) { a["weight"].view.byte_offset = 2; },
     {"weight is at 0x20002", "4 bytes"}},
    {"an output over an input",
     [](auto& a) { a["y"].view.data = a["x"].view.data; },
     {"y lies from 0x10000", "x from 0x10000"}},
};

const Bad kBadBatched[] = {
    {"a channel stride",
     [](auto& a) {
       a["x"].strides = {12800, 128, 2};
     },
     {"x has strides [12800, 128, 2]", "must be 1"}},
    {"a negative stride",
     [](auto& a) {
       a["x"].strides = {6400, -64, 1};
     },
     {"x", "negative"}},
    {"tokens that overlap",
     [](auto& a) {
       a["x"].strides = {6400, 56, 1};
     },
     {"x", "overlap", "at 1", "at least 64"}},
    {"tokens that are one",
     [](auto& a) {
       a["x"].strides = {6400, 0, 1};
     },
     {"x", "overlap"}},
    {"rows that overlap",
     [](auto& a) {
       a["y"].strides = {6336, 64, 1};
     },
     {"y", "overlap", "at 0", "at least 6400"}},
    {"strides past 2^63",
     [](auto& a) {
       a["x"].strides = {int64_t{1} << 62, 64, 1};
     },
     {"x", "2^63"}},
    {"a stride off the declared alignment",
     [](auto& a) {
       a["x"].strides = {6800, 68, 1};
     },
     {"x has stride 68 at 1", "136 bytes", "multiples of 16"}},
    {"a state with strides",
     [](auto& a) {
       a["final_state"].strides = {512, 4, 1};
     },
     {"final_state", "contiguous"}},
    {"a weight with strides",
     [](auto& a) {
       a["weight"].strides = {8, 1};
     },
     {"weight", "contiguous"}},
    {"a state of another batch",
     [](auto& a) { a["final_state"].shape[0] = 3; },
     {"N = 3", "B = 2"}},
};

template <size_t kCount>
void refuse_all(const Bad (&table)[kCount], Fixture (*make)()) {
  for (const Bad& bad : table) {
    INFO(bad.what);
    Fixture fixture = make();
    bad.breaks(fixture.arrays);
    lathe::Call call;
    const lathe::Status status = fixture.read(&call);
    INFO(status.text());
    CHECK(status.code() == lathe::Code::invalid_argument);
    for (const char* part : bad.text) {
      INFO(part);
      CHECK(contains(status.text(), part));
    }
  }
}

TEST_CASE("bad tensors are refused, with names and values") {
  refuse_all(kBadPacked, packed);
  refuse_all(kBadBatched, batched);
}

TEST_CASE(
    "an input may repeat along a dimension where the plan's kernels allow it, an output never") {
  Fixture fixture = batched();
  fixture.arrays["x"].strides = {0, 64, 1};
  lathe::Call call;
  CHECK(contains(fixture.read(&call).text(), "the stride at 0 is 0"));
  for (lathe::Slot& slot : fixture.slots) slot.repeats = !slot.written;
  CHECK(fixture.read(&call).ok());
  CHECK(call.tensors[lathe::conv::x].stride[0] == 0);
  fixture.arrays["x"].strides = {0, 32, 1};
  CHECK(contains(fixture.read(&call).text(), "the stride at 1 must be at least 64"));
  fixture.arrays["x"].strides = {0, 0, 1};
  CHECK(fixture.read(&call).ok());
  fixture.arrays["y"].strides = {0, 64, 1};
  CHECK(contains(fixture.read(&call).text(), "the stride at 0 must be at least"));
}

TEST_CASE("shapes alone need no addresses") {
  Fixture fixture = packed();
  for (auto& [name, array] : fixture.arrays) array.view.data = nullptr;
  lathe::Call call;
  CHECK(fixture.read(&call, lathe::Checks::shapes).ok());
}

TEST_CASE("empty tensors need no address, and strides of one row do not matter") {
  Fixture fixture = batched();
  for (const char* name : {"x", "y"}) {
    fixture.arrays[name].shape = {2, 0, 64};
    fixture.arrays[name].strides = {0, -3, 5};
    fixture.arrays[name].view.data = nullptr;
  }
  lathe::Call call;
  CHECK(fixture.read(&call).ok());

  Fixture one = batched();
  one.arrays["x"].shape = one.arrays["y"].shape = {1, 100, 64};
  one.arrays["final_state"].shape = {1, 64, 4};
  one.arrays["x"].strides = {-7, 64, 1};
  lathe::Call again;
  CHECK(one.read(&again).ok());
  CHECK(again.tensors[lathe::conv::x].stride[0] == 6400);
}

TEST_CASE("an undeclared D asks for no more alignment than an element") {
  Fixture fixture("causal_conv1d", {{"x", LATHE_BF16, {-1, -1, -1}},
                                    {"weight", LATHE_BF16, {-1, 4}},
                                    {"y", LATHE_BF16, {-1, -1, -1}}});
  fixture.arrays["x"] = Array(LATHE_BF16, {1, 9, 7}, address(0x10002));
  fixture.arrays["weight"] = Array(LATHE_BF16, {7, 4}, address(0x20002));
  fixture.arrays["y"] = Array(LATHE_BF16, {1, 9, 7}, address(0x30006));
  lathe::Call call;
  CHECK(fixture.read(&call).ok());
}

TEST_CASE("products that pass 2^63 are refused") {
  CHECK(*lathe::checked_product("x", {3, 5, 7}) == 105);
  CHECK(*lathe::checked_product("x", {0, INT64_MAX, INT64_MAX}) == 0);
  const auto refused = lathe::checked_product("the workspace", {int64_t{1} << 40, 1 << 30});
  CHECK(contains(refused.status().text(), "the workspace passes 2^63"));
}

}  // namespace
