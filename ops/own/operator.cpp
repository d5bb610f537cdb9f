// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes an operator of a text, and checks problems of it.
#include "ops/own/operator.h"

#include <algorithm>
#include <charconv>

#include "codegen/base/invalid.h"
#include "codegen/base/letters.h"
#include "codegen/kernel_text.h"
#include "ops/options.h"
#include "ops/own/maps.h"
#include "ops/own/option_reader.h"

namespace lathe {

namespace own {
namespace {

constexpr size_t kDigits = 16;  // of the text's digest in the operator's name

// Returns the name of a file without its folder and its ending.
std::string stem_of(const std::string& file) {
  std::string stem = file.substr(file.find_last_of('/') + 1);
  stem = stem.substr(0, stem.find('.'));
  std::erase_if(stem, [](char c) { return !is_alphanumeric(c) && c != '_'; });
  return stem.empty() ? "kernel" : stem.substr(0, kMostNameBytes);
}

void fill_rows(OwnOperator* op) {
  const Description& from = *op->description;
  for (const DimText& dim : from.dims) {
    op->dim_rows.push_back({dim.name.c_str(), !dim.compiled, TokenAxis::none});
  }
  for (const TensorText& tensor : from.tensors) {
    TensorInfo row = {.name = tensor.name.c_str(),
                      .shape = tensor.shape.c_str(),
                      .dtypes = tensor.dtypes.c_str(),
                      .sentence = tensor.what.c_str(),
                      .role = tensor.role,
                      .is_optional = tensor.optional};
    row.is_strided = tensor.strided, row.alignment = tensor.aligned;
    row.needed = tensor.needs.c_str();
    op->tensor_rows.push_back(row);
    op->least_alignment = std::max(op->least_alignment, tensor.aligned);
    if (tensor.role != Role::input) op->produced += (op->produced.empty() ? "" : ",") + tensor.name;
  }
  for (const OptionText& option : from.options) op->option_rows.push_back(option_row(option));
}

}  // namespace

KnownValues known_values(const lathe_problem& problem, const Extents& extents) {
  const Description& description = *OwnOperator::of(problem).description;
  const SymbolLayout& at = description.symbols;
  KnownValues out(static_cast<size_t>(at.count));
  const auto set = [&](int base, size_t index, int64_t value) {
    out[static_cast<size_t>(base) + index] = value;
  };
  for (size_t i = 0; i < description.dims.size(); ++i) {
    if (const int64_t extent = extents[own_dim(i)]; extent != kUnknown) set(at.dims, i, extent);
  }
  for (size_t i = 0; i < description.options.size(); ++i) {
    const OptionInfo& row = problem.op->options[i];
    const std::string value = problem.option(row.name);
    int64_t number = word_number(row, value);
    if (row.type == OptionType::integer) {
      std::from_chars(value.data(), value.data() + value.size(), number);
    }
    if (row.type != OptionType::number) set(at.options, i, number);
  }
  for (size_t i = 0; i < description.tensors.size(); ++i) {
    const Declared& declared = problem.tensors[i];
    set(at.bytes, i, declared.given ? bytes_of(declared.dtype) : 0);
    set(at.given, i, declared.given);
  }
  return out;
}

Result<std::optional<int64_t>> evaluate_known(Expression expression, const KnownValues& known) {
  expression.bind(known);
  if (!expression.is_constant()) return std::optional<int64_t>();
  int64_t value = 0;
  LATHE_TRY(expression.evaluate({}, &value));
  return std::optional<int64_t>(value);
}

void derive(const lathe_problem& problem, Extents* extents) {
  const Description& description = *OwnOperator::of(problem).description;
  const KnownValues known = known_values(problem, *extents);
  for (size_t i = 0; i < description.dims.size(); ++i) {
    int64_t& extent = (*extents)[own_dim(i)];
    if (!description.dims[i].extent || extent != kUnknown) continue;
    const auto value = evaluate_known(description.dims[i].extent, known);
    // What does not fit is refused when the plan is made.
    if (value.ok() && *value && **value >= 0 && **value <= kMaxExtent) extent = **value;
  }
}

Status check(const Resolved& resolved) {
  const lathe_problem& problem = resolved.problem;
  const Description& description = *OwnOperator::of(problem).description;
  const KnownValues known = known_values(problem, resolved.extents);
  for (size_t i = 0; i < description.dims.size(); ++i) {
    const DimText& dim = description.dims[i];
    const int64_t extent = resolved.extents[own_dim(i)];
    if (dim.compiled && extent == kUnknown) {
      return invalid(text(dim.name, " varies in the problem; it changes the code of ",
                          problem.op->name, " and must be given: allowed are 0 to ", kMaxExtent));
    }
    if (!dim.extent) continue;
    LATHE_ASSIGN(const std::optional<int64_t> value, evaluate_known(dim.extent, known));
    if (!value || extent == kUnknown || *value == extent) continue;
    return invalid(text(dim.name, " is ", extent, "; allowed is ", *value, ", by ", dim.name, " = ",
                        dim.extent.text()));
  }
  for (size_t i = 0; i < description.options.size(); ++i) {
    const OptionInfo& row = problem.op->options[i];
    float narrow = 0;
    if (row.type == OptionType::number) {
      LATHE_TRY(parse_option(row, problem.option(row.name), &narrow));
    }
  }
  return check_mapped_rows(problem);
}

}  // namespace own

Result<std::shared_ptr<Operator>> parse_operator(std::string text, const std::string& file) {
  using own::OwnOperator;
  const auto op = std::make_shared<OwnOperator>();
  op->kernel_text = {.name = "kernel", .file = file, .text = std::move(text), .is_kernel = true};
  drop_byte_order_mark(&op->kernel_text.text);
  LATHE_TRY(check_kernel_bytes(op->kernel_text));
  LATHE_ASSIGN(op->description, own::read_description(op->kernel_text.text, file));
  std::vector<std::string> functions;
  for (const own::KernelText& each : op->description->kernels) functions.push_back(each.function);
  LATHE_ASSIGN(op->headers, check_kernel_text(op->kernel_text, functions));
  own::fill_rows(op.get());
  const std::string& given = op->description->name;
  op->name_text = (given.empty() ? own::stem_of(file) : given) + '@' +
                  op->kernel_text.digest().substr(0, own::kDigits);
  op->name = op->name_text.c_str();
  op->sentence = op->description->summary.c_str();
  if (!op->description->reference.empty()) op->reference = op->description->reference.c_str();
  op->tensors = op->tensor_rows, op->options = op->option_rows, op->dims = op->dim_rows;
  op->produces = op->produced.c_str();
  op->sequences = Sequences::apart;
  op->check = own::check, op->make = own::make, op->derive = own::derive;
  op->text = &op->kernel_text.text;
  return std::shared_ptr<Operator>(op);
}

}  // namespace lathe
