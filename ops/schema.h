// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares how an operator is described: its tensors and options, and the functions that check it
// and make its executor. Validation, inference, the C tables, the program's help, manifests and
// docs/operators.md come from these tables; nothing else knows an operator's surface.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "codegen/base/dtype.h"
#include "codegen/base/status.h"
#include "ops/dims.h"

struct lathe_problem;

namespace lathe {

class Executor;
class Values;
struct DeviceFacts;
struct Resolved;

using MadeExecutor = Result<std::unique_ptr<Executor>>;

inline constexpr int kMaxTensors = 32;

enum class Role { input, output, inout };

// Describes a tensor of an operator. `dtypes` lists the allowed words, "f32|bf16", or names the
// tensor whose dtype it has, "=x".
struct TensorInfo {
  const char* name = "";
  const char* shape = "";
  const char* dtypes = "";
  const char* sentence = "";
  Role role = Role::input;
  bool is_optional = false;
  const char* alias_of = nullptr;    // always equals this tensor, so a call has no slot for it
  const char* given_if = nullptr;    // an input where this option is 1
  const char* changed_by = nullptr;  // in and out, but only read unless this tensor is given
  const char* needed = "";           // "dx,bias": it means nothing without each of these
  bool is_strided = false;           // strides of batch and tokens are free; rows are contiguous
  bool has_free_columns = false;     // if strided: the stride of the last dimension is free too
  // This option says how the columns of a result are cut: into parts, of which the tensor is number
  // `part`. -1: it is the whole, where the option has no parts.
  const char* cut_by = nullptr;
  int part = -1;
  // The tensor's address is a multiple of `alignment` bytes. If 0, a strided tensor has the
  // alignment that wide accesses of its rows need, any other its dtype's size. The alignment is
  // never more than the problem declares.
  int alignment = 0;

  constexpr TensorInfo optional() const { return with(&TensorInfo::is_optional, true); }
  constexpr TensorInfo required() const { return with(&TensorInfo::is_optional, false); }
  constexpr TensorInfo strided() const { return with(&TensorInfo::is_strided, true); }
  constexpr TensorInfo free_columns() const {
    return strided().with(&TensorInfo::has_free_columns, true);
  }
  constexpr TensorInfo cut(const char* option, int number = -1) const {
    return with(&TensorInfo::cut_by, option).with(&TensorInfo::part, number);
  }
  constexpr TensorInfo aligned(int bytes) const { return with(&TensorInfo::alignment, bytes); }
  constexpr TensorInfo alias(const char* of) const { return with(&TensorInfo::alias_of, of); }
  constexpr TensorInfo given(const char* option) const {
    return with(&TensorInfo::given_if, option);
  }
  constexpr TensorInfo changed(const char* by) const { return with(&TensorInfo::changed_by, by); }
  // A tensor that needs another one may be left out.
  constexpr TensorInfo needs(const char* tensors) const {
    return with(&TensorInfo::needed, tensors).optional();
  }
  constexpr TensorInfo says(const char* text) const { return with(&TensorInfo::sentence, text); }

 private:
  template <typename Value>
  constexpr TensorInfo with(Value TensorInfo::*member, Value value) const {
    TensorInfo out = *this;
    out.*member = value;
    return out;
  }
};
// Returns whether kernels access a tensor in pieces of up to 16 bytes, as far as the problem's
// alignment allows. Any other may begin at each of its elements.
constexpr bool is_wide(const TensorInfo& tensor) {
  return tensor.alignment != 0 ? tensor.alignment > 1 : tensor.is_strided;
}
// Inputs are required, outputs are optional, tensors that are changed in place are required.
constexpr TensorInfo input(const char* name, const char* shape, const char* dtypes,
                           const char* sentence) {
  return {name, shape, dtypes, sentence, Role::input, false};
}
constexpr TensorInfo output(const char* name, const char* shape, const char* dtypes,
                            const char* sentence) {
  return {name, shape, dtypes, sentence, Role::output, true};
}
constexpr TensorInfo inout(const char* name, const char* shape, const char* dtypes,
                           const char* sentence) {
  return {name, shape, dtypes, sentence, Role::inout, false};
}

// Returns the index of a table's row; -1 if no row has the name.
constexpr int find_row(std::span<const TensorInfo> table, std::string_view name) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (name == table[i].name) return static_cast<int>(i);
  }
  return -1;
}
// Returns the index of an existing row at compile time. Code names tensors by this index.
consteval int index_of(std::span<const TensorInfo> table, std::string_view name) {
  return find_row(table, name) >= 0 ? find_row(table, name)
                                    : throw "the table has no tensor of this name";
}

// Returns the groups of rows one after another.
template <typename Row, size_t... kCounts>
constexpr auto joined(const std::array<Row, kCounts>&... groups) {
  std::array<Row, (kCounts + ...)> out{};
  size_t next = 0;
  const auto append = [&](const auto& group) {
    for (const Row& row : group) out[next++] = row;
  };
  (append(groups), ...);
  return out;
}

enum class OptionType { integer, number, word };

// Describes an option of an operator. `allowed` lists values, "none|silu", "0|1", and ranges of
// numbers, ">0", ">=0", "[-5,0)", "any"; FILE stands for a file's name, LIST for whole numbers from
// 1 on with commas between them. ops/options.h makes these rows.
struct OptionInfo {
  const char* name = "";
  OptionType type = OptionType::integer;
  const char* fallback = "";  // the default
  const char* allowed = "";
  const char* sentence = "";
  // Stores an allowed value in the operator's struct of options. Returns INVALID_ARGUMENT if the
  // member's type does not hold the value. Null: no code reads the value.
  Status (*store)(const OptionInfo& option, const std::string& value, void* options) = nullptr;
};

// Says how an operator's batch and its offsets determine the number of sequences.
enum class Sequences {
  one_row,  // offsets pack them into a row, B is 1; without offsets each row is one: N is B
  either,   // offsets or a batch axis: what is known of one holds for the other
  apart     // both, each on its own; the operator's check knows
};

struct Operator {
  const char* name;
  const char* sentence;
  std::span<const TensorInfo> tensors;
  std::span<const OptionInfo> options;
  const char* produces;       // "y,dx": at least one of these must be declared
  const char* backward = "";  // the gradient that is given if gradients of inputs are wanted
  bool ranks = false;         // it can be split over a group
  bool chain = false;         // over ranks states go along the tokens, and no keys travel
  Sequences sequences = Sequences::one_row;
  const char* shape_option = "";  // chooses among a tensor's shapes of one rank, by number
  // Kernels load and store rows in pieces of at least so many bytes: a problem that promises less
  // of its wide tensors (is_wide) is refused. 1: every promise is taken.
  int least_alignment = 1;
  const char* reference = nullptr;  // of a caller's kernel: the file beside it that defines it
  // Returns the operator's struct of options with its defaults. Null: it has none.
  std::shared_ptr<void> (*new_options)() = nullptr;
  // Refuses problems that the tables cannot exclude. Called after the tables' checks.
  Status (*check)(const Resolved& resolved);
  // Chooses kernels; compiles nothing. Called after `check`.
  MadeExecutor (*make)(const Resolved& resolved, const DeviceFacts& facts);
  // Fills extents that follow from others. Null: there are none.
  void (*derive)(const lathe_problem& problem, Extents* extents) = nullptr;
  // Refuses values of integer tensors that a kernel would trust. Null: there are none.
  Status (*check_values)(const Values& values) = nullptr;
  // What follows is of operators that are made at run time, of a caller's text.
  OwnDims dims = {};                  // own0, own1, ... of the tensors' shapes
  const std::string* text = nullptr;  // the whole of it
  const void* listed = nullptr;       // what the C API lends of it
};

// Problems and plans hold an operator that is made at run time; the others are there for ever.
using OperatorPointer = std::shared_ptr<const Operator>;

std::span<const Operator> operators();  // those that are there for ever
// Finds an operator by name, also one that was registered and that somebody still holds.
OperatorPointer find_operator(std::string_view name);
// Lets find_operator find an operator for as long as somebody holds it. If one of the same name is
// registered already, which then is of the same text, returns that one instead.
OperatorPointer register_operator(OperatorPointer made);
// Makes an operator of a caller's text: a kernel with its description in front
// (docs/own_kernels.md). `file` stands in messages, and the name of the operator begins with the
// file's, unless the text gives a name. The operator is not registered. INVALID_ARGUMENT names the
// line and the column.
Result<std::shared_ptr<Operator>> parse_operator(std::string text, const std::string& file);
// Return an index into op.tensors or op.options; -1 if none has the name.
int find_tensor(const Operator& op, std::string_view name);
int find_option(const Operator& op, std::string_view name);
std::string operator_names();  // "kda, shard"
// Return messages with the missing name, the nearest name, and all names.
std::string no_such_operator(std::string_view name);
std::string no_such_tensor(const Operator& op, std::string_view name);
std::string no_such_option(const Operator& op, std::string_view name);

}  // namespace lathe
