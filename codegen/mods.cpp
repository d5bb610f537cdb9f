// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Decides what a mod's text may hold, and makes the text that the compiler gets for it.
#include "codegen/mods.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <vector>

#include "codegen/base/text.h"
#include "codegen/mod_text.h"

namespace lathe {
namespace {

using Tokens = std::vector<ModToken>;
using Kind = ModToken::Kind;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool one_of(std::string_view word, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Returns why no mod has this word; null if it may.
const char* why_not(std::string_view word) {
  struct Rule {
    std::initializer_list<const char*> words;
    const char* why;
  };
  static const Rule kRules[] = {
      {{"asm", "__asm__", "__asm"},
       "a mod has no inline assembly: it is a pure function of its arguments"},
      {{"__shared__", "__global__"}, "a mod has neither shared memory nor kernels of its own"},
      {{"__has_include", "__has_include_next", "__has_embed"},
       "a mod asks for no file: the kernel would depend on what its key does not hold"},
      {{"__TIME__", "__DATE__", "__TIMESTAMP__"},
       "a mod has no time: the kernel would depend on when it is compiled"},
      {{"_Pragma", "__pragma"}, "a mod has no pragmas but #pragma unroll and nounroll"},
      {{"extern"}, "a mod has nothing extern: what it may use is there without"},
      {{"lathe"}, "a mod names nothing of namespace lathe: what it may use has a plain name"},
      {{"__builtin_constant_p"},
       "a mod has no __builtin_constant_p: it is the same function in every kernel"},
  };
  if (word.starts_with("lathe_")) word = "lathe";
  for (const Rule& rule : kRules) {
    if (one_of(word, rule.words)) return rule.why;
  }
  return nullptr;
}

// The token behind tokens[i] of the same line that begins with #; null if there is none.
const ModToken* next_of(const Tokens& tokens, size_t i) {
  const bool there = i + 1 < tokens.size() && tokens[i + 1].directive && !tokens[i + 1].first;
  return there ? &tokens[i + 1] : nullptr;
}

bool begins_directive(const ModToken& token) { return token.first && token.directive; }

struct Macro {
  int line = 1;  // of the first #define or #undef
  bool defined = false, undefined = false;
};

// Returns the macros that a text defines or undefines anywhere, by name.
std::map<std::string, Macro> macros_of(const Tokens& tokens) {
  std::map<std::string, Macro> macros;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const ModToken* word = begins_directive(tokens[i]) ? next_of(tokens, i) : nullptr;
    const ModToken* name = word != nullptr ? next_of(tokens, i + 1) : nullptr;
    const bool about = word != nullptr && (word->text == "define" || word->text == "undef");
    if (!about || name == nullptr || name->kind != Kind::word) continue;
    Macro& macro = macros.try_emplace(name->text, Macro{name->line}).first->second;
    (word->text == "define" ? macro.defined : macro.undefined) = true;
  }
  return macros;
}

// Directives, one after another: why one may not be there.
class Directives {
 public:
  explicit Directives(const Tokens& tokens) {
    for (const auto& [name, macro] : macros_of(tokens)) {
      if (macro.defined) defined_.insert(name);
    }
  }

  // `i`: the # of the line.
  std::string refuse(const Tokens& tokens, size_t i) {
    const ModToken* name = next_of(tokens, i);
    if (name == nullptr) return {};  // a # alone says nothing
    const std::string& word = name->text;
    const ModToken* about = next_of(tokens, i + 1);
    if (one_of(word, {"if", "ifdef", "ifndef"})) ++depth_;
    if (one_of(word, {"elif", "else", "endif"}) && depth_ == 0) {
      return text("a mod has no #", word, " without an #if before it");
    }
    if (word == "endif") --depth_;
    if (one_of(word, {"if", "ifdef", "ifndef", "elif", "else", "endif", "error"})) return {};
    if (word == "define") return {};
    if (word == "undef") {
      const bool own = about == nullptr || defined_.count(about->text) != 0;
      return own ? std::string() : "a mod undefines only macros of its own";
    }
    if (word == "pragma") {
      if (about != nullptr && one_of(about->text, {"unroll", "nounroll"})) return {};
      return "a mod has no pragmas but #pragma unroll and nounroll";
    }
    if (word.starts_with("include") || word == "import" || word == "embed") {
      return "a mod includes nothing: what it may use is there without";
    }
    return text("a mod has no #", word,
                "; allowed are define, undef, if, ifdef, ifndef, elif, else, endif, error and "
                "pragma unroll");
  }
  bool open() const { return depth_ > 0; }

 private:
  std::set<std::string> defined_;
  int depth_ = 0;  // of #if
};

Status refuse(const Mod& mod, const std::string& what) {
  return Status(Code::invalid_argument, text("option ", mod.name, ": ", mod.file, what));
}

Status refuse_at(const Mod& mod, int line, const std::string& what) {
  return refuse(mod, text("(", line, "): ", what));
}

// Checks the bytes before there are tokens.
Status check_bytes(const Mod& mod) {
  const std::string& bytes = mod.text;
  if (bytes.size() > kMostModBytes) {
    return refuse(mod, text(" has ", bytes.size(), " bytes; allowed are 1 to ", kMostModBytes));
  }
  if (bytes.find('\0') != bytes.npos) return refuse(mod, " has a zero byte; allowed is text");
  if (const int line = line_that_is_not_utf8(bytes); line > 0) {
    return refuse_at(mod, line, "a mod is UTF-8");
  }
  if (bytes.starts_with(kByteOrderMark)) {
    return refuse_at(mod, 1, "a mod has no byte order mark");
  }
  for (const char* trigraph : {"\?\?=", "\?\?/"}) {
    const size_t at = bytes.find(trigraph);
    if (at == bytes.npos) continue;
    const auto lines = std::count(bytes.begin(), bytes.begin() + static_cast<long>(at), '\n');
    return refuse_at(mod, static_cast<int>(lines) + 1, "a mod has no trigraphs");
  }
  return {};
}

}  // namespace

void drop_byte_order_mark(std::string* text) {
  if (text->starts_with(kByteOrderMark)) text->erase(0, kByteOrderMark.size());
}

bool mod_mentions(std::string_view text, std::string_view identifier, int* line) {
  for (const ModToken& token : read_mod(text).all) {
    if (token.text != identifier) continue;
    if (line != nullptr) *line = token.line;
    return true;
  }
  return false;
}

Status check_mod_text(const Mod& mod) {
  LATHE_TRY(check_bytes(mod));
  const ModTokens read = read_mod(mod.text);
  if (!read.problem.empty()) return refuse_at(mod, read.line, read.problem);
  if (read.all.empty()) {
    return refuse(mod, " is empty; it must define the function " + mod.name);
  }
  Directives directives(read.all);
  for (size_t i = 0; i < read.all.size(); ++i) {
    const ModToken& token = read.all[i];
    if (token.text == "##") return refuse_at(mod, token.line, "a mod joins no words by ##");
    if (const char* why = token.kind == Kind::word ? why_not(token.text) : nullptr) {
      return refuse_at(mod, token.line, why);
    }
    if (!begins_directive(token)) continue;
    const std::string why = directives.refuse(read.all, i);
    if (!why.empty()) return refuse_at(mod, token.line, why);
  }
  if (directives.open()) {
    return refuse_at(mod, read.all.back().line, "a mod ends each #if with an #endif");
  }
  return {};
}

// The compiler reads this before and behind a text, so that its macros end with it. It may define
// what is a macro already behind #ifndef: to define it in another way is an error.
struct MacroEnds {
  std::string before = "#pragma nv_diag_error 47\n", after = "#pragma nv_diag_default 47\n";

  MacroEnds(const Mod& mod, const std::map<std::string, Macro>& macros) {
    for (const auto& [name, macro] : macros) {
      if (macro.undefined) {
        before += text("#ifdef ", name, "\n#line ", macro.line, " \"", mod.header(), "\"\n#error ",
                       name, " is a macro of the compiler\n#endif\n");
        after += text("#undef ", name, "\n");
      } else {
        before += text("#ifdef ", name, "\n#define lathe_had_", name, "\n#endif\n");
        after += text("#ifndef lathe_had_", name, "\n#undef ", name, "\n#endif\n#undef lathe_had_",
                      name, "\n");
      }
    }
  }
};

// The text stands in a namespace whose name it cannot know, as that is made of the text: a text
// that closes it, to say something outside, cannot open it again, and the struct that is declared
// before the text is not completed behind it.
std::string mod_header_text(const Mod& mod) {
  if (mod.is_kernel) return text("#line 1 \"", mod.header(), "\"\n", mod.text, "\n");
  const MacroEnds macros(mod, macros_of(read_mod(mod.text).all));
  const std::string own = mod.digest().substr(0, 32);
  const std::string mark = "every_brace_is_closed_" + own;
  return text(macros.before, "inline namespace text_", own, " {\nstruct ", mark, ";\n#line 1 \"",
              mod.header(), "\"\n", mod.text, "\n", macros.after, "struct ", mark,
              " {};\n}\nstatic_assert(sizeof(text_", own, "::", mark, ") == 1, \"\");\n");
}

std::string name_mod_file(std::string log, const Mod& mod) {
  const std::string name = mod.header();
  for (size_t at = 0; (at = log.find(name, at)) != log.npos; at += mod.file.size()) {
    log.replace(at, name.size(), mod.file);
  }
  return log;
}

}  // namespace lathe
