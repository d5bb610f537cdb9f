// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A first pass over JSON text finds what the second, which makes the value, would not object to.
#pragma once

#include <string>

namespace lathe::cli {

// Why `text` is not one JSON object that begins with { and ends the text but for blanks, whose
// values lie at most `most_depth` deep in each other, and in which no object has a name twice;
// empty if it is. Time goes with the length of the text.
std::string wrong_with_object(const std::string& text, int most_depth);

}  // namespace lathe::cli
