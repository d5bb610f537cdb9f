// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declaring a problem: every refusal names the tensor or option, what was found and what is
// allowed. The texts that options name are read once, when the option is set.
#include "ops/problem.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"
#include "codegen/mods.h"
#include "ops/group.h"
#include "ops/options.h"

namespace lathe {
namespace {

constexpr unsigned kMethods = kAllgather | kDispatch | kExchangeHeads;
constexpr unsigned kGroupFlags =
    kReduceParameterGrads | kMethods | kNarrowGradients | kRankInvariant;

std::string dtype_text(int dtype) {
  if (dtype < 0 || dtype >= static_cast<int>(std::size(kDtypes))) {
    return text("dtype number ", dtype);
  }
  return word(static_cast<Dtype>(dtype));
}

// "its shape is [B,T,D], rank 3"; where there are several, "[B,H,Sq], rank 3, or [H,Tq], rank 2".
std::string shapes_text(const TensorInfo& tensor) {
  std::string out;
  for (const Shape& shape : parse_shapes(tensor.shape)) {
    out += text(out.empty() ? "its shape is " : ", or ", shape_text(shape), ", rank ", shape.rank);
  }
  return out;
}

}  // namespace

Status declare(lathe_problem& problem, const char* name, int dtype, int rank,
               const int64_t* shape) {
  const Operator& op = *problem.op;
  const int index = find_tensor(op, name);
  if (index < 0) return invalid(no_such_tensor(op, name));
  const TensorInfo& tensor = op.tensors[index];
  if (tensor.alias_of) {
    return invalid(text(name, " always equals ", tensor.alias_of, " and is never written: use ",
                        tensor.alias_of, " in its place"));
  }
  Declared& declared = problem.tensors[index];
  if (declared.given) return invalid(text(name, " is declared twice"));

  const bool same = tensor.dtypes[0] == '=';
  const char* allowed =
      same ? op.tensors[find_tensor(op, tensor.dtypes + 1)].dtypes : tensor.dtypes;
  if (!listed(allowed, '|', dtype_text(dtype))) {
    return invalid(text(name, " has dtype ", dtype_text(dtype), "; allowed are ", allowed,
                        same ? ", that of " : "", same ? tensor.dtypes + 1 : ""));
  }
  const Shape law = shape_of_rank(tensor.shape, rank);
  if (law.rank == 0) return invalid(text(name, " has rank ", rank, "; ", shapes_text(tensor)));
  LATHE_TRY(require(shape, "shape"));
  for (int i = 0; i < rank; ++i) {
    const int64_t least = law.dims[i].plus;
    const bool fixed = law.dims[i].dim == Dim::fixed;
    if (shape[i] == kUnknown) continue;
    if (fixed && shape[i] != least) {
      return invalid(text(name, " has shape ", extents_text(rank, shape), "; extent ", i, " of ",
                          shape_text(law), " must be ", least));
    }
    if (shape[i] < least || shape[i] > kMaxExtent) {
      return invalid(text(name, " has shape ", extents_text(rank, shape), "; extent ", i, " of ",
                          shape_text(law), " must be ", least, " to ", kMaxExtent,
                          ", or -1 where it varies"));
    }
  }
  declared.given = true;
  declared.dtype = static_cast<Dtype>(dtype);
  declared.shape = law;
  for (int i = 0; i < rank; ++i) declared.extents[i] = shape[i];
  return {};
}

namespace {

constexpr const char* kTypeTexts[] = {"an integer", "a number", "text"};  // by OptionType
const char* type_text(OptionType type) { return kTypeTexts[static_cast<int>(type)]; }

// Reads the whole of a small file. An error names the option, the file and the reason.
Result<std::string> read_text(const char* option, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return invalid(text("option ", option, " is '", path, "', which ", why));
  };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    return refuse("does not exist; allowed are none and a file of text");
  if (!std::filesystem::is_regular_file(status)) {
    return refuse("is no file; allowed are none and a file of text");
  }
  std::ifstream file(path, std::ios::binary);
  // One byte more than allowed, so that a larger one is noticed and not read.
  std::string bytes(kMostModBytes + 1, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) && !file.eof()) {
    return refuse("cannot be read");
  }
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

// `file`: what messages call the text.
Status keep_text(lathe_problem* problem, const char* option, std::string file, std::string bytes) {
  drop_byte_order_mark(&bytes);
  Mod mod{option, std::move(file), std::move(bytes)};
  LATHE_TRY(check_mod_text(mod));
  problem->mods.push_back(std::move(mod));
  return {};
}

}  // namespace

bool takes_file(const OptionInfo& option) {
  return option.type == OptionType::word && listed(option.allowed, '|', "FILE");
}

Status set_option(lathe_problem* problem, const char* name, OptionType given,
                  const std::string& value) {
  LATHE_TRY(require(problem, "problem"));
  LATHE_TRY(require(name, "option"));
  const Operator& op = *problem->op;
  const int index = find_option(op, name);
  if (index < 0) return invalid(no_such_option(op, name));
  const OptionInfo& option = op.options[index];
  const bool widens = given == OptionType::integer && option.type == OptionType::number;
  if (given != option.type && given != OptionType::word && !widens) {
    return invalid(text("option ", name, " is set to ", value, " as ", type_text(given),
                        "; it takes ", type_text(option.type), ": allowed are ", option.allowed));
  }
  if (!is_allowed(option, value)) {
    return invalid(
        text("option ", name, " is ", in_quotes(value), "; allowed are ", option.allowed));
  }
  if (problem->options[index]) {
    return invalid(text("option ", name, " is set twice, to ", in_quotes(*problem->options[index]),
                        " and to ", in_quotes(value)));
  }
  if (takes_file(option) && value != option.fallback) {
    LATHE_ASSIGN(std::string bytes, read_text(name, value));
    LATHE_TRY(keep_text(problem, name, value, std::move(bytes)));
  }
  // One text for one integer: 01 is 1.
  const bool whole = option.type == OptionType::integer;
  problem->options[index] =
      whole ? std::to_string(std::strtoll(value.c_str(), nullptr, 10)) : value;
  return {};
}

Status set_option_text(lathe_problem* problem, const char* name, std::string bytes) {
  const Operator& op = *problem->op;
  const int index = find_option(op, name);
  if (index < 0 || !takes_file(op.options[index])) {
    std::vector<std::string> all;
    for (const OptionInfo& option : op.options) {
      if (takes_file(option)) all.push_back(option.name);
    }
    return invalid(text(op.name, " has no option ", in_quotes(name), " that is a text; it has ",
                        all.empty() ? "none" : comma_list(all)));
  }
  if (problem->options[index]) {
    return invalid(text("option ", name, " is set twice, to ", in_quotes(*problem->options[index]),
                        " and to a text"));
  }
  const std::string file = text("<", name, ">");
  LATHE_TRY(keep_text(problem, name, file, std::move(bytes)));
  problem->options[index] = file;
  return {};
}

Status set_alignment(lathe_problem& problem, int64_t bytes) {
  if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16) {
    return invalid(text("alignment is ", bytes, "; allowed are 1, 2, 4, 8 and 16 bytes"));
  }
  problem.alignment = static_cast<int>(bytes);
  return {};
}

Status check_group_flags(const Operator& op, unsigned flags) {
  if (flags & ~kGroupFlags) {
    return invalid(text("group flags are ", flags,
                        "; allowed are 0 and sums of LATHE_REDUCE_PARAMETER_GRADS (1), "
                        "LATHE_NARROW_GRADIENTS (16) and one of LATHE_ALLGATHER (2), "
                        "LATHE_DISPATCH (4), LATHE_EXCHANGE_HEADS (8), or of "
                        "LATHE_REDUCE_PARAMETER_GRADS (1) and LATHE_RANK_INVARIANT (32)"));
  }
  if (flags & kRankInvariant && flags & (kMethods | kNarrowGradients)) {
    return invalid(text("group flags are ", flags,
                        "; with LATHE_RANK_INVARIANT (32), which has ways of its own, allowed is "
                        "LATHE_REDUCE_PARAMETER_GRADS (1)"));
  }
  const unsigned method = flags & kMethods;
  if (method & (method - 1)) {
    return invalid(text("group flags are ", flags,
                        "; of LATHE_ALLGATHER (2), LATHE_DISPATCH (4) and "
                        "LATHE_EXCHANGE_HEADS (8) only one may be set"));
  }
  if (!op.ranks) {
    return invalid(text(op.name, " cannot be split over a group"));
  }
  if (method && op.chain) {
    return unsupported(text("group flags are ", flags, "; ", op.name,
                            " exchanges states of contiguous parts: of LATHE_ALLGATHER (2), "
                            "LATHE_DISPATCH (4) and LATHE_EXCHANGE_HEADS (8) none is allowed"));
  }
  return {};
}

Status refuse_rank_invariant(const lathe_problem& problem, const char* why) {
  if (!(problem.group_flags & kRankInvariant)) return {};
  return unsupported(text("group flags are ", problem.group_flags, ", and ", problem.op->name, ": ",
                          why, "; allowed are flags without LATHE_RANK_INVARIANT (32)"));
}

}  // namespace lathe

int lathe_problem::shape_number() const {
  return *op->shape_option ? std::atoi(option(op->shape_option).c_str()) : 0;
}

lathe::Shape lathe_problem::shape(int tensor) const {
  const lathe::Declared& declared = tensors[tensor];
  if (*op->shape_option == '\0') return declared.shape;
  return lathe::shape_of_rank(op->tensors[tensor].shape, declared.shape.rank, shape_number());
}

std::string lathe_problem::option(const char* name) const {
  const int index = lathe::find_option(*op, name);
  return options[index] ? *options[index] : op->options[index].fallback;
}

bool lathe_problem::writes(int tensor) const {
  const lathe::TensorInfo& info = op->tensors[tensor];
  if (info.role == lathe::Role::input) return false;
  if (info.changed_by) return has(lathe::find_tensor(*op, info.changed_by));
  return !info.given_if || option(info.given_if) != "1";
}
