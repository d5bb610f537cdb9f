// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel_text.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "codegen/base/nearest_name.h"
#include "codegen/base/printable.h"
#include "codegen/includes.h"
#include "codegen/mod_text.h"
#include "codegen/templates.h"

namespace lathe {
namespace {

Status refuse(const Mod& mod, const std::string& what) { return invalid(mod.file + what); }
Status refuse_at(const Mod& mod, int line, const std::string& what) {
  return refuse(mod, text(":", line, ": ", what));
}

// Returns why no kernel of a caller has this word; null if it may.
const char* why_not(std::string_view word) {
  for (const std::string_view each : {"__has_include", "__has_include_next", "__has_embed"}) {
    if (word == each) {
      return "a kernel asks for no file: it would depend on what its key does not hold";
    }
  }
  for (const std::string_view each : {"__TIME__", "__DATE__", "__TIMESTAMP__"}) {
    if (word == each) return "a kernel has no time: it would depend on when it is compiled";
  }
  return nullptr;
}

std::vector<std::string_view> open_headers() {
  std::vector<std::string_view> out;
  for (const TemplateFile& file : template_files()) {
    if (std::string_view(file.name).starts_with(kOpenHeaders)) out.emplace_back(file.name);
  }
  return out;
}

std::string_view line_of(std::string_view text, int line) {
  for (; line > 1; --line) {
    const size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

Status take_include(const Mod& mod, int line, std::vector<std::string>* out) {
  const std::vector<std::string_view> known = open_headers();
  const std::string name(included_name(line_of(mod.text, line)));
  if (std::ranges::find(known, name) == known.end()) {
    return refuse_at(
        mod, line,
        text(name.empty() ? "an include is written in another way than #include \"lathe/...\""
                          : text("there is no header ", in_quotes(name), did_you_mean(name, known)),
             "; allowed are ", comma_list(known)));
  }
  if (std::ranges::find(*out, name) == out->end()) out->push_back(name);
  return {};
}

// The word behind the # of a directive; null if there is none.
const ModToken* directive_word(const std::vector<ModToken>& tokens, size_t i) {
  if (!tokens[i].first || !tokens[i].directive) return nullptr;
  const bool there = i + 1 < tokens.size() && tokens[i + 1].directive && !tokens[i + 1].first;
  return there ? &tokens[i + 1] : nullptr;
}

}  // namespace

std::string scoped_device_type(Dtype dtype) {
  const bool ours = dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32;
  return std::string(ours ? "lathe::" : "") + info(dtype).device_type;
}

Status check_kernel_bytes(const Mod& mod) {
  const std::string& bytes = mod.text;
  if (bytes.empty() || bytes.size() > kMostModBytes) {
    return refuse(mod, text(" has ", bytes.size(), " bytes; allowed are 1 to ", kMostModBytes));
  }
  if (const size_t zero = bytes.find('\0'); zero != bytes.npos) {
    const auto lines = std::count(bytes.begin(), bytes.begin() + static_cast<long>(zero), '\n');
    return refuse_at(mod, static_cast<int>(lines) + 1, "there is a zero byte; allowed is text");
  }
  if (const int line = line_that_is_not_utf8(bytes); line > 0) {
    return refuse_at(mod, line, "the bytes are no UTF-8; allowed is text in UTF-8");
  }
  return {};
}

Result<std::vector<std::string>> check_kernel_text(const Mod& mod,
                                                   const std::vector<std::string>& functions) {
  const ModTokens read = read_mod(mod.text, "a kernel's text");
  if (!read.problem.empty()) return refuse_at(mod, read.line, read.problem);
  std::vector<std::string> headers;
  for (size_t i = 0; i < read.all.size(); ++i) {
    const ModToken& token = read.all[i];
    if (token.kind == ModToken::Kind::word) {
      if (const char* why = why_not(token.text)) return refuse_at(mod, token.line, why);
    }
    const ModToken* word = directive_word(read.all, i);
    if (word == nullptr) continue;
    if (word->text == "include") LATHE_TRY(take_include(mod, token.line, &headers));
    if (word->text == "include_next" || word->text == "import" || word->text == "embed") {
      return refuse_at(mod, token.line,
                       text("#", word->text,
                            " opens a file; allowed is #include "
                            "\"lathe/...\""));
    }
    if (word->text == "line" || word->kind == ModToken::Kind::number) {
      return refuse_at(mod, token.line,
                       "#line changes what messages call the text; allowed are "
                       "the text's own lines");
    }
  }
  for (const std::string& function : functions) {
    const bool there =
        std::ranges::any_of(read.all, [&](const ModToken& each) { return each.text == function; });
    if (there) continue;
    return refuse(mod, text(" has no function ", function,
                            "; allowed is `template <class Config> "
                            "__device__ void ",
                            function, "(const Params& p)`"));
  }
  return headers;
}

}  // namespace lathe
