// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention without a device: every refusal by table, and what a problem
// becomes.
#include <fstream>

#include "ops/attention/run.h"
#include "tests/ops/attention/problems.h"

namespace {

using lathe::Code;
using test::Builder;
using test::contains;
using test::kBackward;
using test::kBatched;
using test::kPacked;
using test::Tensors;
using test::with;
using test::without;

const test::Requests<lathe::AttentionRequest> request = {"flash_attention",
                                                         lathe::attention_request};

TEST_CASE("tensors that do not fit are refused by name, with what is allowed") {
  request.check_refused({
      {without(kBatched, "q"), {}, {"q is not declared"}},
      {without(kBatched, "v"), {}, {"v is not declared"}},
      {without(without(kBatched, "out"), "lse"), {}, {"nothing to compute", "out"}},
      {without(kBatched, "lse"), {}, {"out", "without lse"}},
      {with(kBatched, {{"q", LATHE_I32, {-1, -1, 8, 64}}}), {}, {"q", "i32", "f16|bf16"}},
      {with(kBatched, {{"k", LATHE_F16, {-1, -1, 2, 64}}}), {}, {"k", "f16", "bf16", "of q"}},
      {with(kBatched, {{"lse", LATHE_BF16, {-1, 8, -1}}}), {}, {"lse", "bf16", "f32"}},
      {with(kBatched, {{"q", LATHE_BF16, {8, 64}}}), {}, {"q", "rank 2", "[B,Sq,H,D]", "[Tq,H,D]"}},
      {with(kBatched, {{"k", LATHE_BF16, {-1, -1, 2, 72}}}), {}, {"k", "72", "D is 72", "D is 64"}},
      {with(kBatched, {{"v", LATHE_BF16, {-1, -1, 4, 128}}}), {}, {"v", "HK is 4", "HK is 2"}},
      {with(kBatched, {{"out", LATHE_BF16, {-1, -1, 8, 64}}}),
       {},
       {"out", "DV is 64", "DV is 128"}},
      {with(kBatched, {{"q", LATHE_BF16, {-1, -1, 8, 60}}, {"k", LATHE_BF16, {-1, -1, 2, 60}}}),
       {},
       {"D = 60", "multiples of 8 up to 256"}},
      {with(kBatched, {{"q", LATHE_BF16, {-1, -1, 8, 264}}, {"k", LATHE_BF16, {-1, -1, 2, 264}}}),
       {},
       {"D = 264", "multiples of 8 up to 256"}},
      {with(kBatched, {{"q", LATHE_BF16, {-1, -1, 8, 0}}, {"k", LATHE_BF16, {-1, -1, 2, 0}}}),
       {},
       {"D = 0", "multiples of 8 up to 256"}},
      {with(kBatched, {{"q", LATHE_BF16, {-1, -1, 8, -1}}, {"k", LATHE_BF16, {-1, -1, 2, -1}}}),
       {},
       {"D = -1", "must be given", "multiple of 8 up to 256"}},
      {with(kBatched, {{"v", LATHE_BF16, {-1, -1, 2, 12}}, {"out", LATHE_BF16, {-1, -1, 8, 12}}}),
       {},
       {"v has DV = 12", "multiples of 8 up to 256"}},
      {with(kBatched, {{"k", LATHE_BF16, {-1, -1, 3, 64}}, {"v", LATHE_BF16, {-1, -1, 3, 128}}}),
       {},
       {"H = 8", "HK = 3", "multiple of HK"}},
      {with(kBatched, {{"k", LATHE_BF16, {-1, -1, 0, 64}}, {"v", LATHE_BF16, {-1, -1, 0, 128}}}),
       {},
       {"H = 8", "HK = 0"}},
      {with(kBatched, {{"sinks", LATHE_F32, {7}}}), {}, {"sinks", "H is 7", "H is 8"}},
      {with(kBatched, {{"sinks", LATHE_BF16, {8}}}), {}, {"sinks", "bf16", "f32"}},
      {with(kBatched, {{"alibi_slopes", LATHE_F32, {7}}}),
       {},
       {"alibi_slopes", "H is 7", "H is 8"}},
      {with(kBatched, {{"q", LATHE_BF16, {3, -1, 8, 64}}, {"alibi_slopes", LATHE_F32, {2, 8}}}),
       {},
       {"alibi_slopes", "B is 2", "B is 3"}},
      {with(kBatched, {{"alibi_slopes", LATHE_F32, {1, 2, 8}}}),
       {},
       {"alibi_slopes", "rank 3", "[H]", "[B,H]"}},
      // Packed and not, mixed.
      {with(kBatched, {{"cu_seqlens_q", LATHE_I32, {-1}}}),
       {},
       {"cu_seqlens_q", "without cu_seqlens_k"}},
      {with(kBatched, {{"cu_seqlens_k", LATHE_I32, {-1}}}),
       {},
       {"cu_seqlens_k", "without cu_seqlens_q"}},
      {without(kPacked, "cu_seqlens_k"), {}, {"cu_seqlens_q", "without cu_seqlens_k"}},
      {without(without(kPacked, "cu_seqlens_q"), "cu_seqlens_k"),
       {},
       {"q has rank 3", "[Tq,H,D]", "allowed is [B,Sq,H,D]", "without cu_seqlens_q"}},
      {with(kPacked, {{"v", LATHE_F16, {-1, -1, 2, 128}}}),
       {},
       {"v has rank 4", "allowed is [Tk,HK,DV]", "with cu_seqlens_q"}},
      {with(kPacked, {{"q", LATHE_F16, {1, -1, 8, 64}},
                      {"cu_seqlens_q", LATHE_I64, {5}},
                      {"cu_seqlens_k", LATHE_I64, {5}}}),
       {},
       {"q has rank 4", "allowed is [Tq,H,D]", "with cu_seqlens_q"}},
      {with(kPacked, {{"lse", LATHE_F32, {-1, 8, -1}}}),
       {},
       {"lse has rank 3", "allowed is [H,Tq]"}},
      {with(kPacked, {{"cu_seqlens_k", LATHE_I32, {-1}}}),
       {},
       {"cu_seqlens_k", "i32", "i64", "of cu_seqlens_q"}},
      {with(kPacked, {{"cu_seqlens_k", LATHE_F32, {-1}}}), {}, {"cu_seqlens_k", "f32", "i32|i64"}},
      {with(kPacked, {{"cu_seqlens_q", LATHE_I64, {0}}}), {}, {"cu_seqlens_q", "[0]", "1 to"}},
      {with(kPacked, {{"cu_seqlens_q", LATHE_I64, {4}}, {"cu_seqlens_k", LATHE_I64, {5}}}),
       {},
       {"cu_seqlens_k", "N is 4", "N is 3"}},
      {with(kPacked, {{"cu_seqlens_q", LATHE_I64, {4}}, {"alibi_slopes", LATHE_F32, {2, 8}}}),
       {},
       {"alibi_slopes has B = 2", "N = 3"}},
      {with(kBatched, {{"dlse", LATHE_F32, {-1, 8, -1}}}), {}, {"dlse", "without dout"}},
      {with(kBatched, {{"dq", LATHE_BF16, {-1, -1, 8, 64}}}), {}, {"dq", "without dout"}},
      {with(kBatched, {{"dout", LATHE_BF16, {-1, -1, 8, 64}}}),
       {},
       {"dout", "DV is 64", "DV is 128"}},
      // The backward.
      {with(kBatched, {{"dout", LATHE_BF16, {-1, -1, 8, 128}}}),
       {},
       {"dout is declared, but no gradient is", "dq, dk, dv, dsinks"}},
      {with(without(without(kBatched, "out"), "lse"), {{"dout", LATHE_BF16, {-1, -1, 8, 128}}}),
       {},
       {"nothing to compute"}},
      {without(without(kBackward, "out"), "lse"), {}, {"dout", "without out"}},
      {without(kBackward, "lse"), {}, {"out", "without lse"}},
      {without(kBackward, "dout"), {}, {"dq", "without dout"}},
      {with(kBackward, {{"dout", LATHE_BF16, {-1, 8, 128}}}),
       {},
       {"dout has rank 3", "[B,Sq,H,DV]"}},
      {with(kBackward, {{"dout", LATHE_F32, {-1, -1, 8, 128}}}),
       {},
       {"dout", "f32", "bf16", "of q"}},
      {with(kBackward, {{"dlse", LATHE_F32, {8, -1}}}), {}, {"dlse has rank 2", "[B,H,Sq]"}},
      {with(kBackward, {{"dlse", LATHE_F32, {-1, 7, -1}}}), {}, {"dlse", "H is 7", "H is 8"}},
      {with(kBackward, {{"dlse", LATHE_BF16, {-1, 8, -1}}}), {}, {"dlse", "bf16", "f32"}},
      {with(kBackward, {{"dq", LATHE_BF16, {-1, -1, 8, 128}}}), {}, {"dq", "D is 128", "D is 64"}},
      {with(kBackward, {{"dk", LATHE_BF16, {-1, -1, 8, 64}}}), {}, {"dk", "HK is 8", "HK is 2"}},
      {with(kBackward, {{"dv", LATHE_BF16, {-1, -1, 2, 64}}}), {}, {"dv", "DV is 64", "DV is 128"}},
      {with(kBackward, {{"dsinks", LATHE_F32, {8}}}), {}, {"dsinks", "without sinks"}},
      {with(kBackward, {{"sinks", LATHE_F32, {8}}, {"dsinks", LATHE_F32, {2}}}),
       {},
       {"dsinks", "H is 2", "H is 8"}},
      {with(kBackward, {{"sinks", LATHE_F32, {8}}, {"dsinks", LATHE_BF16, {8}}}),
       {},
       {"dsinks", "bf16", "f32"}},
  });
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
    const std::string quoted = std::string("'") + each.value + "'";
    request.check_refused(
        {kBatched, {{each.option, each.value}}, {each.option, quoted.c_str(), each.text}});
  }
}

TEST_CASE("the least alignment of rows is part of the problem, an element's size at least") {
  for (const int promised : {1, 2, 4, 8, 16}) {
    CHECK(request.accepted(kBatched, {}, promised).problem.alignment == std::max(promised, 2));
  }
  Tensors wide = kBatched;
  for (auto& each : wide) each.dtype = LATHE_F32;
  CHECK(request.accepted(wide, {}, 2).problem.alignment == 4);
}

TEST_CASE("mods are texts of files or bytes, read once") {
  const test::Folder folder;
  const std::string path = folder.path + "/mask.cuh", text = "bool mask_mod;  // any text";
  const auto write = [&](const std::string& bytes) { std::ofstream(path) << bytes; };
  write(text);
  Builder mods = test::declared("flash_attention", with(kBatched, {{"capture_2", LATHE_F16, {-1}}}),
                                {{"mask_mod", path.c_str()}, {"scalar_1", "-0.5"}});
  write("changed");  // of no effect any more
  lathe_problem_set_text(mods.problem.get(), "score_mod", text.data(), text.size());
  const auto from_file = request.of(mods);
  REQUIRE_MESSAGE(from_file.ok(), from_file.status().text());
  const lathe::AttentionProblem& problem = from_file->problem;
  REQUIRE(problem.mods.size() == 2);
  CHECK(problem.mods[0].name == "score_mod");  // in this order, however they were set
  CHECK(problem.mods[0].file == "<score_mod>");
  CHECK(problem.mods[1].file == path);
  CHECK(problem.mods[1].text == text);
  CHECK(problem.captures[2] == lathe::Dtype::f16);
  CHECK_FALSE(problem.captures[0]);
  CHECK(from_file->scalars[1] == -0.5f);

  Builder builder("flash_attention");
  lathe_problem* made = builder.problem.get();
  const auto refused = [](lathe_status status, const std::string& expected) {
    CHECK(status == LATHE_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(test::error(), expected), test::error());
  };
  refused(lathe_problem_set_text(made, "causal", "x", 1),
          "has no option 'causal' that is a text; it has score_mod, mask_mod");
  refused(lathe_problem_set_text(made, "score_mod", "", 0),
          "option score_mod: <score_mod> is empty");
  refused(lathe_problem_set_text(made, "score_mod", nullptr, 0), "text");
  refused(lathe_problem_set_string(made, "score_mod", (folder.path + "/no.cuh").c_str()),
          "no.cuh', which does not exist");
  CHECK(lathe_problem_set_text(made, "score_mod", "x", 1) == LATHE_OK);
  refused(lathe_problem_set_text(made, "score_mod", "x", 1), "option score_mod is set twice");
  Builder conv("causal_conv1d");
  refused(lathe_problem_set_text(conv.problem.get(), "activation", "x", 1), "it has none");
}

TEST_CASE("a problem becomes flags of the code and numbers of the launch") {
  const auto plain = request.accepted(kBatched);
  CHECK(plain.problem.element == lathe::Dtype::bf16);
  CHECK(plain.problem.head_dim == 64);
  CHECK(plain.problem.value_dim == 128);
  CHECK(plain.problem.forward);
  test::check_flags(false, {plain.problem.packed, plain.problem.local, plain.problem.softcap,
                            plain.problem.alibi, plain.problem.sinks});
  CHECK(plain.softmax_scale == 0.125f);
  CHECK(plain.window_left == -1);
  CHECK(plain.window_right == -1);
  CHECK(plain.ratio == 4);

  const auto rich = request.accepted(
      with(kPacked, {{"sinks", LATHE_F32, {8}}, {"alibi_slopes", LATHE_F32, {-1, 8}}}),
      {{"causal", "1"},
       {"window_left", "7"},
       {"window_right", "3"},
       {"softcap", "15"},
       {"softmax_scale", "0.2"}});
  // A default may be given by its own name, and an integer in any spelling.
  const auto same = request.accepted(
      kBatched, {{"softmax_scale", "D^-0.5"}, {"causal", "01"}, {"score_mod", "none"}});
  CHECK(same.softmax_scale == 0.125f);
  CHECK(same.window_right == 0);

  CHECK(rich.problem.packed);
  CHECK(rich.problem.cu_seqlens == lathe::Dtype::i64);
  test::check_flags(true, {rich.problem.local, rich.problem.softcap, rich.problem.alibi,
                           rich.problem.sinks, rich.alibi_rows});
  CHECK(rich.window_left == 7);
  CHECK(rich.window_right == 0);  // causal overrides it
  CHECK(rich.softcap == 15.0f);
  CHECK(rich.softmax_scale == 0.2f);
}

TEST_CASE("the backward: what is asked for, and what an earlier forward has left") {
  const auto joined = request.accepted(kBackward);
  test::check_flags(true, {joined.problem.forward, joined.problem.backward});
  test::check_flags(false,
                    {joined.problem.dsinks, joined.problem.dlse, joined.problem.deterministic});
  CHECK((joined.gradients.dq && joined.gradients.dk && joined.gradients.dv));

  Tensors tensors = with(
      kBackward,
      {{"sinks", LATHE_F32, {8}}, {"dsinks", LATHE_F32, {8}}, {"dlse", LATHE_F32, {-1, 8, -1}}});
  for (const char* name : {"dq", "dk", "dv"}) tensors = without(tensors, name);
  const auto saved = request.accepted(tensors, {{"saved_forward", "1"}, {"deterministic", "1"}});
  test::check_flags(false, {saved.problem.forward, saved.problem.backward});
  test::check_flags(true, {saved.problem.dsinks, saved.problem.dlse, saved.problem.deterministic});
  CHECK_FALSE((saved.gradients.dq || saved.gradients.dk || saved.gradients.dv));
  CHECK(saved.gradients.dsinks);

  request.check_refused({kBatched, {{"saved_forward", "1"}}, {"nothing to compute"}});
}

TEST_CASE("which tensors a run writes follows from saved_forward") {
  for (const bool saved : {false, true}) {
    Builder builder("flash_attention");
    builder.tensors(kBackward).set("saved_forward", saved ? "1" : "0");
    const auto declared = lathe::resolve(*builder.problem);
    REQUIRE_MESSAGE(declared.ok(), declared.status().text());
    for (const lathe::Slot& slot : lathe::make_slots(*declared)) {
      CAPTURE(slot.name);
      const std::string name = slot.name;
      const bool forward = name == "out" || name == "lse";
      CHECK(slot.written == (forward ? !saved : name == "dq" || name == "dk" || name == "dv"));
    }
  }
}

}  // namespace
