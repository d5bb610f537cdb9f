// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention without a device: every refusal by table, what a problem becomes, and calls that
// end before a launch.
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "api/attention_plan.h"
#include "api/convert.h"
#include "tests/api/support.h"

namespace {

using lathe::Code;
using test::Array;
using test::Builder;
using test::contains;
using test::error;

const std::vector<test::Declaration> kBatched = {{"q", LATHE_BF16, {-1, -1, 8, 64}},
                                                 {"k", LATHE_BF16, {-1, -1, 2, 64}},
                                                 {"v", LATHE_BF16, {-1, -1, 2, 128}},
                                                 {"out", LATHE_BF16, {-1, -1, 8, 128}},
                                                 {"lse", LATHE_F32, {-1, 8, -1}}};
const std::vector<test::Declaration> kPacked = {
    {"q", LATHE_F16, {-1, 8, 64}},     {"k", LATHE_F16, {-1, 2, 64}},
    {"v", LATHE_F16, {-1, 2, 128}},    {"cu_seqlens_q", LATHE_I64, {-1}},
    {"cu_seqlens_k", LATHE_I64, {-1}}, {"out", LATHE_F16, {-1, 8, 128}},
    {"lse", LATHE_F32, {8, -1}}};

using Declare = std::function<void(Builder&)>;

// As lathe_plan_create does it, up to the choice of kernels.
lathe::Result<lathe::AttentionRequest> request(const std::vector<test::Declaration>& tensors,
                                               const Declare& declare, int alignment = 16) {
  Builder builder("flash_attention");
  builder.tensors(tensors);
  declare(builder);
  if (builder.status != LATHE_OK) return lathe::Status(static_cast<Code>(builder.status), error());
  REQUIRE(lathe_problem_alignment(builder.problem.get(), alignment) == LATHE_OK);
  const auto promised = lathe::check_problem(*builder.problem);
  if (!promised.ok()) return promised.status();
  return lathe::attention_request(*builder.problem, *promised);
}

void nothing(Builder&) {}

// A tensor of kBatched or kPacked, declared otherwise.
std::vector<test::Declaration> with(std::vector<test::Declaration> tensors,
                                    const test::Declaration& other) {
  for (auto& each : tensors) {
    if (each.name == other.name) {
      each = other;
      return tensors;
    }
  }
  tensors.push_back(other);
  return tensors;
}
std::vector<test::Declaration> without(std::vector<test::Declaration> tensors,
                                       const std::string& name) {
  std::erase_if(tensors, [&](const auto& each) { return each.name == name; });
  return tensors;
}

struct Bad {
  std::vector<test::Declaration> tensors;
  std::vector<const char*> text;  // all in the refusal
};

TEST_CASE("tensors that do not fit are refused by name, with what is allowed") {
  const Bad bad[] = {
      {without(kBatched, "q"), {"q is not declared"}},
      {without(kBatched, "v"), {"v is not declared"}},
      {without(without(kBatched, "out"), "lse"), {"nothing to compute", "out"}},
      {without(kBatched, "lse"), {"out", "without lse"}},
      {with(kBatched, {"q", LATHE_I32, {-1, -1, 8, 64}}), {"q", "i32", "f16|bf16"}},
      {with(kBatched, {"k", LATHE_F16, {-1, -1, 2, 64}}), {"k", "f16", "bf16", "of q"}},
      {with(kBatched, {"lse", LATHE_BF16, {-1, 8, -1}}), {"lse", "bf16", "f32"}},
      {with(kBatched, {"q", LATHE_BF16, {8, 64}}), {"q", "rank 2", "[B,Sq,H,D]", "[Tq,H,D]"}},
      {with(kBatched, {"k", LATHE_BF16, {-1, -1, 2, 72}}), {"k", "72", "D is 72", "D is 64"}},
      {with(kBatched, {"v", LATHE_BF16, {-1, -1, 4, 128}}), {"v", "HK is 4", "HK is 2"}},
      {with(kBatched, {"out", LATHE_BF16, {-1, -1, 8, 64}}), {"out", "DV is 64", "DV is 128"}},
      {with(with(kBatched, {"q", LATHE_BF16, {-1, -1, 8, 60}}), {"k", LATHE_BF16, {-1, -1, 2, 60}}),
       {"D = 60", "multiples of 8 up to 256"}},
      {with(with(kBatched, {"q", LATHE_BF16, {-1, -1, 8, 264}}),
            {"k", LATHE_BF16, {-1, -1, 2, 264}}),
       {"D = 264", "multiples of 8 up to 256"}},
      {with(with(kBatched, {"q", LATHE_BF16, {-1, -1, 8, 0}}), {"k", LATHE_BF16, {-1, -1, 2, 0}}),
       {"D = 0", "multiples of 8 up to 256"}},
      {with(with(kBatched, {"q", LATHE_BF16, {-1, -1, 8, -1}}), {"k", LATHE_BF16, {-1, -1, 2, -1}}),
       {"D = -1", "must be given", "multiple of 8 up to 256"}},
      {with(with(kBatched, {"v", LATHE_BF16, {-1, -1, 2, 12}}),
            {"out", LATHE_BF16, {-1, -1, 8, 12}}),
       {"v has DV = 12", "multiples of 8 up to 256"}},
      {with(with(kBatched, {"k", LATHE_BF16, {-1, -1, 3, 64}}),
            {"v", LATHE_BF16, {-1, -1, 3, 128}}),
       {"H = 8", "HK = 3", "multiple of HK"}},
      {with(with(kBatched, {"k", LATHE_BF16, {-1, -1, 0, 64}}),
            {"v", LATHE_BF16, {-1, -1, 0, 128}}),
       {"H = 8", "HK = 0"}},
      {with(kBatched, {"sinks", LATHE_F32, {7}}), {"sinks", "H is 7", "H is 8"}},
      {with(kBatched, {"sinks", LATHE_BF16, {8}}), {"sinks", "bf16", "f32"}},
      {with(kBatched, {"alibi_slopes", LATHE_F32, {7}}), {"alibi_slopes", "H is 7", "H is 8"}},
      {with(with(kBatched, {"q", LATHE_BF16, {3, -1, 8, 64}}), {"alibi_slopes", LATHE_F32, {2, 8}}),
       {"alibi_slopes", "B is 2", "B is 3"}},
      {with(kBatched, {"alibi_slopes", LATHE_F32, {1, 2, 8}}),
       {"alibi_slopes", "rank 3", "[H]", "[B,H]"}},
      // Packed and not, mixed.
      {with(kBatched, {"cu_seqlens_q", LATHE_I32, {-1}}), {"cu_seqlens_q", "without cu_seqlens_k"}},
      {with(kBatched, {"cu_seqlens_k", LATHE_I32, {-1}}), {"cu_seqlens_k", "without cu_seqlens_q"}},
      {without(kPacked, "cu_seqlens_k"), {"cu_seqlens_q", "without cu_seqlens_k"}},
      {without(without(kPacked, "cu_seqlens_q"), "cu_seqlens_k"),
       {"q has rank 3", "[Tq,H,D]", "allowed is [B,Sq,H,D]", "without cu_seqlens_q"}},
      {with(kPacked, {"v", LATHE_F16, {-1, -1, 2, 128}}),
       {"v has rank 4", "allowed is [Tk,HK,DV]", "with cu_seqlens_q"}},
      {with(kPacked, {"lse", LATHE_F32, {-1, 8, -1}}), {"lse has rank 3", "allowed is [H,Tq]"}},
      {with(kPacked, {"cu_seqlens_k", LATHE_I32, {-1}}),
       {"cu_seqlens_k", "i32", "i64", "of cu_seqlens_q"}},
      {with(kPacked, {"cu_seqlens_k", LATHE_F32, {-1}}), {"cu_seqlens_k", "f32", "i32|i64"}},
      {with(kPacked, {"cu_seqlens_q", LATHE_I64, {0}}), {"cu_seqlens_q", "[0]", "1 to"}},
      {with(with(kPacked, {"cu_seqlens_q", LATHE_I64, {4}}), {"cu_seqlens_k", LATHE_I64, {5}}),
       {"cu_seqlens_k", "N is 4", "N is 3"}},
      {with(with(kPacked, {"cu_seqlens_q", LATHE_I64, {4}}), {"alibi_slopes", LATHE_F32, {2, 8}}),
       {"alibi_slopes has B = 2", "N = 3"}},
      {with(kBatched, {"dlse", LATHE_F32, {-1, 8, -1}}), {"dlse", "without dout"}},
      {with(kBatched, {"dq", LATHE_BF16, {-1, -1, 8, 64}}), {"dq", "without dout"}},
      {with(kBatched, {"dout", LATHE_BF16, {-1, -1, 8, 64}}), {"dout", "DV is 64", "DV is 128"}},
  };
  for (const Bad& each : bad) {
    const auto found = request(each.tensors, nothing);
    CAPTURE(each.text[0]);
    REQUIRE_FALSE(found.ok());
    CHECK(found.status().code() == Code::invalid_argument);
    for (const char* part : each.text) {
      CHECK_MESSAGE(contains(found.status().text(), part), found.status().text());
    }
  }
}

TEST_CASE("options out of range are refused with the value and what is allowed") {
  const struct {
    const char *option, *value, *text;
  } bad[] = {
      {"softmax_scale", "0", "D^-0.5|>0"},
      {"softmax_scale", "-1", "D^-0.5|>0"},
      {"softmax_scale", "nan", "D^-0.5|>0"},
      {"softmax_scale", "inf", "D^-0.5|>0"},
      {"softmax_scale", "1e-60", "D^-0.5|>0"},
      {"softmax_scale", "1e60", "D^-0.5|>0"},
      {"softmax_scale", ">0", "D^-0.5|>0"},
      {"softmax_scale", "", "D^-0.5|>0"},
      {"softcap", "-0.5", "0|>0"},
      {"softcap", "inf", "0|>0"},
      {"softcap", "1e39", "0|>0"},
      {"window_left", "-2", "-1|>=0"},
      {"window_right", "-2", "-1|>=0"},
      {"window_left", "1.5", "-1|>=0"},
      {"causal", "2", "0|1"},
      {"deterministic", "yes", "0|1"},
      {"score_mod", "", "none|FILE"},
      {"window_left", "9223372036854775808", "-1|>=0"},
  };
  for (const auto& each : bad) {
    CAPTURE(each.option);
    CAPTURE(each.value);
    const auto found = request(kBatched, [&](Builder& b) { b.set(each.option, each.value); });
    REQUIRE_FALSE(found.ok());
    CHECK(found.status().code() == Code::invalid_argument);
    CHECK(contains(found.status().text(), each.option));
    CHECK(contains(found.status().text(), std::string("'") + each.value + "'"));
    CHECK_MESSAGE(contains(found.status().text(), each.text), found.status().text());
  }
}

TEST_CASE("what has no kernels is UNSUPPORTED, by name") {
  const auto check = [](const lathe::Result<lathe::AttentionRequest>& found, const char* name) {
    CAPTURE(name);
    REQUIRE_FALSE(found.ok());
    CHECK(found.status().code() == Code::unsupported);
    CHECK_MESSAGE(contains(found.status().text(), name), found.status().text());
  };
  check(request(with(kBatched, {"dout", LATHE_BF16, {-1, -1, 8, 128}}), nothing), "dout");
  check(request(kBatched, [](Builder& b) { b.set("score_mod", "bias.cuh"); }), "score_mod");
  check(request(kBatched, [](Builder& b) { b.set("mask_mod", "mask.cuh"); }), "mask_mod");
  check(request(kBatched, nothing, 8), "alignment is 8");
}

TEST_CASE("a problem becomes flags of the code and numbers of the launch") {
  const auto plain = request(kBatched, nothing);
  REQUIRE_MESSAGE(plain.ok(), plain.status().text());
  CHECK(plain->problem.element == lathe::Dtype::bf16);
  CHECK(plain->problem.head_dim == 64);
  CHECK(plain->problem.value_dim == 128);
  CHECK(plain->problem.forward);
  CHECK_FALSE(plain->problem.packed);
  CHECK_FALSE(plain->problem.local);
  CHECK_FALSE(plain->problem.softcap);
  CHECK_FALSE(plain->problem.alibi);
  CHECK_FALSE(plain->problem.sinks);
  CHECK(plain->softmax_scale == 0.125f);
  CHECK(plain->window_left == -1);
  CHECK(plain->window_right == -1);
  CHECK(plain->ratio == 4);

  const auto rich =
      request(with(with(kPacked, {"sinks", LATHE_F32, {8}}), {"alibi_slopes", LATHE_F32, {-1, 8}}),
              [](Builder& b) {
                b.set("causal", "1").set("window_left", "7").set("window_right", "3");
                b.set("softcap", "15").set("softmax_scale", "0.2");
              });
  REQUIRE_MESSAGE(rich.ok(), rich.status().text());
  // A default may be given by its own name, and an integer in any spelling.
  const auto same = request(kBatched, [](Builder& b) {
    b.set("softmax_scale", "D^-0.5").set("causal", "01").set("score_mod", "none");
  });
  REQUIRE_MESSAGE(same.ok(), same.status().text());
  CHECK(same->softmax_scale == 0.125f);
  CHECK(same->window_right == 0);

  CHECK(rich->problem.packed);
  CHECK(rich->problem.cu_seqlens == lathe::Dtype::i64);
  CHECK(rich->problem.local);
  CHECK(rich->problem.softcap);
  CHECK(rich->problem.alibi);
  CHECK(rich->problem.sinks);
  CHECK(rich->alibi_rows);
  CHECK(rich->window_left == 7);
  CHECK(rich->window_right == 0);  // causal overrides it
  CHECK(rich->softcap == 15.0f);
  CHECK(rich->softmax_scale == 0.2f);
}

// A call of kBatched or kPacked; nothing of it is ever launched.
struct Fixture {
  Builder builder{"flash_attention"};
  lathe::Extents promised;
  std::vector<lathe::Slot> slots;
  std::map<std::string, Array> arrays;
  std::unique_ptr<lathe::Work> work;

  explicit Fixture(const std::vector<test::Declaration>& tensors) {
    builder.tensors(tensors);
    REQUIRE(builder.status == LATHE_OK);
    const auto checked = lathe::check_problem(*builder.problem);
    REQUIRE_MESSAGE(checked.ok(), checked.status().text());
    promised = *checked;
    slots = lathe::make_slots(*builder.problem, promised);
    auto made = lathe::make_work(*builder.problem, promised, *lathe::facts_of_arch("sm_80"));
    REQUIRE_MESSAGE(made.ok(), made.status().text());
    work = std::move(*made);
  }
  lathe::Status run() {
    std::vector<const DLTensor*> tensors;
    uintptr_t address = 0;
    for (const lathe::Slot& slot : slots) {
      Array& array = arrays.at(slot.name);
      array.view.data = reinterpret_cast<void*>(address += 0x100000);
      tensors.push_back(array.get());
    }
    lathe::Call call;
    LATHE_TRY(lathe::read_call(*builder.problem->op, slots, promised, tensors.data(),
                               lathe::Look::all, 0, &call));
    LATHE_TRY(work->workspace_bytes(call));
    return work->run(call);
  }
  void batched(int64_t batch, int64_t queries, int64_t keys, int64_t heads = 8) {
    arrays["q"] = Array(LATHE_BF16, {batch, queries, heads, 64});
    arrays["k"] = Array(LATHE_BF16, {batch, keys, 2, 64});
    arrays["v"] = Array(LATHE_BF16, {batch, keys, 2, 128});
    arrays["out"] = Array(LATHE_BF16, {batch, queries, heads, 128});
    arrays["lse"] = Array(LATHE_F32, {batch, heads, queries});
  }
  void packed(int64_t sequences, int64_t queries, int64_t keys) {
    arrays["q"] = Array(LATHE_F16, {queries, 8, 64});
    arrays["k"] = Array(LATHE_F16, {keys, 2, 64});
    arrays["v"] = Array(LATHE_F16, {keys, 2, 128});
    arrays["cu_seqlens_q"] = Array(LATHE_I64, {sequences + 1});
    arrays["cu_seqlens_k"] = Array(LATHE_I64, {sequences + 1});
    arrays["out"] = Array(LATHE_F16, {queries, 8, 128});
    arrays["lse"] = Array(LATHE_F32, {8, queries});
  }
};

TEST_CASE("nothing to write: no launch") {
  Fixture fixture(kBatched);
  fixture.batched(0, 16, 16);
  CHECK(fixture.run().ok());
  fixture.batched(2, 0, 16);
  CHECK(fixture.run().ok());
  fixture.batched(2, 0, 0);
  CHECK(fixture.run().ok());
  Fixture packed(kPacked);
  packed.packed(3, 0, 16);
  CHECK(packed.run().ok());
  packed.packed(0, 0, 0);
  CHECK(packed.run().ok());
}

TEST_CASE("calls that do not fit are refused before a launch") {
  const auto refused = [](Fixture& fixture, std::vector<const char*> parts,
                          Code code = Code::invalid_argument) {
    const lathe::Status found = fixture.run();
    CHECK(found.code() == code);
    for (const char* part : parts) CHECK_MESSAGE(contains(found.text(), part), found.text());
  };
  Fixture fixture(kBatched);
  fixture.batched(2, 0, 16);
  fixture.arrays["k"] = Array(LATHE_BF16, {2, 17, 2, 64});
  refused(fixture, {"v has shape [2, 16, 2, 128]", "Sk is 16", "Sk = 17"});
  fixture.batched(2, 16, 16);
  fixture.arrays["k"] = Array(LATHE_BF16, {3, 16, 2, 64});
  refused(fixture, {"k has shape [3, 16, 2, 64]", "B is 3", "B = 2"});
  fixture.batched(2, 16, 16);
  fixture.arrays["lse"] = Array(LATHE_F32, {2, 8, 15});
  refused(fixture, {"lse", "Sq is 15", "Sq = 16"});
  // Rows of 16 bytes: any token stride that is a multiple of 8 elements, and no other.
  fixture.batched(2, 16, 16);
  fixture.arrays["q"].strides = {16 * 516, 516, 64, 1};
  refused(fixture, {"q", "stride 516", "multiples of 16 bytes"});
  fixture.batched(2, 16, 16);
  fixture.arrays["q"].strides = {16 * 512, 512, 32, 1};
  refused(fixture, {"q", "overlap"});
  fixture.batched(2, 16, 16);
  fixture.arrays["v"].strides = {16 * 512, 512, 256, 2};
  refused(fixture, {"v", "the last must be 1"});
  fixture.batched(64, 1 << 30, 16);
  refused(fixture, {"blocks", "split the batch"}, Code::unsupported);
  fixture.batched(1, (int64_t{1} << 30) + 1, 16);
  refused(fixture, {"q has Sq = 1073741825", "1073741824"}, Code::unsupported);

  Fixture packed(kPacked);
  packed.packed(3, 16, 16);
  packed.arrays["cu_seqlens_k"] = Array(LATHE_I64, {5});
  refused(packed, {"cu_seqlens_k", "N is 4", "N = 3"});
}

TEST_CASE("heads left open are checked by the call") {
  std::vector<test::Declaration> open = kBatched;
  for (auto& each : open) each.shape[each.name == "lse" ? 1 : 2] = -1;
  Fixture fixture(open);
  fixture.batched(2, 16, 16, 7);
  const lathe::Status found = fixture.run();
  CHECK(found.code() == Code::invalid_argument);
  CHECK_MESSAGE(contains(found.text(), "H = 7 and k has HK = 2"), found.text());
}

}  // namespace
