// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The standard's own examples, and the lengths around the end of a block.
#include "codegen/base/sha256.h"

#include <doctest/doctest.h>

using lathe::sha256_hex;

TEST_CASE("SHA-256 of known texts") {
  const std::pair<std::string, const char*> known[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1000000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
      {std::string(55, '\xe9'), "4360c08f65b8587805be341bb5578175f084778be8516ca7d454bb777c392817"},
      {std::string(56, '\xe9'), "122c3722de62b26d87b9c9052858242407aa9bf046f765b4f068b91aac77810d"},
      {std::string(63, '\xe9'), "5d09c64d021c3c4d56de5e9f1c9b7ded064a64b1591aaf9822365d6b706d7538"},
      {std::string(64, '\xe9'), "c474a957abb73dee49898fdd83f1c6bbee90ea6044f30087a106653afd613297"},
      {std::string(65, '\xe9'), "943e1cd0c8ab00154058f8f024d5973d57ae038c527c2ec2abc72e47d8c4958c"},
      {std::string(119, '\xe9'),
       "4516fb281cdc54c9046b4e7b9a9edad6f6295a4af608dd244c188d4a07ec8ecc"},
      {std::string(120, '\xe9'),
       "471ada1965ced8f56030ac56996f2cd45c98640c623965cfc13e5028b35524d9"},
  };
  for (const auto& [text, expected] : known) {
    CAPTURE(text.size());
    CHECK(sha256_hex(text) == expected);
  }
}
