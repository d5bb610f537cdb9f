// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes texts of score_mod and mask_mod. Whatever the text, it is refused with a
// reason, or a second reading of it, which is written another way, finds no directive that could
// open a file and no word that a mod may not have. The PTX of a probe is read besides: what is no
// PTX ends with a verdict.
#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>

#include "codegen/mods.h"
#include "tests/fuzz/property.h"

using namespace lathe;

namespace {

// One pass of replacement after another, as the standard numbers its phases.
std::string replace_all(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c < 0;
}

// Phase 3 without a list of tokens: comments become a blank, literals a pair of quotes.
std::string blanked(const std::string& text) {
  std::string out;
  bool number = false;  // what `out` ends in
  for (size_t at = 0; at < text.size();) {
    const char letter = text[at], next = at + 1 < text.size() ? text[at + 1] : ' ';
    const char before = out.empty() ? ' ' : out.back();
    const bool sign = (letter == '+' || letter == '-') && std::string_view("eEpP").find(before) < 4;
    if (number && (in_name(letter) || letter == '.' || (letter == '\'' && in_name(next)) || sign)) {
      out += letter == '\'' ? '_' : letter;
      ++at;
      continue;
    }
    number = false;
    if (letter == '/' && next == '/') {
      at = std::min(text.find('\n', at), text.size());
    } else if (letter == '/' && next == '*') {
      const size_t end = text.find("*/", at + 2);
      FUZZ_CHECK(end != text.npos);
      at = end + 2;
      out += ' ';
    } else if (letter == '"' || letter == '\'') {
      while (text.at(++at) != letter) at += text.at(at) == '\\' ? 1 : 0;
      ++at;
      out += "\"\"";
    } else {
      const auto digit = [](char c) { return c >= '0' && c <= '9'; };
      number = (digit(letter) && !in_name(before)) || (letter == '.' && digit(next));
      out += letter;
      ++at;
    }
  }
  return out;
}

// As whole words, as plain loops find them.
bool has_word(const std::string& code, const std::string& word) {
  for (size_t at = code.find(word); at != code.npos; at = code.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool before = at > 0 && in_name(code[at - 1]);
    const bool after = end < code.size() && in_name(code[end]);
    if (!before && !after) return true;
  }
  return false;
}

void check_accepted(const Mod& mod) {
  std::string code = replace_all(replace_all(mod.text, "\\\r\n", ""), "\\\n", "");
  code = blanked(code);
  for (const char* word : {"asm", "__asm__", "__has_include", "__has_include_next", "__has_embed",
                           "__TIME__", "__DATE__", "__TIMESTAMP__", "_Pragma", "extern", "lathe"}) {
    FUZZ_CHECK(!has_word(code, word));
  }
  code = replace_all(code, "%:", "#");
  static const std::set<std::string> kAllowed = {
      "", "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "pragma"};
  for (size_t at = 0; at < code.size();) {
    const size_t end = std::min(code.find('\n', at), code.size());
    const std::string line = code.substr(at, end - at);
    at = end + 1;
    const size_t hash = line.find_first_not_of(" \t\v\f\r");
    if (hash == line.npos || line[hash] != '#') continue;
    const size_t begin = std::min(line.find_first_not_of(" \t\v\f\r", hash + 1), line.size());
    size_t stop = begin;
    while (stop < line.size() && in_name(line[stop])) ++stop;
    FUZZ_CHECK(kAllowed.count(line.substr(begin, stop - begin)) == 1);
  }
  // Each macro ends behind the text, and the text is there as it is.
  const std::string header = mod_header_text(mod);
  const size_t where = header.find(mod.text);
  FUZZ_CHECK(where != header.npos);
  const auto count = [&](const std::string& word) {
    size_t found = 0;
    for (size_t at = header.find(word); at != header.npos; at = header.find(word, at + 1)) ++found;
    return found;
  };
  FUZZ_CHECK(count("inline namespace text_") >= 1 && count("#line 1 ") >= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Mod mod = {"score_mod", "mine.cuh", std::string(fuzz::as_text(data, size))};
  const Status status = check_mod_text(mod);
  if (status.ok()) {
    check_accepted(mod);
  } else {
    FUZZ_CHECK(status.code() == Code::invalid_argument && !status.text().empty());
    (void)mod_header_text(mod);
  }
  (void)mod_mentions(mod.text, "score_mod_bwd");
  (void)impurity_of(mod.text);
  const std::string stored = "\t.reg .b64 %rd<4>;\n" + mod.text + "\n;\nst.global.u32 [%rd1], 7;\n";
  (void)impurity_of(stored);
  return 0;
}
