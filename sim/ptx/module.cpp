// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Module::parse: text -> unit -> kernels.
#include "sim/ptx/module.h"

#include <algorithm>

#include "sim/ptx/decode/decode.h"
#include "sim/ptx/flow/flow.h"
#include "sim/ptx/parse/unit.h"

namespace sim {

class Parser {
 public:
  static std::shared_ptr<const Module> assemble(const Unit& unit, std::string_view text) {
    auto module = std::make_shared<Module>();
    module->target_ = unit.target;
    module->text_ = text;
    module->digest_ = 0xCBF29CE484222325u;
    for (const char letter : text) {
      module->digest_ = (module->digest_ ^ static_cast<uint8_t>(letter)) * 0x100000001B3u;
    }
    module->files_ = unit.files;
    for (const Declaration& d : unit.variables) {
      if (d.space == Space::shared || d.external) continue;
      module->variables_.push_back(variable(d));
    }
    for (size_t f = 0; f < unit.functions.size(); ++f) {
      module->function_addresses_[unit.functions[f].name] = function_address(f);
    }
    for (const FunctionText& f : unit.functions) {
      if (f.entry && f.has_body) module->kernels_.push_back(kernel(unit, f));
    }
    return module;
  }

 private:
  static Variable variable(const Declaration& d) {
    Variable v;
    v.name = d.name;
    v.bytes = d.bytes;
    v.align = d.align;
    v.constant = d.space == Space::constant;
    v.managed = d.managed;
    v.image = d.image;
    for (const auto& p : d.pointers) v.relocations.push_back({p.offset, p.symbol, p.addend});
    return v;
  }

  static Kernel kernel(const Unit& unit, const FunctionText& text) {
    Kernel k;
    k.name = text.name;
    for (const int id : text.params) {
      const Declaration& d = text.variables[id];
      if (d.bytes > 32764) throw PtxError(d.line, "parameter '" + d.name + "' is too large");
      ParamInfo p;
      p.align = d.align;
      p.bytes = static_cast<uint32_t>(d.bytes);
      p.offset = (k.param_bytes + d.align - 1) / d.align * d.align;
      k.param_bytes = p.offset + p.bytes;
      k.params.push_back(p);
    }
    if (k.param_bytes > 32764) {
      throw PtxError(text.line, "parameters of '" + k.name + "' take " +
                                    std::to_string(k.param_bytes) + " bytes; 32764 are allowed");
    }
    auto code = std::make_shared<Function>();
    const FunctionText whole = inline_calls(unit, text);
    Decoder decoder(unit, whole, code.get());
    decoder.run();
    Flow(decoder).run();
    k.static_shared_bytes = code->static_shared;
    k.shared_align = code->shared_align;
    k.local_bytes = code->local_bytes;
    k.register_bound = register_bound(text);
    k.registers = registers(k.register_bound, decoder.live_registers());
    k.max_threads = text.max_threads;
    std::copy(text.required_block, text.required_block + 3, k.required_block);
    std::copy(text.required_cluster, text.required_cluster + 3, k.required_cluster);
    k.max_cluster_rank = text.max_cluster_rank;
    k.explicit_cluster = text.explicit_cluster;
    k.code = std::move(code);
    return k;
  }

  // Returns what a compiler would roughly need: the live values and a few for addresses, in units
  // of 8.
  static uint32_t registers(uint32_t bound, uint32_t live) {
    const uint32_t cap = bound ? bound : 255;
    return std::max(1u, std::min(cap, (live + 6 + 7) / 8 * 8));
  }

  static uint32_t register_bound(const FunctionText& text) {
    uint32_t cap = 255;
    if (text.max_registers) cap = std::min(cap, text.max_registers);
    if (text.max_threads) {
      const uint32_t blocks = std::max(1u, text.min_blocks);
      cap = std::min(cap, std::max(16u, 65536 / (text.max_threads * blocks) / 8 * 8));
    }
    return text.max_registers || text.max_threads ? cap : 0;
  }
};

std::shared_ptr<const Module> Module::parse(std::string_view text, std::string* log) {
  std::string error;
  try {
    Unit unit;
    if (parse_text(text, &unit, &error)) return Parser::assemble(unit, text);
  } catch (const std::exception& e) {
    error = e.what();
  }
  if (log) *log = error;
  return nullptr;
}

const Kernel* Module::find_kernel(std::string_view name) const {
  for (const Kernel& k : kernels_) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

}  // namespace sim
