// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/kda/options.h"

#include <algorithm>
#include <array>

#include "tests/harness/combinations.h"

namespace apitest {
namespace {

constexpr size_t kCasesOfGroup = 11;
constexpr int64_t kMostWork = 6'000'000;  // elements of states that one case goes through

// Options that change the code, each with its number of values.
enum Factor {
  kWidths,
  kElement,
  kGateType,
  kBetaType,
  kGate,
  kBias,
  kNorm,
  kSigmoid,
  kOffsets,
  kStates,
  kValueFirst,
  kChunkStates,
  kSaving,
  kGrouped
};
const std::vector<int> kValues = {6, 3, 3, 3, 4, 2, 2, 2, 3, 4, 2, 2, 4, 2};

constexpr lathe_dtype kTypes[] = {LATHE_BF16, LATHE_F32, LATHE_F16};
constexpr std::pair<int64_t, int64_t> kPaddedWidths[] = {{64, 64},  {128, 128}, {64, 256},
                                                         {128, 64}, {256, 128}, {256, 256}};
constexpr int64_t kLengths[] = {1,   64,  17,  129, 63,  15, 65,  320, 2,   33, 191, 16,
                                127, 200, 257, 31,  300, 47, 128, 100, 255, 48, 319, 80};
constexpr int64_t kPieces[] = {0, 5, 16, 63, 64, 65, 1, 130, 0, 31, 15, 200};

// By padded width, the widths that a kernel made for it may be given.
std::vector<int64_t> widths_in(int64_t padded) {
  switch (padded) {
    case 64:
      return {64, 8, 32, 60, 12};
    case 128:
      return {128, 100};
    default:
      return {256};
  }
}

class Maker : Draws {
 public:
  using Draws::Draws;

  std::vector<KdaCase> group(const Choice& choice) {
    return cases_of(kCasesOfGroup, [&](size_t i) { return one(choice, i); });
  }

 private:
  KdaCase one(const Choice& choice, size_t index) {
    KdaCase c;
    const auto [keys, values] = kPaddedWidths[choice[kWidths]];
    const auto key_widths = widths_in(keys), value_widths = widths_in(values);
    c.key_dim = key_widths[index % key_widths.size()];
    c.value_dim = value_widths[index / 2 % value_widths.size()];
    c.element = kTypes[choice[kElement]];
    c.gate_dtype = kTypes[choice[kGateType]], c.beta_dtype = kTypes[choice[kBetaType]];
    c.gate = choice[kGate], c.dt_bias = choice[kBias] && c.gate > 0;
    c.l2norm = choice[kNorm], c.sigmoid = choice[kSigmoid];
    c.negative = c.sigmoid && index % 2;
    c.states = static_cast<KdaCase::States>(choice[kStates]);
    c.v_first = choice[kValueFirst];
    c.chunk_states = choice[kChunkStates];
    c.chunk = std::array{64, 16, 32}[index % 3];
    c.index_dtype = choice[kOffsets] == 2 ? LATHE_I64 : LATHE_I32;
    c.backward = true;
    c.saved = choice[kSaving] % 2, c.apart = choice[kSaving] / 2;
    c.heads = 1 + static_cast<int64_t>(index % 2);
    c.group = !choice[kGrouped] ? 1 : index % 3 == 0 ? 4 : 2;
    c.dht = !now_and_then(3);
    if (now_and_then(4)) c.scale = pick(std::array{0.1, 1.0});
    if (now_and_then(3)) c.gap = 8;
    if (now_and_then(3)) c.poison = 0x7a;
    if (now_and_then(8)) c.gradients = pick(kSomeGradients);
    add_gates(&c);
    add_lengths(choice, &c);
    if (index % 3 == 2) c.segments = pick(std::array{1, 2, 3, 8});
    return c;
  }

  void add_gates(KdaCase* c) {
    c->lower_bound = pick(std::array{-4.5, -5.0, -0.5});
    c->weakest = pick(std::array{-2.0, -0.001, -0.1, -5.0, 0.0});
    // Steps of 2 along keys longer than 1 grow what they should turn over; only a decay holds them.
    if (c->negative && !c->l2norm) c->weakest = std::min(c->weakest, -0.5);
    if (c->gate != 1 && now_and_then(3)) c->safe_gate = true;
    if (c->gate == 0 && !c->safe_gate && now_and_then(2)) {
      c->strong_share = pick(std::array{0.1, 0.5, 0.9});
    }
  }

  void add_lengths(const Choice& choice, KdaCase* c) {
    const int64_t most =
        std::max<int64_t>(kMostWork / (c->key_dim * c->value_dim * c->value_heads()), 1);
    const int64_t length = std::min(kLengths[next_length_++ % std::size(kLengths)], most);
    if (choice[kOffsets] == 0) {
      c->tokens = length;
      c->batch = std::clamp<int64_t>(most / length, 1, pick(std::array{1, 2, 3}));
      return;
    }
    // The long one among short ones, some of them empty.
    std::vector<int64_t> lengths = {length};
    for (int more = pick(std::array{0, 2, 5}); more > 0; --more) {
      lengths.insert(more % 2 ? lengths.begin() : lengths.end(),
                     std::min(pick(kPieces), std::max<int64_t>(most / 4, 1)));
    }
    if (now_and_then(15)) lengths.assign(3, 0);
    c->cu_seqlens = {0};
    for (const int64_t each : lengths) c->cu_seqlens.push_back(c->cu_seqlens.back() + each);
    c->padding = pick(std::array{0, 3, 70});
  }

  static constexpr const char* kSomeGradients[] = {"dv,dbeta,dinitial_state", "dq",
                                                   "dk,dg,ddt_bias", "dinitial_state,dA_log,dq"};
  size_t next_length_ = 0;
};

}  // namespace

Groups<KdaCase> kda_options() { return groups_of(Maker(11), kValues, 3); }

}  // namespace apitest
