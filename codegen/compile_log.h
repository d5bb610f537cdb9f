// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads what ptxas says about the kernel `entry` in NVRTC's program log: registers, spills, and
// remarks about speed, such as that wgmma is serialised. Pure functions of text.
//
// The front end writes into the same log and quotes the user's text there. It indents what it
// quotes, and ptxas begins its lines with its name, so quoted text is never taken for a remark. (A
// mod has no #line, which could put a name of its own there.)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

struct Remark {
  std::string code;  // "C7511"; "" if ptxas gave none
  std::string text;  // one printable line, cut where it is long
  int lines = 1;     // of the log that say this, whatever numbers they name
  bool operator==(const Remark&) const = default;
};

// -1 stands for what could not be parsed in the log: never a failed compile.
struct CompileReport {
  int registers = -1, barriers = -1, smem_static = -1;
  // These hold the largest frame, and the sums of spills, of the kernel and of what it calls.
  int stack_bytes = -1, spill_stores = -1, spill_loads = -1;
  std::optional<std::vector<Remark>> remarks;  // nullopt: nobody knows
  std::string ptx_banner;                      // the compiler's build as the PTX header names it
  double milliseconds = 0;
};

// Keeps at most this many remarks that differ. Losses push notes out.
inline constexpr size_t kMostRemarks = 16;

// The time of a call goes with the length of the log; the size of the result is bounded.
CompileReport parse_compile_log(std::string_view log);

// True if the remark says that the kernel is slower than its text asks for: wgmma is serialised, or
// setmaxnreg is ignored. False for notes, such as a wait that ptxas put in.
bool is_loss(const Remark& remark);

// Returns a sentence for each thing that makes the kernel slower than its text asks for: remarks
// that are losses, spills, a stack. What is not known is not listed, nor spills and a stack of at
// most `kept` bytes. A family whose kernels must have none rejects the kernel unless the list is
// empty.
std::vector<std::string> losses(const CompileReport& report, int kept = 0);

// So many bytes outside registers, of loads and stores together, cost a Hopper's kernel less than
// the portable one in its place would: a walk back of KDA with 104 is twice as fast.
inline constexpr int kKeptBytes = 160;

// Remarks as one line of text, and back; "?" stands for nullopt, and so does text that is none.
std::string remarks_text(const std::optional<std::vector<Remark>>& remarks);
std::optional<std::vector<Remark>> remarks_in(std::string_view text);

}  // namespace lathe
