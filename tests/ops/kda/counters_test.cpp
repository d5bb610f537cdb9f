// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator counts the kernels of kda at T 2048, H 4, K = V = 128, bf16: memory is read once,
// shared memory without conflicts, registers are not spilt, and launches are few.
#include <doctest/doctest.h>

#include <iostream>

#include "codegen/compile_log.h"
#include "tests/harness/family_case.h"
#include "tests/ops/kda/case.h"

using namespace apitest;

namespace {

constexpr double kWidth = 128;  // K and V

KdaCase large(int64_t tokens) {
  KdaCase kda;
  kda.heads = 4;
  kda.key_dim = kda.value_dim = 128;
  kda.tokens = tokens;
  kda.gate_dtype = LATHE_BF16;
  kda.l2norm = true;
  kda.states = KdaCase::none;
  return kda;
}

double rows(const KdaCase& kda) { return static_cast<double>(kda.rows() * kda.value_heads()); }

// Returns the bytes of a row of one head where each tensor is touched once: q, k, v, o, g and beta
// of 2 bytes an element.
double forward_floor(const KdaCase& kda) { return rows(kda) * (5 * kWidth + 1) * 2; }
// q, k, v, g, beta and do are read; dq, dk, dv, dg and dbeta written.
double backward_floor(const KdaCase& kda) { return rows(kda) * (9 * kWidth + 2) * 2; }

// The launches of one run, added up. Memory is what reaches the device where its second cache holds
// what blocks of one launch share: each 32-byte sector once per launch.
struct Counted {
  size_t launches = 0;
  double tensor_ops = 0, estimated_tensor_ops = 0;
  double memory_bytes = 0, loaded_bytes = 0, stored_bytes = 0, workspace_bytes = 0;
  double asked_bytes() const { return loaded_bytes + stored_bytes; }
};

Counted count(const Call& call) {
  PlannedCall planned(shared_context(), call);
  take_report();
  planned.run();
  const Report report = take_report();
  for (const auto& finding : report.findings) FAIL_CHECK(finding);
  Counted sum;
  sum.launches = report.launches.size();
  sum.workspace_bytes = static_cast<double>(planned.workspace_bytes());
  sum.estimated_tensor_ops = static_cast<double>(planned.estimate().tensor_ops);
  for (const auto& line : report.launches) {
    const auto launch = nlohmann::json::parse(line);
    const auto number = [&](const std::string& name) { return launch.at(name).get<double>(); };
    sum.tensor_ops += number("tensor_ops");
    sum.memory_bytes += 32 * (number("unique_load_sectors") + number("unique_store_sectors"));
    sum.loaded_bytes += 32 * number("global_load_sectors");
    sum.stored_bytes += 32 * number("global_store_sectors");
    for (const char* none :
         {"global_atomic_sectors", "shared_load_conflicts", "shared_store_conflicts",
          "local_load_requests", "local_store_requests"}) {
      CHECK(number(none) == 0);
    }
  }
  return sum;
}

void print(const char* what, const KdaCase& kda, const Counted& counted, double floor,
           double least_ops) {
  std::cout << what << " T " << kda.tokens << " segments " << kda.segments << ": "
            << counted.launches << " launches, memory " << counted.memory_bytes / floor
            << " times the floor, asked for " << counted.asked_bytes() / floor
            << " times, tensor operations " << counted.tensor_ops / least_ops << " times "
            << least_ops << "\n";
}

// In blocks of 16 tokens, which need no exponent above 0 and no state between them: three products
// of the state with 16 rows, and of two 16 x 16 squares, taken whole, one with K to make it and one
// with V to use it each. Making a square takes more than one product where its pairs are multiplied
// level by level, no exponent being above 0.
double forward_ops(const KdaCase& kda) {
  return rows(kda) * 2 * (3 * kWidth * kWidth + 2 * 16 * (kWidth + kWidth));
}

TEST_CASE("counters: the forward reads memory once, in one walk") {
  if (!on_simulator()) return;
  KdaCase kda = large(2048);
  kda.segments = 1;
  const Counted counted = count(kda_call(kda, make_kda_inputs(kda)));
  print("forward", kda, counted, forward_floor(kda), forward_ops(kda));
  CHECK(counted.launches == 1);
  CHECK(counted.workspace_bytes == 0);
  CHECK(counted.memory_bytes >= forward_floor(kda));
  CHECK(counted.memory_bytes <= 1.05 * forward_floor(kda));
  CHECK(counted.asked_bytes() <= 1.6 * forward_floor(kda));
  CHECK(counted.tensor_ops == counted.estimated_tensor_ops);
  CHECK(counted.tensor_ops >= forward_ops(kda));
  // Rows that the state and the squares take up are of two parts, 16 bits each.
  CHECK(counted.tensor_ops <= 1.45 * forward_ops(kda));
}

TEST_CASE("counters: every input is asked for once, and o is stored once") {
  if (!on_simulator()) return;
  KdaCase kda = large(256);
  kda.heads = 2;
  kda.l2norm = false;
  kda.segments = 1;
  const Counted counted = count(kda_call(kda, make_kda_inputs(kda)));
  CHECK(counted.loaded_bytes < 1.05 * rows(kda) * (4 * kWidth + 1) * 2);
  CHECK(counted.stored_bytes == rows(kda) * kWidth * 2);
}

// FLA keeps, of each token and value head while its largest kernel of the backward runs
// (chunk_kda_bwd_wy_dqkg_fused of fla 0.6; chunks of 64, T in elements): the cumulative gate and
// dq, dk, dg in float32 [K], Aqk and Akk of 2 bytes and dAqk and dAkk in float32 [64], w, qg, kg
// [K], u, vn, dv [V] of 2 bytes, and h and dh, K V / 64 elements of 2 bytes each.
double peers_backward_bytes(const KdaCase& kda) {
  const double keys = 4 * 4 * kWidth + 3 * 2 * kWidth, values = 3 * 2 * kWidth;
  return rows(kda) * (keys + values + 64 * (2 * 2 + 2 * 4) + 2 * 2 * kWidth * kWidth / 64);
}
// The forward keeps, at its end: the cumulative gate in float32, w, kg, u, vn, h, Aqk and Akk.
double peers_forward_bytes(const KdaCase& kda) {
  const double keys = 4 * kWidth + 2 * 2 * kWidth, values = 2 * 2 * kWidth;
  return rows(kda) * (keys + values + 64 * 2 * 2 + 2 * kWidth * kWidth / 64);
}

// Both walks and the products of a chunk: the forward without o, unless it has saved what it makes;
// its reverse, which has one product of the state more and uses both squares; then three products
// of states with rows, and of the pairs in a chunk of 64 those in blocks of 16 on and below the
// diagonal: two that make them of V and four that use them with K.
double backward_ops(const KdaCase& kda) {
  const double squares = 16 * kWidth, pairs = (64.0 + 16) / 2 * kWidth;
  const double forward = kda.saved ? 0 : 2 * kWidth * kWidth + 3 * squares;
  const double back = 3 * kWidth * kWidth + 4 * squares;
  return rows(kda) * 2 * (forward + back + 3 * kWidth * kWidth + 6 * pairs);
}

TEST_CASE("counters: the backward by itself, from saved rows and states and without") {
  if (!on_simulator()) return;
  for (const bool saved : {false, true}) {
    KdaCase kda = large(512);
    kda.segments = 1;
    kda.backward = kda.apart = true;
    kda.saved = saved;
    const KdaInputs inputs = make_kda_inputs(kda);
    Outputs left;
    if (saved) left = run(kda_call(kda, inputs)).outputs;
    const Counted counted = count(kda_backward_call(kda, inputs, left));
    // vn and y, h and dh: each written once and read once.
    const double kept = rows(kda) * 2 * (2 * kWidth + 2 * kWidth * kWidth / 64);
    const double least = backward_floor(kda) + 2 * kept;
    print(saved ? "saved backward" : "backward", kda, counted, least, backward_ops(kda));
    CHECK(counted.launches <= 5);
    CHECK(counted.workspace_bytes <= 0.5 * peers_backward_bytes(kda));
    CHECK(counted.memory_bytes <= 1.6 * least);
    CHECK(counted.tensor_ops == counted.estimated_tensor_ops);
    CHECK(counted.tensor_ops >= backward_ops(kda));
    CHECK(counted.tensor_ops <= 1.5 * backward_ops(kda));
  }
}

// A block of the gradients of chunks asks L2 for the chunk that comes as many blocks later as the
// device has at a time: an H100 132. Packed sequences have slots that lie idle.
FAMILY_CASE("sm90", "counters: what Hopper's gradients ask for ahead is what later blocks load") {
  if (!on_simulator()) return;
  for (const lathe_dtype gate : {LATHE_BF16, LATHE_F32}) {
    for (const bool packed : {false, true}) {
      KdaCase kda = large(2880);
      kda.l2norm = false;
      kda.gate_dtype = gate;
      kda.segments = 1;
      kda.backward = kda.apart = true;
      if (packed) kda.cu_seqlens = {0, 700, 703, 703, 1903, 2880};
      PlannedCall planned(shared_context(), kda_backward_call(kda, make_kda_inputs(kda), {}));
      take_report();
      planned.run();
      const Report report = take_report();
      for (const auto& finding : report.findings) FAIL_CHECK(finding);
      double chunks = 0, ahead = 0, vain = 0, loaded = 0;
      for (const auto& line : report.launches) {
        const auto launch = nlohmann::json::parse(line);
        if (!launch.contains("unique_prefetch_sectors")) continue;
        chunks = launch.at("grid")[0].get<double>();
        ahead += 32 * launch.at("unique_prefetch_sectors").get<double>();
        vain += launch.at("vain_prefetch_sectors").get<double>();
        loaded += 32 * launch.at("unique_load_sectors").get<double>();
      }
      CAPTURE(packed);
      CAPTURE(chunks);
      REQUIRE(chunks > 132);
      CHECK(vain == 0);
      if (!packed) CHECK(ahead >= 0.98 * loaded * (chunks - 132) / chunks);  // beta is not
      if (packed) CHECK(ahead >= 0.5 * loaded * (chunks - 132) / chunks);
      CHECK(ahead < loaded);
    }
  }
}

// All but the last segment are walked twice, and E, M and states pass through L2.
FAMILY_CASE("sm90", "counters: a cluster is one launch, which memory gives its inputs once") {
  if (!on_simulator()) return;
  for (const int segments : {2, 4, 8}) {
    KdaCase kda = large(2048);
    kda.segments = segments;
    const Counted counted = count(kda_call(kda, make_kda_inputs(kda)));
    print("cluster", kda, counted, forward_floor(kda), forward_ops(kda));
    CHECK(counted.launches == 1);
    CHECK(counted.workspace_bytes <= 4.0 * segments * (4 + 2.04) * kWidth * kWidth);
    // A launch writes and reads this: it counts twice.
    CHECK(counted.memory_bytes <= 1.02 * forward_floor(kda) + 2 * counted.workspace_bytes);
    CHECK(counted.tensor_ops == counted.estimated_tensor_ops);
  }
}

TEST_CASE("counters: segments take few launches and little room") {
  if (!on_simulator()) return;
  KdaCase forward = large(2048);  // segments 0: chosen
  Counted counted = count(kda_call(forward, make_kda_inputs(forward)));
  print("forward", forward, counted, forward_floor(forward), forward_ops(forward));
  CHECK(counted.launches <= 3);
  CHECK(counted.workspace_bytes <= 0.5 * peers_forward_bytes(forward));

  KdaCase backward = large(1024);
  backward.gate = 1,
  backward.dt_bias = true;  // whose gradients are summed in a launch of their own
  backward.segments = 4;
  backward.backward = backward.apart = true;
  counted = count(kda_backward_call(backward, make_kda_inputs(backward), {}));
  print("backward", backward, counted, backward_floor(backward), backward_ops(backward));
  CHECK(counted.launches <= 6);  // Hopper's walks are two launches
  CHECK(counted.workspace_bytes <= 0.5 * peers_backward_bytes(backward));
}

// A plan takes the portable kernel where one of Hopper's spills.
FAMILY_CASE("sm90", "counters: no option of the backward spills a kernel of Hopper's") {
  for (const lathe_dtype gate : {LATHE_BF16, LATHE_F32}) {
    KdaCase kda = large(512);
    kda.heads = 1;
    kda.gate_dtype = gate;
    kda.states = KdaCase::both;
    kda.gate = 3;
    kda.dt_bias = kda.sigmoid = kda.negative = true;
    kda.segments = 3;
    kda.backward = kda.apart = kda.dht = true;
    const Answer answer = run(kda_backward_call(kda, make_kda_inputs(kda), {}));
    check_no_spills(answer);
    int of_hopper = 0;
    for (const Kernel& kernel : answer.kernels) {
      const std::string name = kernel.spec.substr(0, kernel.spec.find(' '));
      CAPTURE(name);
      if (name != "kda_merge" && name != "kda_backward_finish")
        CHECK(name.ends_with("_warpgroups"));
      of_hopper += name.ends_with("_warpgroups") ? 1 : 0;
    }
    CHECK(of_hopper == 4);  // summaries, two walks, gradients of chunks
  }
}

TEST_CASE("counters: no portable kernel spills at 128, and Hopper's no more than a plan takes") {
  for (const bool gate : {false, true}) {
    for (const bool grouped : {false, true}) {
      KdaCase kda = large(64);
      kda.heads = 1, kda.group = grouped ? 2 : 1;
      kda.states = KdaCase::both;
      kda.gate = gate ? 3 : 0;
      kda.dt_bias = kda.sigmoid = gate;
      kda.backward = kda.dht = true;
      const Answer answer = run(kda_call(kda, make_kda_inputs(kda)));
      for (const Kernel& kernel : answer.kernels) {
        CAPTURE(kernel.spec);
        const bool of_hopper = kernel.spec.find("_warpgroups ") != std::string::npos;
        CHECK(kernel.spill_bytes <= (of_hopper ? lathe::kKeptBytes : 0));
        CHECK(kernel.registers > 0);
      }
    }
  }
}

}  // namespace
