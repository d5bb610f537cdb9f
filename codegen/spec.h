// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A kernel, specialised: template, constants and mods, nothing else. Its canonical text is what
// the log shows, what tests compare and what enters the cache key.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/dtype.h"

namespace lathe {

// One constant of the Config struct. `name` is its word in the canonical text, `member` its name in
// the Config.
struct Constant {
  enum class Kind { type, integer, flag };
  std::string name;
  std::string member;
  Kind kind = Kind::integer;
  long long value = 0;  // the Dtype, the integer or 0/1

  // The type of a captured array: all that mods may know of a kernel.
  bool is_capture() const { return name.starts_with("capture_"); }

  static Constant type(std::string name, std::string member, Dtype dtype);
  static Constant integer(std::string name, std::string member, long long value);
  static Constant flag(std::string name, std::string member, bool value);
};

// Device text of a caller that a kernel compiles in. Its bytes enter the key, its place does not:
// the kernel includes it as "caller/<name>.cuh", and what the compiler says is told with `file`.
struct Mod {
  std::string name;  // "score_mod": its word in the canonical text
  std::string file;  // where the caller has it from, for messages
  std::string text;
  bool is_kernel = false;  // a whole kernel; otherwise functions that a template's kernel calls

  std::string header() const { return "caller/" + name + ".cuh"; }  // without a file of its own
  std::string adapter() const {
    return "attention/mods/" + name + ".cuh";
  }                          // the template around it
  std::string type() const;  // what the adapter defines: "ScoreMod"
  // SHA-256 of the text, in hex: in a key it stands for the text, whoever wrote that.
  std::string digest() const;
};

// A tensor that a kernel reads through a tensor map: the parameter that points to it and the box
// that one copy brings to shared memory. The host encodes the map from the tensor of the call.
struct TensorMapRecipe {
  std::string field;  // of the parameter struct: "k"
  Dtype dtype = Dtype::bf16;
  std::vector<int> box;   // elements, innermost dimension first; 0: the call says how many
  int swizzle_bytes = 0;  // 0, 32, 64 or 128
};

// A template and what the host knows of its parameter struct.
struct Template {
  const char *folder, *kernel, *params;
  size_t params_bytes;
  const char* last_field;
  size_t last_field_offset;
};
// The template KERNEL of a folder, whose parameters are a Params that ends with a field `last`.
#define LATHE_TEMPLATE(folder, kernel, Params, last) \
  ::lathe::Template { folder, kernel, #Params, sizeof(Params), #last, offsetof(Params, last) }

struct KernelSpec {
  std::string kernel;  // stem, function template and log name: "causal_conv1d_bwd"
  // Embedded name: "conv/causal_conv1d_bwd.cuh"; of a kernel of a caller its function template.
  std::string source;
  std::string params;      // "ConvBackwardParams"
  int params_bytes = 0;    // sizeof on the host
  std::string last_field;  // "state_tiles"
  int last_field_offset = 0;
  std::string smem;  // "ConvBackwardSmem": has kBytes<Config>; empty: no dynamic shared memory
  int threads = 0;   // of a block
  int block_y = 1, block_z = 1;  // threads in y and z; the others are in x
  int smem_bytes = 0;            // dynamic shared memory, asserted against the template's own sum
  // The rest of what a launch needs beside its grid. The text names only what is not the default.
  int min_blocks = 1;  // of a multiprocessor, as the launch bounds promise
  int cluster = 1;     // blocks of a cluster, all in x
  std::vector<TensorMapRecipe> tensor_maps;
  std::vector<Constant> constants;  // in the template's order
  std::vector<Mod> mods;            // mostly none; mask_mod before score_mod
  // With a mod that is a kernel: what stands before its text, the headers that it includes and its
  // parameters.
  std::string before;
  // With mods: what reads captured arrays for them.
  const char* loads = "attention/mods/capture_loads.cuh";
  // For reports: why a kernel of another family was not taken for this one's step, "not sm90: the
  // elements are float32". Empty where none was considered. No part of the text.
  std::string family_reason;

  // "portable" for kernels of every architecture, "sm90" for those of Hopper alone; the step that
  // chose the kernel says it. No part of the text.
  const char* family = "portable";
  // More words for the class of its tuning key: what else a choice of this kernel decides. No part
  // of the text.
  std::string also_decides;
  // Says whether only the compiler knows if the kernel is worth taking, as its step has another one
  // behind it: kernels of one architecture have no register to spare.
  bool may_be_rejected = false;

  // Returns "causal_conv1d_bwd x=bf16 weight=bf16 width=4 ... threads=128 smem=0": no architecture.
  // A mod is there with its digest.
  std::string text() const;
  // Returns a spec of a template.
  static KernelSpec of(const Template& from, int threads = 0, std::vector<Constant> constants = {});
  // Returns the kernel of a caller that the spec is of; null: it is of a template.
  const Mod* own() const { return !mods.empty() && mods[0].is_kernel ? &mods[0] : nullptr; }
  // Appends constants.
  void add(std::initializer_list<Constant> more) {
    constants.insert(constants.end(), more.begin(), more.end());
  }
  // Takes the names and sizes of a template over.
  void set(const Template& from);
  // The value of a constant; asserts that it is there.
  long long constant(std::string_view name) const;
  // The same, or `otherwise` where the kernel has no such constant.
  long long constant(std::string_view name, long long otherwise) const;
};

}  // namespace lathe
