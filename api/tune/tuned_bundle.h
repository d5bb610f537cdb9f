// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tuned choices that travel with kernels: "<gpu> | RECORD", a line of a bundle's information.
#pragma once

#include <string>
#include <vector>

#include "api/context.h"

namespace lathe {

// The records of the user's directory, and those that hold for the context's device, by which
// kernels among `keys` (null: all of the sources) were made.
std::vector<std::string> tuned_lines(lathe_context& context,
                                     const std::vector<EntrySource*>& sources,
                                     const std::vector<Digest>* keys);
// Adds those of a bundle, whose information text this is, to the user's directory.
Status take_tuned_lines(lathe_context& context, const std::string& information);

}  // namespace lathe
