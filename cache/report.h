// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A report is what the compiler said about a kernel, as the metadata of its entry keeps it. An
// entry of an older lathe lacks names that came later: they read as unknown.
#pragma once

#include "cache/metadata.h"
#include "codegen/compile_log.h"

namespace lathe {

void add_report(const CompileReport& report, Metadata* metadata);
// `milliseconds` is -1 too if it is not known. losses(report_of(...)) says whether a caller must
// reject the kernel.
CompileReport report_of(const Metadata& metadata);

}  // namespace lathe
