// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/code/disassemble.h"

#include "api/cli/code/machine_code.h"
#include "api/cli/code/program.h"
#include "api/cli/reports/line_file.h"
#include "api/cli/reports/remarks.h"

namespace lathe::cli {
namespace {

// nvdisasm reads a file. This one has no name, so nobody else finds it and nothing is left behind.
class CubinFile {
 public:
  explicit CubinFile(const std::string& cubin) : file_("lathe-cubin") {
    for (size_t done = 0; done < cubin.size();) {
      const ssize_t wrote = write(file_.number(), cubin.data() + done, cubin.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) fail("a memory file cannot be written: ", std::strerror(errno));
      done += static_cast<size_t>(wrote);
    }
  }
  std::string path() const { return file_.path(); }

 private:
  LineFile file_;
};

}  // namespace

std::string disassembler() {
  size_t needed = 0;
  check(lathe_nvdisasm(nullptr, 0, &needed));
  std::string path(needed, '\0');
  check(lathe_nvdisasm(path.data(), path.size(), nullptr));
  return path.c_str();
}

std::string machine_code(const std::string& disassembler, const lathe_plan* plan, size_t kernel) {
  const std::string cubin = kernel_text(plan, kernel, LATHE_TEXT_CUBIN);
  if (cubin.empty()) fail("the kernel ", kernel_info(plan, kernel).name, " has no machine code");
  const CubinFile file(cubin);
  const ProgramResult listing = run_program(disassembler, {"-c", file.path()});
  if (!listing.problem.empty()) {
    const std::string said = listing.errors.substr(0, listing.errors.find('\n'));
    fail(in_quotes(disassembler), " failed: ", listing.problem, said.empty() ? "" : ": ",
         said.empty() ? "" : in_quotes(said));
  }
  return listing.out + "\n" + counts_text(count_machine_code(listing.out)) +
         remarks_comment(kernel_remarks(plan, kernel));
}

}  // namespace lathe::cli
