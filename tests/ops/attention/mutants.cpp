// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/attention/mutants.h"

#include <memory>

namespace apitest {
namespace {

Subject subject_of(const char* kernel, const AttentionCase& c, const ref::Attention& inputs) {
  const auto in = std::make_shared<const ref::Attention>(inputs);
  return {kernel, [=] { return run_attention(make_context().get(), c, *in); },
          [=](const Answer& answer) { check_attention(c, *in, answer); }};
}

}  // namespace

Subject forward_subject(const AttentionCase& c) {
  Subject subject = subject_of("attention_forward_warpgroups", c, make_inputs(c));
  // Who copies a tile's first keys has waited for the place of the last values of the tile before,
  // which readers leave later.
  subject.covered = {{"no second try", 1}};
  // Ahead of what tells that a warp has read its message: the simulator takes what one lane of a
  // warp releases for the whole warp's.
  if (c.packed) subject.covered["no warp barrier"] = 1;
  return subject;
}

Subject backward_subject(const AttentionCase& c, const ref::Attention& inputs, BackwardForm form) {
  Subject subject = subject_of("attention_backward_warpgroups", c, inputs);
  std::map<std::string, int>& covered = subject.covered;
  const bool lists = c.texts.contains("mask_mod");
  if (!c.deterministic) subject.sum = "dq";
  // Who copies dout has waited for the readers of the stage's q, who were done with its dout, too.
  covered = {{"no wait", 1}, {"no second try", 1}};
  // With lists so has who copies lse2 and delta: behind the wait for the visit.
  if (lists) ++covered["no wait"], ++covered["no second try"];
  // The first q and the first dout are always of phase 0.
  covered["always phase 0"] = 2;
  // Nobody waits until the last stage is empty: of dout, and of q where one place tells of both.
  covered["no arrival"] = form == BackwardForm::columns ? 2 : 1;
  // dk and dv are waited for again, with dq, before anybody reads them or leaves the stage: with
  // columns the last ones, else those of each block, whose operands leave the next scores their
  // registers.
  ++covered["no wait"], covered["a weaker wait"] = 1;
  // Ahead of what tells that the warp has added: the simulator takes what one lane of a warp
  // releases for the whole warp's.
  if (c.deterministic) covered["no warp barrier"] = 2;
  return subject;
}
Subject backward_subject(const AttentionCase& c, BackwardForm form) {
  return backward_subject(c, make_inputs(c), form);
}

}  // namespace apitest
