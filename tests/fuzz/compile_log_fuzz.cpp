// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes the reader of NVRTC's log, which quotes a user's text. Whatever the log, the
// remarks are few, each is a printable line, and they survive in an entry's line. So do those of a
// line that somebody else wrote, or it is refused.
#include "codegen/base/printable.h"
#include "codegen/compile_log.h"
#include "tests/fuzz/property.h"

using namespace lathe;

namespace {

void check_remarks(const std::vector<Remark>& remarks) {
  FUZZ_CHECK(remarks.size() <= kMostRemarks);
  for (const Remark& remark : remarks) {
    FUZZ_CHECK(remark.code.size() <= 8 && remark.text.size() <= 4096);
    FUZZ_CHECK(escaped(remark.code + remark.text, 8192) == remark.code + remark.text);
  }
}

void check_log(std::string_view log) {
  const CompileReport report = parse_compile_log(log);
  FUZZ_CHECK(report.remarks.has_value());
  check_remarks(*report.remarks);
  const std::string kept = remarks_text(report.remarks);
  FUZZ_CHECK(kept.find('\n') == kept.npos);
  FUZZ_CHECK(remarks_in(kept) == report.remarks);
  FUZZ_CHECK(losses(report).size() <= kMostRemarks + 2);
  for (const int each : {report.registers, report.barriers, report.smem_static, report.stack_bytes,
                         report.spill_stores, report.spill_loads}) {
    FUZZ_CHECK(each >= -1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::as_text(data, size);
  check_log(input);
  if (const auto remarks = remarks_in(input)) check_remarks(*remarks);
  return 0;
}
