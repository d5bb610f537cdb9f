// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the tables of attention share: shapes, and the options of flash_attention.
#pragma once

#include <string_view>

#include "ops/entries.h"

namespace lathe::entries {

inline constexpr const char* kCaptured = "f32|f16|bf16|i32|i64";

inline constexpr lathe_operator_option kAttentionOptions[] = {
    {"softmax_scale", LATHE_OPTION_DOUBLE, "D^-0.5", "D^-0.5|>0", "What scores are multiplied by."},
    {"causal", LATHE_OPTION_INT, "0", "0|1",
     "Whether a row sees no later key; the last row is that of the last key."},
    {"window_left", LATHE_OPTION_INT, "-1", "-1|>=0", "How many keys back a row sees; -1: all."},
    {"window_right", LATHE_OPTION_INT, "-1", "-1|>=0",
     "How many keys ahead a row sees; -1: all. causal overrides it."},
    {"softcap", LATHE_OPTION_DOUBLE, "0", "0|>0", "Scores become softcap * tanh(score / softcap)."},
    {"deterministic", LATHE_OPTION_INT, "0", "0|1",
     "Whether gradients repeat bit for bit, on GPUs with as many multiprocessors."},
    {kSavedForward, LATHE_OPTION_INT, "0", "0|1",
     "Whether out and lse hold the results of an earlier forward, which the backward then reads."},
    {"score_mod", LATHE_OPTION_STRING, "none", "none|FILE",
     "Device text that changes scores, after softcap and ALiBi."},
    {"mask_mod", LATHE_OPTION_STRING, "none", "none|FILE",
     "Device text that drops keys, beside causal and windows."},
    {"scalar_0", LATHE_OPTION_DOUBLE, "0", "0|any", "What snippets read as captures.scalar(0)."},
    {"scalar_1", LATHE_OPTION_DOUBLE, "0", "0|any", "The same, captures.scalar(1)."},
    {"scalar_2", LATHE_OPTION_DOUBLE, "0", "0|any", "The same, captures.scalar(2)."},
    {"scalar_3", LATHE_OPTION_DOUBLE, "0", "0|any", "The same, captures.scalar(3)."},
    {"sm_margin", LATHE_OPTION_INT, "0", "0|>0",
     "Over a group: how many multiprocessors its steps leave to the exchange."},
    {"gather_heads", LATHE_OPTION_INT, "0", "0|>0",
     "Over a group that gathers keys: of how many key heads at a time, for less memory; 0: all."},
    {"head_ranks", LATHE_OPTION_INT, "0", "0|>0",
     "Over ranks by heads: so many exchange heads, and keys travel a ring between these; 0: all."},
    {"dispatch", LATHE_OPTION_STRING, "auto", "auto|always|home",
     "Over ranks by dispatch: whether queries leave their homes where that pays, always or never."},
    {"dispatch_tokens", LATHE_OPTION_INT, "0", "0|>0",
     "The most tokens of queries and keys that a rank may receive then; 0: any number."},
};
constexpr const lathe_operator_option& attention_option(std::string_view name) {
  size_t i = 0;
  while (name != kAttentionOptions[i].name) ++i;
  return kAttentionOptions[i];
}

}  // namespace lathe::entries
