// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/reports/remarks.h"

#include "api/cli/options.h"

namespace lathe::cli {
namespace {

constexpr const char* kUnknown = "unknown, as the kernel was cached before remarks were kept";

// "C7517, note, 3 lines: warpgroup.wait is injected ..."
std::string sentence(const Json& remark) {
  const auto code = remark.at("code").get<std::string>();
  const auto lines = remark.at("lines").get<int64_t>();
  return text(code, code.empty() ? "" : ", ", remark.at("class").get<std::string>(),
              lines == 1 ? "" : text(", ", lines, " lines"), ": ",
              remark.at("text").get<std::string>());
}

std::string lines(const Json& remarks, const char* begin) {
  if (remarks.is_null()) return text(begin, kUnknown, "\n");
  std::string out;
  for (const Json& remark : remarks) out += text(begin, sentence(remark), "\n");
  return out;
}

}  // namespace

std::string kernel_text(const lathe_plan* plan, size_t kernel, lathe_text which) {
  const char* bytes = nullptr;
  size_t size = 0;
  check(lathe_plan_kernel_text(plan, kernel, which, &bytes, &size));
  return {bytes, size};
}

Json kernel_remarks(const lathe_plan* plan, size_t kernel) {
  const std::string found = kernel_text(plan, kernel, LATHE_TEXT_REMARKS);
  if (found == "?") return nullptr;
  Json out = Json::array();
  for (const auto& row : rows_of(found, 4)) {
    out.push_back({{"code", row[0]},
                   {"class", row[1]},
                   {"lines", parse_int("lines of a remark", row[2], 0, INT32_MAX)},
                   {"text", row[3]}});
  }
  return out;
}

std::string remarks_lines(const Json& remarks) { return lines(remarks, "  remark     "); }

std::string remarks_comment(const Json& remarks) {
  const std::string found = lines(remarks, "// remark        ");
  return found.empty() ? "// remarks       none\n" : found;
}

}  // namespace lathe::cli
