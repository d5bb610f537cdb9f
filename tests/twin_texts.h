// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These different texts have one XXH3-128, whose secret is public: where four bytes of a lane equal
// those of the secret, its product is 0, and the rest of two such lanes of one block may be
// swapped.
#pragma once

#include <string>

namespace twins {

// Returns a score_mod of two numbers, score * kA - kB * (q_idx - kv_idx), each one digit. It is
// UTF-8, and score_mod(a, b) and score_mod(b, a) have the same digest.
inline std::string score_mod(char a, char b) {
  constexpr size_t kLane = 8, kStripe = 64, kFirst = 7 * kLane, kSecond = 15 * kStripe + kFirst;
  std::string text = "constexpr float kA = ";
  text.resize(kFirst, ' ');
  text += {a, '/', '*', '\xc3'};
  text += "\x81\x3a\x26\x4c";  // bytes 60 to 63 of the secret
  text += "*/;\nconstexpr float kB = ";
  text.resize(kSecond, ' ');
  text += {b, '/', '*', '\xc3'};
  text += "\x95\x16\x04\x28";  // bytes 180 to 183
  text +=
      "*/;\n__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx) "
      "{\n  return score * kA - kB * (float)(q_idx - kv_idx);\n}\n";
  return text;
}

}  // namespace twins
