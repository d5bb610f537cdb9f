// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes the canonical text of a spec: nothing else writes it.
#include "codegen/spec.h"

#include <cassert>

#include "codegen/base/letters.h"
#include "codegen/base/sha256.h"

namespace lathe {

Constant Constant::type(std::string name, std::string member, Dtype dtype) {
  return {std::move(name), std::move(member), Kind::type, static_cast<long long>(dtype)};
}

Constant Constant::integer(std::string name, std::string member, long long value) {
  return {std::move(name), std::move(member), Kind::integer, value};
}

Constant Constant::flag(std::string name, std::string member, bool value) {
  return {std::move(name), std::move(member), Kind::flag, value ? 1 : 0};
}

std::string Mod::type() const {
  std::string words;
  bool first = true;  // letter of a word
  for (const char letter : name) {
    if (letter != '_') {
      words += first ? to_upper(letter) : letter;
    }
    first = letter == '_';
  }
  return words;
}

std::string Mod::digest() const { return hex_of(sha256(text)); }

void KernelSpec::set(const Template& from) {
  kernel = from.kernel;
  source = std::string(from.folder) + '/' + from.kernel + ".cuh";
  params = from.params, params_bytes = static_cast<int>(from.params_bytes);
  last_field = from.last_field, last_field_offset = static_cast<int>(from.last_field_offset);
}

KernelSpec KernelSpec::of(const Template& from, int threads, std::vector<Constant> constants) {
  KernelSpec spec;
  spec.set(from);
  spec.threads = threads;
  spec.constants = std::move(constants);
  return spec;
}

std::string KernelSpec::text() const {
  std::string result;
  result.reserve(512);
  result += kernel;
  for (const Constant& constant : constants) {
    result += ' ';
    result += constant.name;
    result += '=';
    if (constant.kind == Constant::Kind::type) {
      result += word(static_cast<Dtype>(constant.value));
    } else {
      result += std::to_string(constant.value);
    }
  }
  for (const Mod& mod : mods) {
    result += ' ' + mod.name + '=' + mod.digest();
  }
  for (const TensorMapRecipe& map : tensor_maps) {
    result += " map_" + map.field + '=' + std::string(word(map.dtype));
    for (const int extent : map.box) result += 'x' + std::to_string(extent);
    if (map.swizzle_bytes != 0) result += "/" + std::to_string(map.swizzle_bytes);
  }
  if (cluster != 1) result += " cluster=" + std::to_string(cluster);
  if (min_blocks != 1) result += " min_blocks=" + std::to_string(min_blocks);
  if (block_y != 1 || block_z != 1) {
    result += " block_y=" + std::to_string(block_y) + " block_z=" + std::to_string(block_z);
  }
  result += " threads=" + std::to_string(threads);
  return result += " smem=" + std::to_string(smem_bytes);
}

long long KernelSpec::constant(std::string_view name) const {
  for (const Constant& constant : constants) {
    if (constant.name == name) return constant.value;
  }
  assert(false && "a spec has no constant of this name");
  return 0;
}

long long KernelSpec::constant(std::string_view name, long long otherwise) const {
  for (const Constant& constant : constants) {
    if (constant.name == name) return constant.value;
  }
  return otherwise;
}

}  // namespace lathe
