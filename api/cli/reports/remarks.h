// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions report ptxas's remarks on a kernel, such as that it serialised wgmma.
#pragma once

#include "api/cli/reports/report.h"

namespace lathe::cli {

// Returns a text of a kernel, or its bytes.
std::string kernel_text(const lathe_plan* plan, size_t kernel, lathe_text which);

// [{"code": "C7511", "class": "loss" or "note", "lines": 1, "text": "..."}]; null if the kernel was
// cached by a lathe that kept no remarks.
Json kernel_remarks(const lathe_plan* plan, size_t kernel);

// Both take what the above returns. The first is for explain: "  remark     C7511, loss: ...".
std::string remarks_lines(const Json& remarks);
// The second is for listings: lines that begin with //, at least one.
std::string remarks_comment(const Json& remarks);

}  // namespace lathe::cli
