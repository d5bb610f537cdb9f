// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes texts of kernels with their descriptions, and integer expressions. Whatever
// the text: it is refused in one printable line that begins with the file, or it makes an operator
// whose tables hold together, which the same text makes again, and of which every problem is
// planned or refused. An expression that is read evaluates to the same number from its own text, or
// fails.
#include <algorithm>

#include "codegen/device_facts.h"
#include "ops/executor.h"
#include "ops/infer.h"
#include "ops/own/expression.h"
#include "ops/problem.h"
#include "ops/resolve.h"
#include "tests/fuzz/property.h"

using namespace lathe;

namespace {

bool is_refusal(const Status& status) {
  const bool code = status.code() == Code::invalid_argument || status.code() == Code::unsupported;
  const std::string& text = status.text();
  return code && !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) >= ' ';
         });
}

// Declares the inputs with extents of the fuzzer's choice, and plans.
void check_plans(const OperatorPointer& op, std::string_view numbers) {
  lathe_problem problem;
  problem.op = op;
  problem.options.resize(op->options.size());
  std::array<int64_t, kDimCount> extents{};
  for (int64_t& extent : extents) extent = static_cast<int64_t>(fuzz::take_number(numbers, 2)) - 1;
  for (const TensorInfo& tensor : op->tensors) {
    if (tensor.role == Role::output) continue;
    const Shape shape = parse_shape(tensor.shape, op->dims);
    FUZZ_CHECK(shape.rank >= 1 && shape.rank <= kMaxRank);
    std::array<int64_t, kMaxRank> declared{};
    for (int d = 0; d < shape.rank; ++d) {
      const int64_t extent = extents[static_cast<size_t>(shape.dims[d].dim)];
      const bool fixed = shape.dims[d].dim == Dim::fixed;
      declared[d] = fixed ? shape.dims[d].plus : extent < 0 ? -1 : extent + shape.dims[d].plus;
    }
    const char* words = tensor.dtypes[0] == '='
                            ? op->tensors[find_tensor(*op, tensor.dtypes + 1)].dtypes
                            : tensor.dtypes;
    const auto dtype =
        std::find_if(std::begin(kDtypes), std::end(kDtypes),
                     [&](const DtypeInfo& each) { return split(words, '|').front() == each.word; });
    FUZZ_CHECK(dtype != std::end(kDtypes));
    const Status status =
        declare(problem, tensor.name, static_cast<int>(dtype->dtype), shape.rank, declared.data());
    FUZZ_CHECK(status.ok());
  }
  if (const Status inferred = infer(&problem, nullptr); !inferred.ok()) {
    FUZZ_CHECK(is_refusal(inferred));
    return;
  }
  const auto resolved = resolve(problem);
  if (!resolved.ok()) {
    FUZZ_CHECK(is_refusal(resolved.status()));
    return;
  }
  static const DeviceFacts facts = *facts_of_arch("sm_90a");
  const auto executor = make_executor(*resolved, facts);
  if (!executor.ok()) {
    FUZZ_CHECK(is_refusal(executor.status()));
    return;
  }
  for (const KernelSpec& spec : (*executor)->specs()) {
    FUZZ_CHECK(spec.threads >= 1 && spec.threads <= 1024 && spec.params_bytes >= 8);
    FUZZ_CHECK(spec.text().find('\n') == std::string::npos);
  }
}

void check_text(const std::string& text, std::string_view numbers) {
  const auto made = parse_operator(text, "k.cuh");
  if (!made.ok()) {
    FUZZ_CHECK(is_refusal(made.status()) && made.status().text().starts_with("k.cuh"));
    return;
  }
  const Operator& op = **made;
  const auto again = parse_operator(text, "k.cuh");
  FUZZ_CHECK(again.ok() && std::string_view((*again)->name) == op.name);
  FUZZ_CHECK(!op.tensors.empty() && *op.produces != '\0');
  check_plans(*made, numbers);
}

void check_expression(std::string_view text) {
  static const own::Scope scope = {{{"T", 0}, {"D", 1}, {"k", 2}}, {"V"}, {{"bytes", "x", 3}}};
  own::ExpressionFault fault;
  const auto parsed = own::Expression::parse(text, scope, &fault);
  if (!parsed) {
    FUZZ_CHECK(!fault.what.empty() && fault.at <= text.size());
    return;
  }
  for (const int64_t t : {int64_t{0}, int64_t{7}, INT64_MAX}) {
    const int64_t values[] = {t, -3, int64_t{1} << 40, 2};
    int64_t first = 0, second = 0;
    const auto same = own::Expression::parse(parsed->text(), scope, &fault);
    FUZZ_CHECK(same);
    const bool good = parsed->evaluate(values, &first).ok();
    FUZZ_CHECK(good == same->evaluate(values, &second).ok() && first == second);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::as_text(data, size));
  check_text(text, text);
  check_text("/* lathe\n" + text + "\n*/\nvoid kernel();\n", text);
  check_text(
      "/* lathe\ntensors.x = { in = \"f32\", shape = \"T D\" }\ntensors.y = { out = \"x\", shape = "
      "\"T D\" }\nlaunch = { grid = 1, block = 32 }\n" +
          text + "\n*/\nvoid kernel();\n",
      text);
  check_expression(text);
  return 0;
}
