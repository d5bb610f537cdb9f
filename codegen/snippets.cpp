// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reading a snippet's text, by tokens: comments and literals say nothing.
#include "codegen/snippets.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "codegen/base/text.h"

namespace lathe {
namespace {

bool is_word(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

struct Token {
  std::string_view text;  // a word, or one other character
  int line = 1;
};

// Past a quoted literal that begins at `at`, or to the end of its line.
size_t skip_literal(std::string_view text, size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote && text[at] != '\n') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

// Past a comment that begins at `at`.
size_t skip_comment(std::string_view text, size_t at) {
  const bool block = text[at + 1] == '*';
  const size_t end = text.find(block ? "*/" : "\n", at + (block ? 2 : 0));
  return end == text.npos ? text.size() : end + (block ? 2 : 0);
}

std::vector<Token> tokens(std::string_view text) {
  std::vector<Token> out;
  int line = 1;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    const char letter = text[at];
    const bool comment =
        letter == '/' && end < text.size() && (text[end] == '/' || text[end] == '*');
    if (comment) {
      end = skip_comment(text, at);
    } else if (letter == '"' || (letter == '\'' && (at == 0 || !is_word(text[at - 1])))) {
      end = skip_literal(text, at);  // after a digit it separates digits
    } else if (is_word(letter)) {
      while (end < text.size() && is_word(text[end])) ++end;
      out.push_back({text.substr(at, end - at), line});
    } else if (std::isspace(static_cast<unsigned char>(letter)) == 0) {
      out.push_back({text.substr(at, 1), line});
    }
    line += static_cast<int>(std::count(text.begin() + at, text.begin() + end, '\n'));
    at = end;
  }
  return out;
}

Status refuse(const Snippet& snippet, const std::string& what) {
  return Status(Code::invalid_argument, text("option ", snippet.name, ": ", snippet.file, what));
}

}  // namespace

bool snippet_mentions(std::string_view text, std::string_view identifier, int* line) {
  for (const Token& token : tokens(text)) {
    if (token.text != identifier) continue;
    if (line != nullptr) *line = token.line;
    return true;
  }
  return false;
}

Status check_snippet_text(const Snippet& snippet) {
  const std::string& text = snippet.text;
  if (text.size() > kMostSnippetBytes) {
    return refuse(
        snippet, lathe::text(" has ", text.size(), " bytes; allowed are 1 to ", kMostSnippetBytes));
  }
  if (text.find('\0') != text.npos) return refuse(snippet, " has a zero byte; allowed is text");
  const std::vector<Token> all = tokens(text);
  if (all.empty()) {
    return refuse(snippet, " is empty; it must define the function " + snippet.name);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string_view word = all[i].text;
    const auto at_line = [&](const char* what) {
      return refuse(snippet, lathe::text("(", all[i].line, "): ", what));
    };
    if (word == "#" && i + 1 < all.size() && all[i + 1].text.starts_with("include")) {
      return at_line("a snippet includes nothing: what it may use is there without");
    }
    if (word == "asm" || word == "__asm__" || word == "__asm") {
      return at_line("a snippet has no inline assembly: it is a pure function of its arguments");
    }
    if (word == "__shared__" || word == "__global__") {
      return at_line("a snippet has neither shared memory nor kernels of its own");
    }
  }
  return {};
}

std::string snippet_header_text(const Snippet& snippet) {
  return text("#line 1 \"", snippet.header(), "\"\n", snippet.text, "\n");
}

std::string name_snippet_file(std::string log, const Snippet& snippet) {
  const std::string name = snippet.header();
  for (size_t at = 0; (at = log.find(name, at)) != log.npos; at += snippet.file.size()) {
    log.replace(at, name.size(), snippet.file);
  }
  return log;
}

}  // namespace lathe
