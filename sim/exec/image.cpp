// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles module variables in memory.
#include <algorithm>
#include <cstring>

#include "sim/exec/launch.h"

namespace sim {

std::shared_ptr<const Image> load_image(std::shared_ptr<const Module> module, Memory& memory,
                                        std::string* log) {
  auto image = std::make_shared<Image>();
  image->module = module;
  auto give_up = [&](const std::string& why) {
    unload_image(*image, memory);
    if (log) *log = why;
    return nullptr;
  };
  for (const Variable& v : module->variables()) {
    if (v.align > 512) return give_up("variable '" + v.name + "' asks for too much alignment");
    const uint64_t bytes = std::max<uint64_t>(v.bytes, 1);
    const uint64_t at = memory.allocate(bytes, MemoryKind::symbol, 0);
    if (!at) return give_up("no memory for variable '" + v.name + "'");
    image->symbols[v.name] = at;
    // Without an initialiser the language gives zero.
    std::memset(reinterpret_cast<void*>(at), 0, bytes);
    if (!v.image.empty()) {
      std::memcpy(reinterpret_cast<void*>(at), v.image.data(), v.image.size());
    }
    memory.define(at, bytes);
    if (v.constant) memory.protect(at);
  }
  for (const Variable& v : module->variables()) {
    for (const Variable::Relocation& r : v.relocations) {
      const auto to = image->symbols.find(r.symbol);
      const auto code = module->function_addresses().find(r.symbol);
      const bool variable = to != image->symbols.end();
      if (!variable && code == module->function_addresses().end()) {
        return give_up("'" + v.name + "' points to '" + r.symbol + "', which is not known");
      }
      const uint64_t value =
          (variable ? to->second : code->second) + static_cast<uint64_t>(r.addend);
      std::memcpy(reinterpret_cast<void*>(image->symbols[v.name] + r.offset), &value, 8);
    }
  }
  return image;
}

void unload_image(const Image& image, Memory& memory) {
  for (const auto& [name, base] : image.symbols) memory.release(base);
}

}  // namespace sim
