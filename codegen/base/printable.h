// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Text from outside in messages: nothing in it may move the cursor, change colours or look like a
// line of ours.
#pragma once

#include <string>
#include <string_view>

namespace lathe {

// The bytes of the character of UTF-8 at `at`, which is in the text; 0 if there is none.
size_t utf8_bytes(std::string_view text, size_t at);

// A name or a value: control characters and what is no UTF-8 as \xNN, cut after about `most` bytes.
std::string escaped(std::string_view text, size_t most = 100);
// Returns the escaped value between single quotes.
std::string in_quotes(std::string_view text);

// Escapes a whole message in the same way, but newlines and tabs stay.
std::string printable(std::string_view text);

}  // namespace lathe
