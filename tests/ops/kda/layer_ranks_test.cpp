// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover a whole layer over ranks: causal_conv1d on what becomes q, k and v, then kda on
// what it wrote, forward and backward, under one group and one shard. No tensor is copied between
// the operators.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>

#include "tests/harness/check.h"
#include "tests/harness/ranks.h"

namespace {

using namespace apitest;

constexpr int64_t kHeads = 2, kKeys = 32, kValues = 16, kWidth = 4;
constexpr lathe_dtype kElement = LATHE_BF16;
const Values kOffsets = {0, 45, 45, 120, 150};
constexpr int64_t kTokens = 150, kSequences = 4;

int64_t width_of(const std::string& name) { return name == "v" ? kValues : kKeys; }

// Makes the call of the convolution of q, k or v, forward or back.
Call conv(const std::string& name, bool back) {
  const int64_t channels = kHeads * width_of(name);
  Call call;
  call.op = "causal_conv1d";
  call.options["activation"] = "silu";
  call.draw("x", kElement, {1, kTokens, channels}, name[0]);
  call.draw("weight", kElement, {channels, kWidth}, name[0] + 1000);
  call.put("cu_seqlens", LATHE_I32, {kSequences + 1}, kOffsets);
  if (back) {
    call.want("dy", kElement, {1, kTokens, channels});
    call.want("dx", kElement, {1, kTokens, channels});
    call.want("dweight", kElement, {channels, kWidth});
  } else {
    call.want("y", kElement, {1, kTokens, channels});
  }
  return call;
}

// q, k and v are what the convolutions write, their gradients what they read.
Call kda() {
  Call call;
  call.op = "kda";
  for (const char* name :
       {"use_qk_l2norm_in_kernel", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel"}) {
    call.options[name] = "1";
  }
  const std::vector<int64_t> states = {kSequences, kHeads, kKeys, kValues};
  for (const std::string name : {"q", "k", "v"}) {
    call.want(name, kElement, {1, kTokens, kHeads, width_of(name)});
    call.want("d" + name, kElement, {1, kTokens, kHeads, width_of(name)});
  }
  call.draw("g", LATHE_F32, {1, kTokens, kHeads, kKeys}, 1);
  for (double& g : call.tensors.at("g").values) g -= 1;
  call.draw("beta", kElement, {1, kTokens, kHeads}, 2);
  call.draw("A_log", LATHE_F32, {kHeads}, 3);
  call.draw("initial_state", LATHE_F32, states, 4);
  call.draw("do", kElement, {1, kTokens, kHeads, kValues}, 5);
  call.put("cu_seqlens", LATHE_I32, {kSequences + 1}, kOffsets);
  call.want("o", kElement, {1, kTokens, kHeads, kValues});
  call.want("dg", LATHE_F32, {1, kTokens, kHeads, kKeys});
  call.want("dbeta", kElement, {1, kTokens, kHeads});
  call.want("dA_log", LATHE_F32, {kHeads});
  return call;
}

// Runs the layer of one rank, all of it in one stream; `part` is what the rank has of a call.
Outputs run_layer(lathe_context* context, Seat seat, const std::function<Call(const Call&)>& part) {
  const Stream stream(context);
  seat.stream = stream.get();
  std::map<std::string, std::unique_ptr<PlannedCall>> forwards, backwards;
  Call middle = part(kda());
  for (const std::string name : {"q", "k", "v"}) {
    auto& forward = forwards[name];
    forward = std::make_unique<PlannedCall>(context, part(conv(name, false)), seat);
    forward->reset();
    middle.tensors.at(name).at = forward->dl("y");
    auto& backward = backwards[name];
    backward = std::make_unique<PlannedCall>(context, part(conv(name, true)), seat);
    backward->reset();
    middle.tensors.at("d" + name).at = backward->dl("dy");
  }
  PlannedCall between(context, middle, seat);
  between.reset();
  for (const auto& [name, call] : forwards) call->enqueue();
  between.enqueue();
  for (const auto& [name, call] : backwards) call->enqueue();
  between.synchronize();
  Outputs out = between.outputs();
  for (const auto& [name, call] : forwards) out["y_" + name] = call->outputs().at("y");
  for (const auto& [name, call] : backwards) {
    for (const char* each : {"dy", "dx", "dweight"}) {
      out[each + ("_" + name)] = call->outputs().at(each);
    }
  }
  return out;
}

// Parts of tokens one after another; sums are the same on every rank.
Outputs run_ranks(int world) {
  Ranks ranks;
  ranks.world = world, ranks.flags = LATHE_REDUCE_PARAMETER_GRADS;
  std::vector<Outputs> parts(static_cast<size_t>(world));
  on_ranks(kda(), ranks, [&](Rank& rank) {
    parts[static_cast<size_t>(rank.number())] =
        run_layer(rank.context(), rank.seat(), [&](const Call& whole) { return rank.part(whole); });
  });
  Outputs out = parts[0];
  for (size_t r = 1; r < parts.size(); ++r) {
    for (auto& [name, all] : out) {
      const Values& part = parts[r].at(name);
      const bool sum = name == "dA_log" || name.starts_with("dweight");
      if (sum) CHECK(part == all);
      if (!sum) all.insert(all.end(), part.begin(), part.end());
    }
  }
  return out;
}

}  // namespace

TEST_CASE("a layer of convolutions and kda over ranks is that of one rank") {
  const Outputs one = run_layer(shared_context(), {}, [](const Call& whole) { return whole; });
  for (const int world : {2, 3, 4}) {
    CAPTURE(world);
    const Outputs many = run_ranks(world);
    for (const auto& [name, values] : one) {
      if (name.starts_with("y_")) {
        CHECK(many.at(name) == values);
      } else {
        // Two numbers, sums over all tokens of which most cancels: each result is within 0.01 of
        // the sum in float64.
        check_rms(name, many.at(name), values, name == "dA_log" ? 2e-2 : 8e-3, 1e-5);
      }
    }
  }
  check_no_findings();
}
