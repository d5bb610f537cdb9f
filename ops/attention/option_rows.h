// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the options that the operators of flash attention share, with the rows of their tables.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ops/options.h"

namespace lathe {

// Says how a score is computed. score_mod and mask_mod are texts, which the problem keeps.
struct ScoreOptions {
  std::optional<float> softmax_scale;  // none: D^-0.5
  bool causal = false;
  int64_t window_left = -1, window_right = -1;  // -1: unlimited
  float softcap = 0;                            // 0: none
  float scalar_0 = 0, scalar_1 = 0, scalar_2 = 0, scalar_3 = 0;
};

namespace attention_rows {

// These options say which keys a row sees, and how products become scores.
template <typename Options, typename B = Bind<Options>>
constexpr auto score_options(const char* causal) {
  return std::array{
      B::template number<&Options::softmax_scale>("softmax_scale", "D^-0.5", "D^-0.5|>0",
                                                  "Scores are multiplied by it."),
      B::template flag<&Options::causal>("causal", causal),
      B::template integer<&Options::window_left>("window_left", "-1", "-1|>=0",
                                                 "How many keys back a row sees; -1: all."),
      B::template integer<&Options::window_right>(
          "window_right", "-1", "-1|>=0",
          "How many keys ahead a row sees; -1: all. causal overrides it."),
      B::template number<&Options::softcap>("softcap", "0", "0|>0",
                                            "Scores become softcap * tanh(score / softcap)."),
  };
}
inline constexpr const char* kCausalSentence =
    "1: a row sees no key after its own token; the last row and the last key are one token.";

inline constexpr std::array kModOptions = {
    text_option("score_mod", "Device text that changes scores, after softcap and ALiBi."),
    text_option("mask_mod", "Device text that drops keys, beside causal and windows."),
};
template <typename Options, typename B = Bind<Options>>
constexpr std::array kScalarOptions = {
    B::template number<&Options::scalar_0>("scalar_0", "0", "0|any",
                                           "Mods read it as captures.scalar(0)."),
    B::template number<&Options::scalar_1>("scalar_1", "0", "0|any",
                                           "Mods read it as captures.scalar(1)."),
    B::template number<&Options::scalar_2>("scalar_2", "0", "0|any",
                                           "Mods read it as captures.scalar(2)."),
    B::template number<&Options::scalar_3>("scalar_3", "0", "0|any",
                                           "Mods read it as captures.scalar(3)."),
};

}  // namespace attention_rows
}  // namespace lathe
