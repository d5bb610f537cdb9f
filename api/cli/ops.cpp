// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe ops`: which operators there are, and what each takes and gives.

#include <algorithm>
#include <cstdio>

#include "api/cli/options.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {
namespace {

using Row = std::vector<std::string>;

// A line of cells in columns, with a sentence below it.
struct Entry {
  Row cells;
  std::string sentence;
};

// Returns words of a sentence, indented, in lines of at most 96 columns.
std::string indented(const std::string& sentence) {
  constexpr size_t kWidth = 96;
  std::string out, line = "     ";
  for (const std::string& word : split(sentence, ' ')) {
    if (line.size() + 1 + word.size() > kWidth) {
      out += line + '\n';
      line = "     ";
    }
    line += " " + word;
  }
  return out + line + '\n';
}

// Columns as wide as their widest cell; the last one is not filled up.
std::string table(const std::vector<Entry>& entries) {
  std::vector<size_t> widths;
  for (const Entry& entry : entries) {
    widths.resize(std::max(widths.size(), entry.cells.size()));
    for (size_t i = 0; i < entry.cells.size(); ++i) {
      widths[i] = std::max(widths[i], entry.cells[i].size());
    }
  }
  std::string out;
  for (const auto& [cells, sentence] : entries) {
    out += " ";
    for (size_t i = 0; i < cells.size(); ++i) {
      out += " " + cells[i];
      if (i + 1 < cells.size()) out += std::string(widths[i] - cells[i].size() + 1, ' ');
    }
    out += '\n';
    if (!sentence.empty()) out += indented(sentence);
  }
  return out;
}

// "[B,Sq,H,D] or [Tq,H,D]"
std::string shapes_text(const lathe_operator_tensor& tensor) {
  std::string out;
  for (const std::string& shape : split(tensor.shape, '|')) {
    out += (out.empty() ? "[" : " or [") + shape + "]";
  }
  return out;
}

std::string dtypes_text(const lathe_operator_tensor& tensor) {
  if (tensor.dtypes[0] == '=') return "as " + std::string(tensor.dtypes + 1);
  return comma_list(split(tensor.dtypes, '|'));
}

std::string role_text(const lathe_operator_tensor& tensor) {
  static constexpr const char* kRoles[] = {"in", "out", "in and out"};
  const std::string role = kRoles[tensor.role];
  return tensor.optional && tensor.role != LATHE_OUTPUT ? role + ", optional" : role;
}

std::string given_text(const lathe_operator_tensor& tensor) {
  std::string out = tensor.sentence;
  if (tensor.given_if) out += " Given, not computed, with " + std::string(tensor.given_if) + "=1.";
  if (tensor.changed_by) out += " Changed with " + std::string(tensor.changed_by) + " only.";
  return out;
}

Json operator_json(const lathe_operator_info& op) {
  static constexpr const char* kRoles[] = {"in", "out", "inout"};
  static constexpr const char* kTypes[] = {"int", "double", "string"};
  Json tensors = Json::array(), options = Json::array();
  for (const auto& tensor : tensors_of(op)) {
    tensors.push_back({{"name", tensor.name},
                       {"shapes", split(tensor.shape, '|')},
                       {"dtypes", split(tensor.dtypes, '|')},
                       {"role", kRoles[tensor.role]},
                       {"optional", tensor.optional != 0},
                       {"sentence", tensor.sentence}});
  }
  for (const auto& option : options_of(op)) {
    options.push_back({{"name", option.name},
                       {"type", kTypes[option.type]},
                       {"default", option.fallback},
                       {"allowed", split(option.allowed, '|')},
                       {"sentence", option.sentence}});
  }
  return {{"name", op.name},
          {"sentence", op.sentence},
          {"ranks", op.ranks != 0},
          {"tensors", std::move(tensors)},
          {"options", std::move(options)}};
}

int list(bool json) {
  if (json) {
    Json all = Json::array();
    for (size_t i = 0; i < lathe_operator_count(); ++i) {
      all.push_back(operator_json(*lathe_operator_at(i)));
    }
    print_json({{"operators", std::move(all)}});
    return kDone;
  }
  std::vector<Entry> rows;
  for (size_t i = 0; i < lathe_operator_count(); ++i) {
    rows.push_back({{lathe_operator_at(i)->name, lathe_operator_at(i)->sentence}, ""});
  }
  std::printf("%s\n`lathe ops OP` says what an operator takes and gives.\n", table(rows).c_str());
  return kDone;
}

}  // namespace

std::string operator_text(const lathe_operator_info& op) {
  std::vector<Entry> tensors, options;
  for (const auto& tensor : tensors_of(op)) {
    tensors.push_back({{tensor.name, role_text(tensor), dtypes_text(tensor), shapes_text(tensor)},
                       given_text(tensor)});
  }
  for (const auto& option : options_of(op)) {
    options.push_back({{option.name, "default " + std::string(option.fallback),
                        "allowed " + comma_list(split(option.allowed, '|'))},
                       option.sentence});
  }
  std::string out = std::string(op.name) + ": " + op.sentence + "\n";
  out += op.ranks ? "It can be split over ranks (--ranks).\n" : "It runs on one rank.\n";
  out += "\nTensors:\n" + table(tensors);
  if (!options.empty()) out += "\nOptions (--set NAME=VALUE):\n" + table(options);
  return out;
}

Action add_ops(CLI::App* app) {
  auto* verb = app->add_subcommand("ops", "list the operators, or tensors and options of one");
  const auto op = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  verb->add_option("OP", *op,
                   "the operator, or a file of a kernel of your own; without it all are listed");
  add_json_flag(verb, json.get());
  return [op, json]() -> int {
    if (op->empty()) return list(*json);
    const lathe_operator_info* info = find_operator(*op);
    if (*json) {
      print_json(operator_json(*info));
    } else {
      std::fputs(operator_text(*info).c_str(), stdout);
    }
    return kDone;
  };
}

}  // namespace lathe::cli
