// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/symbols.h"

namespace lathe::own {

SymbolLayout lay_symbols(const Description& of) {
  SymbolLayout at;
  const auto tensors = static_cast<int>(of.tensors.size());
  at.dims = 0;
  at.options = kMostOwnDims;
  at.constants = at.options + static_cast<int>(of.options.size());
  at.sm = at.constants + static_cast<int>(of.constants.size());
  at.sm_a = at.sm + 1;
  at.multiprocessors = at.sm_a + 1;
  at.bytes = at.multiprocessors + 1;
  at.given = at.bytes + tensors;
  at.count = at.given + tensors;
  return at;
}

Scope scope_of(const Description& of, Dims dims, size_t constants) {
  Scope out;
  const SymbolLayout& at = of.symbols;
  for (size_t i = 0; i < of.dims.size(); ++i) {
    const DimText& dim = of.dims[i];
    const bool usable = dims == Dims::all || (dims == Dims::compiled ? dim.compiled : !dim.extent);
    if (usable) out.symbols.push_back({dim.name, at.dims + static_cast<int>(i)});
    if (!usable && dims == Dims::compiled) out.varying.push_back(dim.name);
  }
  for (size_t i = 0; i < of.options.size(); ++i) {
    if (of.options[i].type == OptionType::number) continue;
    out.symbols.push_back({of.options[i].name, at.options + static_cast<int>(i)});
  }
  for (size_t i = 0; i < constants; ++i) {
    if (of.constants[i].dim >= 0) continue;
    out.symbols.push_back({of.constants[i].name, at.constants + static_cast<int>(i)});
  }
  if (dims != Dims::given) {
    out.symbols.push_back({"sm", at.sm});
    out.symbols.push_back({"sm_a", at.sm_a});
    out.symbols.push_back({"multiprocessors", at.multiprocessors});
  }
  for (size_t i = 0; i < of.tensors.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (dims != Dims::given) {
      out.functions.push_back({"bytes", of.tensors[i].name, at.bytes + index});
    }
    if (of.tensors[i].optional) {
      out.functions.push_back({"given", of.tensors[i].name, at.given + index});
    }
  }
  return out;
}

}  // namespace lathe::own
