// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Adds flags that several verbs share.
#include "api/cli/options.h"

#include <algorithm>
#include <charconv>

#include "api/cli/inputs/safetensors.h"

namespace lathe::cli {
std::pair<std::string, TensorSpec> parse_tensor(const std::string& text) {
  constexpr const char* kExpected = "name=dtype:extent,extent,...";
  const auto [name, rest] = parse_pair("--tensor", text, kExpected);
  const size_t colon = rest.find(':');
  if (colon == rest.npos) refuse("--tensor is ", in_quotes(text), ", expected ", kExpected);
  TensorSpec spec;
  const std::string word = rest.substr(0, colon);
  const DtypeInfo* dtype = find_dtype(&DtypeInfo::word, word);
  if (!dtype) {
    refuse("--tensor ", in_quotes(text), ": dtype is ", in_quotes(word),
           ", allowed: ", comma_list(kDtypes, &DtypeInfo::word));
  }
  spec.dtype = dtype->dtype;
  for (const std::string& extent : split(rest.substr(colon + 1), ',')) {
    spec.shape.push_back(
        parse_int("--tensor " + in_quotes(text) + ": extent", extent, -1, INT64_MAX));
  }
  return {name, spec};
}

void add_device_flags(CLI::App* verb, DeviceOptions* options,
                      const std::vector<std::string>& devices) {
  options->device = devices.front();
  const auto allowed = [devices](const std::string& text) {
    if (std::ranges::find(devices, text) != devices.end()) return std::string();
    return "is " + in_quotes(text) + ", allowed: " + comma_list(devices);
  };
  verb->add_option("--device", options->device, "where to run: " + comma_list(devices))
      ->check(CLI::Validator(allowed, ""))
      ->capture_default_str();
  verb->add_option("--arch", options->arch,
                   "what to compile for, such as sm_90a (default: the device's own); with --device "
                   "none also a GPU's name, such as h200");
  verb->add_option("--cache-dir", options->cache_dir,
                   "where kernels are kept (default: LATHE_CACHE_DIR or the user's cache folder)");
}

void add_json_flag(CLI::App* verb, bool* json) {
  verb->add_flag("--json", *json, "print one JSON object on standard output");
}

void add_operator(CLI::App* verb, std::string* op) {
  std::vector<std::string> known;
  for (size_t i = 0; i < lathe_operator_count(); ++i) known.push_back(lathe_operator_at(i)->name);
  verb->add_option(
          "OP", *op,
          "the operator: " + comma_list(known) + ", or a file of a kernel of your own, FILE.cuh")
      ->required();
}

void add_set_flag(CLI::App* verb, std::vector<std::string>* set) {
  verb->add_option("--set", *set, "an option of the operator, key=value; may be repeated")
      ->allow_extra_args(false);
}

void add_alignment_flag(CLI::App* verb, int* alignment) {
  verb->add_option(
          "--alignment", *alignment,
          "of how many bytes pointers and strides are multiples: 1, 2, 4, 8 or 16; where a "
          "verb places tensors itself, they are aligned to no more")
      ->capture_default_str();
}

std::pair<std::string, std::string> parse_pair(const char* flag, const std::string& text,
                                               const char* expected) {
  const size_t equals = text.find('=');
  if (equals == text.npos || equals == 0) {
    refuse(flag, " is ", in_quotes(text), ", expected ", expected);
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Settings parse_settings(const std::vector<std::string>& texts) {
  Settings out;
  for (const std::string& text : texts) {
    auto setting = parse_pair("--set", text, "key=value");
    if (std::ranges::find(out, setting.first, &Settings::value_type::first) != out.end()) {
      refuse("--set ", in_quotes(setting.first), " is given twice");
    }
    out.push_back(std::move(setting));
  }
  return out;
}

void add_problem_flags(CLI::App* verb, ProblemOptions* options) {
  add_operator(verb, &options->op);
  auto* input =
      verb->add_option("--input", options->input, "a safetensors file; only its header is read");
  verb->add_option("--tensor", options->tensors,
                   "instead of a file: name=dtype:extents, such as x=bf16:1,-1,4096, where -1 "
                   "varies from run to run; may be repeated")
      ->allow_extra_args(false)
      ->excludes(input);
  add_set_flag(verb, &options->set);
  add_alignment_flag(verb, &options->alignment);
}

Problem problem_from(const ProblemOptions& options) {
  const auto* op = find_operator(options.op);
  Specs specs;
  if (!options.input.empty()) {
    specs = read_safetensors_header(options.input);
  } else if (options.tensors.empty()) {
    refuse("neither --input nor --tensor is given, one of them is needed");
  }
  for (const std::string& text : options.tensors) {
    const auto [name, spec] = parse_tensor(text);
    if (!specs.emplace(name, spec).second) {
      refuse("--tensor ", in_quotes(name), " is given twice");
    }
  }
  Problem problem = make_problem(op, parse_settings(options.set), specs);
  problem.alignment = options.alignment;
  return problem;
}

int64_t parse_int(const std::string& flag, const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    const std::string limit = high == INT64_MAX ? " up" : " to " + std::to_string(high);
    refuse(flag, " is ", in_quotes(text), ", allowed: whole numbers from ", low, limit);
  }
  return value;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  for (size_t begin = 0, end = 0; end != text.npos; begin = end + 1) {
    end = text.find(separator, begin);
    out.push_back(text.substr(begin, end - begin));
  }
  return out;
}

std::vector<std::vector<std::string>> rows_of(const std::string& text, size_t fields) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    rows.push_back(split(line, '\t'));
    rows.back().resize(fields);
  }
  return rows;
}

}  // namespace lathe::cli
