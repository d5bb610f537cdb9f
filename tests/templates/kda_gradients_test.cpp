// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward and kda_backward_finish on the simulator, under every checker: errors against the
// recurrence in double, what is not wanted, what must not leak, and repetitions.
#include "tests/templates/kda_gradients.h"

using namespace kda_case;

namespace {

const std::vector<Setup> kSetups = {
    {LATHE_BF16, LATHE_BF16, LATHE_F32, 128, 4, "l2norm gate_b factor bias sigmoid final"},
    {LATHE_BF16, LATHE_F32, LATHE_BF16, 128, 4,
     "packed l2norm gate_a factor bias sigmoid initial grouped"},
    {LATHE_F16, LATHE_F32, LATHE_F32, 256, 4, "packed l2norm final narrow grouped"},
    {LATHE_BF16, LATHE_BF16, LATHE_BF16, 64, 4, "packed gate_b bias initial final v_first"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 64, 4, "l2norm gate_a factor bias sigmoid final"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 128, 4, "packed initial grouped"},
};

// Relative to the size of what they are sums of, where that is small by chance.
double bound_of(const Setup& s, const std::string& name) {
  if (s.element == LATHE_F32) return 1e-5;
  return name == "dg" || name == "dbeta" ? 1.5e-2 : 8e-3;
}

void compare(const Setup& s, const Gradients& got, const ref::KdaBackward& exact) {
  const auto near = [&](const char* name, const ref::Array& mine, const ref::Array& r) {
    if (mine.empty()) return;
    const double error = rms(mine, r);
    INFO(name);
    MESSAGE(std::string(name), " ", error);
    CHECK(error < bound_of(s, name));
  };
  near("dq", got.dq, exact.dq), near("dk", got.dk, exact.dk), near("dv", got.dv, exact.dv);
  near("dg", got.dg, exact.dg), near("dbeta", got.dbeta, exact.dbeta);
  near("dA_log", got.dA_log, exact.dA_log), near("ddt_bias", got.ddt_bias, exact.ddt_bias);
}

}  // namespace

TEST_CASE("the gradients of kda: every configuration, from exact states") {
  if (!compiled(finish_spec())) return;
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    CAPTURE(gradient_spec(s).text());
    const auto made = compiled(gradient_spec(s));
    MESSAGE(gradient_spec(s).text(), ": ", made->report.registers, " registers, ",
            made->report.spill_stores, " spilt");
    for (int turn = 0; turn < 2; ++turn, ++seed) {
      const bool packed = s.has("packed");
      const std::vector<int64_t> begin =
          packed ? std::vector<int64_t>{0, 0, 5, 5 + 64 * turn, 150, 150}
                 : std::vector<int64_t>{0, 70 + 30 * turn, 2 * (70 + 30 * turn)};
      ref::Kda a =
          make_case(s, seed, begin, 1 + turn, s.has("grouped") ? 3 - turn : 1,
                    s.width - 12 * turn - (s.has("narrow") ? 0 : 4 * turn), turn == 0 ? 64 : 72);
      add_gradients(s, seed, &a);
      CAPTURE(seed);
      const Gradients got =
          run_gradients(s, a, left_of(a, packed), {seed, static_cast<int>(seed % 3), ""});
      compare(s, got, ref::kda_backward(a));
    }
  }
}
