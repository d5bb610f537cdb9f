// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the kinds of layers that a manifest may name, and the calls that serving each makes.
#pragma once

#include <span>
#include <string>

#include "codegen/base/status.h"

namespace lathe {

// A call that serving a layer makes. `with` names optional tensors that each call has, `maybe`
// those that come and go; `options` have more than one value in serving.
struct ServedCall {
  const char* op = "";
  const char* with = "";
  const char* maybe = "";
  const char* options = "";     // "update_state=1|0,..."
  const char* unset = "";       // options of the layer that this call leaves at their defaults
  const char* extents = "";     // "HK=1": what is usual
  bool decodes = false;         // its dims T and Sq count the new tokens of a sequence
  bool split_channels = false;  // the layer's channels come together, or q, k and v apart
};

// Returns the calls of a kind; of an operator's name `own`, which becomes its only call.
Result<std::span<const ServedCall>> calls_of(const std::string& kind, ServedCall* own);

}  // namespace lathe
