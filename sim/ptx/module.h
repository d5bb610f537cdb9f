// This file declares a parsed PTX module and what the driver may ask of it. The decoded
// instructions behind a kernel are private to sim/exec.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sim {

struct Function;  // decoded code; sim/ptx/code.h

struct ParamInfo {
  uint32_t offset = 0;
  uint32_t bytes = 0;
  uint32_t align = 1;
};

// A Kernel is one .visible .entry.
struct Kernel {
  std::string name;
  std::vector<ParamInfo> params;
  uint32_t param_bytes = 0;
  uint32_t static_shared_bytes = 0;
  uint32_t shared_align = 1;    // the largest alignment declared, the dynamic part included
  uint32_t local_bytes = 0;     // one thread's depot
  uint32_t registers = 1;       // estimate from liveness, capped by the performance directives
  uint32_t register_bound = 0;  // what the performance directives allow a thread; 0: none given
  uint32_t max_threads = 0;     // product of .maxntid or .reqntid; 0: none given
  uint32_t required_block[3] = {0, 0, 0};    // .reqntid, 0: none
  uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster, 0: none
  uint32_t max_cluster_rank = 0;
  bool explicit_cluster = false;
  std::shared_ptr<const Function> code;
};

// A Variable is a module-level .global or .const variable.
struct Variable {
  std::string name;
  uint64_t bytes = 0;
  uint32_t align = 1;
  bool constant = false;
  bool managed = false;        // the host uses it at the same address
  std::vector<uint8_t> image;  // initial bytes; empty: zero, as the language says
  // A Relocation is a pointer inside the image: at `offset`, the address of `symbol` plus `addend`.
  struct Relocation {
    uint64_t offset;
    std::string symbol;
    int64_t addend;
  };
  std::vector<Relocation> relocations;
};

class Module {
 public:
  // Parses and decodes NUL-free PTX text. An unknown instruction, a bad operand or an undefined
  // name fails here, with its line. On failure returns null and fills `log`.
  static std::shared_ptr<const Module> parse(std::string_view text, std::string* log);

  const std::string& target() const { return target_; }  // "sm_90a", without ", debug"
  const std::string& text() const { return text_; }
  uint64_t digest() const { return digest_; }  // FNV-1a of the text
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const std::vector<Variable>& variables() const { return variables_; }
  const Kernel* find_kernel(std::string_view name) const;
  const std::vector<std::string>& files() const { return files_; }  // .file table, by index
  // Returns, by function name, the value that a variable pointing to the function holds.
  const std::unordered_map<std::string, uint64_t>& function_addresses() const {
    return function_addresses_;
  }

 private:
  friend class Parser;
  std::string target_, text_;
  uint64_t digest_ = 0;
  std::vector<Kernel> kernels_;
  std::vector<Variable> variables_;
  std::vector<std::string> files_;
  std::unordered_map<std::string, uint64_t> function_addresses_;
};

}  // namespace sim
