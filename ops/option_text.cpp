// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads the texts that options name, once, when the option is set.
#include "ops/option_text.h"

#include <filesystem>
#include <fstream>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"
#include "codegen/mods.h"

namespace lathe {
namespace {

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

Status read_option_text(lathe_problem* problem, const char* option, const std::string& path) {
  LATHE_ASSIGN(std::string bytes, read_text(option, path));
  return keep_text(problem, option, path, std::move(bytes));
}

Status set_option_text(lathe_problem* problem, const char* name, std::string bytes) {
  const Operator& op = *problem->op;
  const int index = find_option(op, name);
  if (index < 0 || !takes_file(op.options[index])) {
    std::string all;
    for (const OptionInfo& option : op.options) {
      if (takes_file(option)) all += text(all.empty() ? "" : ", ", option.name);
    }
    return invalid(text(op.name, " has no option ", in_quotes(name), " that is a text; it has ",
                        all.empty() ? "none" : all));
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

}  // namespace lathe
