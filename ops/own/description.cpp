// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the description in front of a text and reads it, section by section: first what has names,
// then the expressions that use them.
#include "ops/own/description.h"

#include <algorithm>
#include <array>
#include <set>

#include "codegen/base/letters.h"
#include "codegen/base/nearest_name.h"
#include "codegen/base/printable.h"
#include "ops/own/map_reader.h"
#include "ops/own/option_reader.h"
#include "ops/own/toml_reader.h"

namespace lathe::own {
namespace {

constexpr std::string_view kBegin = "/* lathe", kEnd = "*/";

// Words of C++ that a text of a description might take for a name.
constexpr std::string_view kKeywords[] = {
    "alignas",      "alignof", "asm",       "auto",      "bool",     "break",     "case",
    "catch",        "char",    "class",     "const",     "continue", "default",   "delete",
    "do",           "double",  "else",      "enum",      "explicit", "export",    "extern",
    "false",        "float",   "for",       "friend",    "goto",     "if",        "inline",
    "int",          "long",    "mutable",   "namespace", "new",      "noexcept",  "nullptr",
    "operator",     "private", "protected", "public",    "register", "return",    "short",
    "signed",       "sizeof",  "static",    "struct",    "switch",   "template",  "this",
    "throw",        "true",    "try",       "typedef",   "typename", "union",     "unsigned",
    "using",        "virtual", "void",      "volatile",  "while",    "and",       "or",
    "not",          "xor",     "bitand",    "bitor",     "compl",    "constexpr", "decltype",
    "static_assert"};
// What lathe puts beside the text, and what expressions have already.
constexpr std::string_view kTaken[] = {"Config", "Params", "entry",    "lathe",
                                       "min",    "max",    "ceil_div", "bytes",
                                       "given",  "sm",     "sm_a",     "multiprocessors"};

// The text between the two marks, with as many lines and columns before it as in the file.
Result<std::string> front_of(const std::string& text, const TomlReader& reader) {
  size_t at = 0;
  int line = 1;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row(text.data() + at, end - at);
    while (!row.empty() && is_space(row.front())) row.remove_prefix(1);
    if (row.starts_with(kBegin) && (row.size() == kBegin.size() || is_space(row[kBegin.size()]))) {
      break;
    }
    if (!row.empty() && !row.starts_with("//")) at = text.size();
    if (at == text.size()) break;
    at = std::min(end + 1, text.size());
    ++line;
  }
  const std::string form =
      "a kernel's text begins with its description, a comment from a line "
      "/* lathe to */, after blank lines and // comments alone";
  if (at >= text.size()) return reader.refuse({line, 1}, "there is no description; " + form);
  const size_t begin = text.find(kBegin, at) + kBegin.size();
  const size_t end = text.find(kEnd, begin);
  if (end == text.npos) return reader.refuse({line, 1}, "the description has no end; " + form);
  std::string out(static_cast<size_t>(line - 1), '\n');
  out += std::string(begin - at, ' ');
  return out += text.substr(begin, end - begin);
}

// Names of all kinds, each of which stands for one thing.
class Names {
 public:
  explicit Names(const TomlReader& reader) : reader_(reader) {}

  // `made`: what lathe makes of the name, which must be free as well.
  Status add(const Entry& entry, std::initializer_list<std::string> made = {}) {
    const std::string& name = entry.name;
    const bool letters =
        std::ranges::all_of(name, [](char c) { return is_alphanumeric(c) || c == '_'; });
    const bool good = !name.empty() && name.size() <= kMostNameBytes && letters &&
                      !is_digit(name[0]) && name[0] != '_' && name.find("__") == name.npos;
    if (!good) {
      return refuse(entry, text("is no name; allowed are letters, digits and single _, from a "
                                "letter on, up to ",
                                kMostNameBytes));
    }
    if (std::ranges::find(kKeywords, name) != std::end(kKeywords)) {
      return refuse(entry, "is a word of C++; allowed is any other name");
    }
    const bool dtype =
        std::ranges::any_of(kDtypes, [&](const DtypeInfo& each) { return name == each.word; });
    if (dtype || std::ranges::find(kTaken, name) != std::end(kTaken)) {
      return refuse(entry, "has a meaning of its own here; allowed is any other name");
    }
    if (!known_.insert(name).second) {
      return refuse(entry, "is a name that is taken already; allowed is one name for one thing");
    }
    for (const std::string& each : made) {
      if (!known_.insert(each).second) {
        return refuse(entry, text("makes the name ", each, ", which is taken already"));
      }
    }
    return {};
  }

 private:
  Status refuse(const Entry& entry, const std::string& what) const {
    return reader_.refuse(entry.at, text(in_quotes(entry.name), " ", what));
  }
  const TomlReader& reader_;
  std::set<std::string> known_;
};

class DescriptionReader {
 public:
  explicit DescriptionReader(const std::string& file)
      : reader_(file), names_(reader_), out_(std::make_shared<Description>()) {}

  Result<std::shared_ptr<const Description>> read(const std::string& all) {
    LATHE_ASSIGN(const std::string front, front_of(all, reader_));
    LATHE_ASSIGN(const toml::table table, reader_.parse(front));
    const std::vector<Entry> sections = TomlReader::entries(table);
    LATHE_TRY(
        reader_.check_known("the description", sections,
                            {"name", "summary", "reference", "tensors", "options", "dims",
                             "constants", "workspace", "launch", "kernel", "cost", "refuse"}));
    LATHE_TRY(read_head(sections));
    LATHE_TRY(in_section(sections, "tensors", &DescriptionReader::read_tensor));
    LATHE_TRY(check_tensors(sections));
    LATHE_TRY(in_section(sections, "options", &DescriptionReader::read_option));
    LATHE_TRY(in_section(sections, "dims", &DescriptionReader::name_dim));
    LATHE_TRY(in_section(sections, "constants", &DescriptionReader::name_constant));
    lay_symbols();
    LATHE_TRY(in_section(sections, "dims", &DescriptionReader::read_dim));
    LATHE_TRY(check_dims(sections));
    LATHE_TRY(in_section(sections, "constants", &DescriptionReader::read_constant));
    LATHE_TRY(check_candidates(sections));
    LATHE_TRY(in_section(sections, "tensors", &DescriptionReader::read_map));
    LATHE_TRY(in_section(sections, "workspace", &DescriptionReader::read_workspace));
    LATHE_TRY(read_kernels(sections));
    LATHE_TRY(in_section(sections, "cost", &DescriptionReader::read_cost));
    LATHE_TRY(in_section(sections, "refuse", &DescriptionReader::read_rule));
    return std::shared_ptr<const Description>(std::move(out_));
  }

 private:
  using ReadEntry = Status (DescriptionReader::*)(const Entry& entry);

  // Calls `entry_reader` for each entry of a section, if the description has it.
  Status in_section(const std::vector<Entry>& sections, const char* name, ReadEntry entry_reader) {
    const Entry* section = TomlReader::find(sections, name);
    if (section == nullptr) return {};
    LATHE_ASSIGN(const toml::table* table,
                 reader_.table(*section, text("a section, [", name, "]").c_str()));
    for (const Entry& entry : TomlReader::entries(*table)) LATHE_TRY((this->*entry_reader)(entry));
    return {};
  }

  static Position at_of(const std::vector<Entry>& sections, const char* name) {
    const Entry* section = TomlReader::find(sections, name);
    return section != nullptr ? section->at : Position{1, 1};
  }

  template <typename List>
  Status check_count(const Entry& entry, const char* what, const List& list, size_t most) const {
    if (list.size() < most) return {};
    return reader_.refuse(entry.at,
                          text("there are more than ", most, " ", what, "; allowed are ", most));
  }

  Status read_head(const std::vector<Entry>& sections) {
    if (const Entry* name = TomlReader::find(sections, "name")) {
      LATHE_ASSIGN(out_->name, reader_.string(*name, kMostNameBytes));
      LATHE_TRY(Names(reader_).add({out_->name, name->node, position_of(*name->node)}));
    }
    out_->summary = "A kernel of a caller.";
    if (const Entry* summary = TomlReader::find(sections, "summary")) {
      LATHE_ASSIGN(out_->summary, reader_.string(*summary));
    }
    if (const Entry* reference = TomlReader::find(sections, "reference")) {
      return read_reference(*reference);
    }
    return {};
  }

  // A file beside the text, so that the two are moved together.
  Status read_reference(const Entry& entry) {
    LATHE_ASSIGN(out_->reference, reader_.string(entry));
    const std::string& file = out_->reference;
    if (file.ends_with(".py") && file.find('/') == file.npos) return {};
    return reader_.refuse(entry, text("is ", in_quotes(file),
                                      "; allowed is a file beside the kernel's that ends in .py"));
  }

  // "T D", with N+1 and numbers, to "T,D".
  Result<std::string> read_shape(const Entry& entry) {
    LATHE_ASSIGN(const std::string given, reader_.string(entry));
    std::string shape;
    int rank = 0;
    for (std::string_view word : split(given, ' ')) {
      if (word.empty()) continue;
      if (++rank > kMaxRank) break;
      shape += (shape.empty() ? "" : ",") + std::string(word);
      if (word.ends_with("+1")) word.remove_suffix(2);
      const bool number = !word.empty() && std::ranges::all_of(word, is_digit);
      if (number && word.size() <= 9 && word[0] != '0') continue;
      if (number) {
        return reader_.refuse(entry, text("has the extent ", word, "; allowed are 1 to 999999999"));
      }
      LATHE_TRY(add_dim({std::string(word), entry.node, position_of(*entry.node)}));
    }
    if (rank >= 1 && rank <= kMaxRank) return shape;
    return reader_.refuse(entry, text("is ", in_quotes(given), "; allowed are 1 to ", kMaxRank,
                                      " dims with blanks between them, such as \"T D\""));
  }

  Status add_dim(const Entry& entry) {
    if (std::ranges::find(out_->dims, entry.name, &DimText::name) != out_->dims.end()) return {};
    LATHE_TRY(check_count(entry, "dims", out_->dims, kMostOwnDims));
    LATHE_TRY(names_.add(entry));
    out_->dims.emplace_back().name = entry.name;
    return {};
  }

  // "x", "f16" or ["f16", "bf16"]; an output has one.
  Status read_dtypes(const Entry& entry, TensorText* tensor) {
    LATHE_ASSIGN(const std::vector<std::string> words, reader_.strings(entry, std::size(kDtypes)));
    const auto known = [](const std::string& word) {
      return std::ranges::any_of(kDtypes, [&](const DtypeInfo& each) { return word == each.word; });
    };
    const auto same = std::ranges::find(out_->tensors, words[0], &TensorText::name);
    if (words.size() == 1 && same != out_->tensors.end()) {
      tensor->dtypes = same->dtypes[0] == '=' ? same->dtypes : "=" + same->name;
      return {};
    }
    for (size_t i = 0; i < words.size(); ++i) {
      const bool twice = std::find(words.begin(), words.begin() + static_cast<long>(i), words[i]) !=
                         words.begin() + static_cast<long>(i);
      if (known(words[i]) && !twice) continue;
      return reader_.refuse(entry, text("has ", in_quotes(words[i]), twice ? " twice" : "",
                                        "; allowed are ", comma_list(kDtypes, &DtypeInfo::word),
                                        " or, alone, a tensor before it, whose dtype it then has"));
    }
    if (tensor->role == Role::output && words.size() > 1) {
      return reader_.refuse(entry, text("of an output has ", words.size(),
                                        " dtypes; allowed is one, or a tensor's name"));
    }
    for (const std::string& word : words)
      tensor->dtypes += (tensor->dtypes.empty() ? "" : "|") + word;
    return {};
  }

  Status read_tensor(const Entry& entry) {
    LATHE_TRY(check_count(entry, "tensors", out_->tensors, kMaxTensors));
    LATHE_TRY(names_.add(entry, {entry.name + "_t", entry.name + "_stride", entry.name + "_map",
                                 "has_" + entry.name}));
    LATHE_ASSIGN(const toml::table* table,
                 reader_.table(entry, "{ in = \"f32\", shape = \"T D\" }"));
    const std::vector<Entry> fields = TomlReader::entries(*table);
    LATHE_TRY(reader_.check_known(
        "tensor " + entry.name, fields,
        {"in", "out", "inout", "shape", "optional", "needs", "strided", "aligned", "map", "what"}));
    TensorText tensor{.name = entry.name, .what = "A tensor of the kernel."};
    static constexpr std::pair<const char*, Role> kRoles[] = {
        {"in", Role::input}, {"out", Role::output}, {"inout", Role::inout}};
    const Entry* dtypes = nullptr;
    for (const auto& [word, role] : kRoles) {
      const Entry* found = TomlReader::find(fields, word);
      if (found == nullptr) continue;
      if (dtypes != nullptr)
        return reader_.refuse(entry, "has two of in, out, inout; allowed is one");
      dtypes = found, tensor.role = role;
    }
    if (dtypes == nullptr) {
      return reader_.refuse(entry,
                            "has none of in, out, inout; allowed is one of them, with dtypes");
    }
    LATHE_TRY(read_dtypes(*dtypes, &tensor));
    const Entry* shape = TomlReader::find(fields, "shape");
    if (shape == nullptr)
      return reader_.refuse(entry, "has no shape; allowed is one, such as \"T D\"");
    LATHE_ASSIGN(tensor.shape, read_shape(*shape));
    LATHE_TRY(read_flags(fields, &tensor));
    out_->tensors.push_back(std::move(tensor));
    return {};
  }

  // Tensors before this one, each of which it needs.
  Status read_needs(const Entry& entry, TensorText* tensor) {
    LATHE_ASSIGN(const std::vector<std::string> words, reader_.strings(entry, kMaxTensors));
    for (const std::string& word : words) {
      if (std::ranges::find(out_->tensors, word, &TensorText::name) == out_->tensors.end()) {
        return reader_.refuse(
            entry, text("has ", in_quotes(word), "; allowed are tensors before ", tensor->name,
                        ": ", comma_list(out_->tensors, &TensorText::name)));
      }
      tensor->needs += (tensor->needs.empty() ? "" : ",") + word;
    }
    if (tensor->optional) return {};
    return reader_.refuse(entry, text("is given, but ", tensor->name,
                                      " is always there; allowed is optional = true beside it"));
  }

  Status read_flags(const std::vector<Entry>& fields, TensorText* tensor) {
    if (const Entry* given = TomlReader::find(fields, "optional")) {
      LATHE_ASSIGN(tensor->optional, reader_.boolean(*given));
    }
    if (const Entry* given = TomlReader::find(fields, "strided")) {
      LATHE_ASSIGN(tensor->strided, reader_.boolean(*given));
    }
    if (const Entry* given = TomlReader::find(fields, "what")) {
      LATHE_ASSIGN(tensor->what, reader_.string(*given));
    }
    if (const Entry* given = TomlReader::find(fields, "needs")) {
      LATHE_TRY(read_needs(*given, tensor));
    }
    // The engine that reads through a map takes addresses of 16 bytes.
    tensor->has_map = TomlReader::find(fields, "map") != nullptr;
    if (tensor->has_map) tensor->aligned = 16;
    const Entry* aligned = TomlReader::find(fields, "aligned");
    if (aligned == nullptr) return {};
    const auto* bytes = aligned->node->as_integer();
    const int64_t value = bytes != nullptr ? **bytes : 0;
    if (value != 1 && value != 2 && value != 4 && value != 8 && value != 16) {
      return reader_.refuse(*aligned, text("is ", found_text(*aligned->node),
                                           "; allowed are 1, 2, 4, 8 and 16 bytes"));
    }
    tensor->aligned = std::max(tensor->aligned, static_cast<int>(value));
    return {};
  }

  // The map of a tensor, behind the constants that its box may use.
  Status read_map(const Entry& entry) {
    TensorText& tensor = *std::ranges::find(out_->tensors, entry.name, &TensorText::name);
    if (!tensor.has_map) return {};
    const std::vector<Entry> fields = TomlReader::entries(*entry.node->as_table());
    return read_map_text(reader_, *TomlReader::find(fields, "map"), compiled_scope(), &tensor);
  }

  Status check_tensors(const std::vector<Entry>& sections) const {
    const auto writes = [](const TensorText& each) { return each.role != Role::input; };
    if (std::ranges::any_of(out_->tensors, writes)) return {};
    return reader_.refuse(at_of(sections, "tensors"),
                          "[tensors] has no tensor that is written; allowed is at least one with "
                          "out or inout");
  }

  Status read_option(const Entry& entry) {
    LATHE_TRY(check_count(entry, "options", out_->options, kMostOptions));
    LATHE_TRY(names_.add(entry));
    // Such options of lathe's operators say which outputs are wanted, and of which dtype.
    if (entry.name.starts_with("output_") || entry.name == "out_dtype") {
      return reader_.refuse(entry.at, text(in_quotes(entry.name),
                                           " is no option of a kernel; "
                                           "allowed are names that do not begin with output_, and "
                                           "not out_dtype"));
    }
    LATHE_ASSIGN(OptionText option, read_option_text(reader_, entry));
    out_->options.push_back(std::move(option));
    return {};
  }

  // A dim that follows from others: its name is there with the tensors'.
  Status name_dim(const Entry& entry) {
    if (std::ranges::find(out_->dims, entry.name, &DimText::name) != out_->dims.end()) return {};
    return reader_.refuse(
        entry.at, text("dim ", in_quotes(entry.name), " is in no tensor's shape; allowed are ",
                       comma_list(out_->dims, &DimText::name),
                       " (a number with a name belongs into [constants])"));
  }

  int find_dim_text(const std::string& name) const {
    const auto found = std::ranges::find(out_->dims, name, &DimText::name);
    return found == out_->dims.end() ? -1 : static_cast<int>(found - out_->dims.begin());
  }

  Status name_constant(const Entry& entry) {
    LATHE_TRY(check_count(entry, "constants", out_->constants, kMostConstants));
    ConstantText constant{.name = entry.name};
    const auto* word = entry.node->as_string();
    if (word != nullptr && **word == "dim") {
      constant.dim = find_dim_text(entry.name);
      if (constant.dim < 0) {
        return reader_.refuse(entry.at, text(in_quotes(entry.name), " is no dim; allowed are ",
                                             comma_list(out_->dims, &DimText::name)));
      }
      out_->dims[static_cast<size_t>(constant.dim)].compiled = true;
    } else {
      LATHE_TRY(names_.add(entry));
    }
    out_->constants.push_back(std::move(constant));
    return {};
  }

  void lay_symbols() {
    SymbolLayout& at = out_->symbols;
    const auto tensors = static_cast<int>(out_->tensors.size());
    at.dims = 0;
    at.options = kMostOwnDims;
    at.constants = at.options + static_cast<int>(out_->options.size());
    at.sm = at.constants + static_cast<int>(out_->constants.size());
    at.sm_a = at.sm + 1;
    at.multiprocessors = at.sm_a + 1;
    at.bytes = at.multiprocessors + 1;
    at.given = at.bytes + tensors;
    at.count = at.given + tensors;
  }

  // `dims`: which ones may be used. `constants`: how many.
  enum class Dims { compiled, given, all };
  Scope scope(Dims dims, size_t constants) const {
    Scope out;
    const SymbolLayout& at = out_->symbols;
    for (size_t i = 0; i < out_->dims.size(); ++i) {
      const DimText& dim = out_->dims[i];
      const bool usable =
          dims == Dims::all || (dims == Dims::compiled ? dim.compiled : !dim.extent);
      if (usable) out.symbols.push_back({dim.name, at.dims + static_cast<int>(i)});
      if (!usable && dims == Dims::compiled) out.varying.push_back(dim.name);
    }
    for (size_t i = 0; i < out_->options.size(); ++i) {
      if (out_->options[i].type == OptionType::number) continue;
      out.symbols.push_back({out_->options[i].name, at.options + static_cast<int>(i)});
    }
    for (size_t i = 0; i < constants; ++i) {
      if (out_->constants[i].dim >= 0) continue;
      out.symbols.push_back({out_->constants[i].name, at.constants + static_cast<int>(i)});
    }
    if (dims != Dims::given) {
      out.symbols.push_back({"sm", at.sm});
      out.symbols.push_back({"sm_a", at.sm_a});
      out.symbols.push_back({"multiprocessors", at.multiprocessors});
    }
    for (size_t i = 0; i < out_->tensors.size(); ++i) {
      const auto index = static_cast<int>(i);
      if (dims != Dims::given) {
        out.functions.push_back({"bytes", out_->tensors[i].name, at.bytes + index});
      }
      if (out_->tensors[i].optional) {
        out.functions.push_back({"given", out_->tensors[i].name, at.given + index});
      }
    }
    return out;
  }
  Scope compiled_scope() const { return scope(Dims::compiled, out_->constants.size()); }
  Scope call_scope() const { return scope(Dims::all, out_->constants.size()); }

  Status read_dim(const Entry& entry) {
    DimText& dim = out_->dims[static_cast<size_t>(find_dim_text(entry.name))];
    Scope usable = scope(Dims::given, 0);
    // Dims that follow from others are read in order, and use none of themselves.
    std::erase_if(usable.symbols, [&](const Symbol& each) {
      return follows_.contains(each.name) || each.name == entry.name;
    });
    LATHE_ASSIGN(dim.extent, reader_.expression(entry, usable));
    follows_.insert(entry.name);
    return {};
  }

  // An output's dims must follow from inputs or from [dims].
  Status check_dims(const std::vector<Entry>& sections) const {
    std::set<std::string> said;
    for (const TensorText& tensor : out_->tensors) {
      if (tensor.role == Role::output) continue;
      for (std::string_view word : split(tensor.shape, ',')) {
        if (word.ends_with("+1")) word.remove_suffix(2);
        said.insert(std::string(word));
      }
    }
    for (const DimText& dim : out_->dims) {
      if (dim.extent || said.contains(dim.name)) continue;
      return reader_.refuse(at_of(sections, "tensors"),
                            text("only outputs have the dim ", dim.name,
                                 ", so nothing says its extent; allowed is [dims] ", dim.name,
                                 " = \"...\", an expression of other dims and options"));
    }
    return {};
  }

  Status read_constant(const Entry& entry) {
    const auto found = std::ranges::find(out_->constants, entry.name, &ConstantText::name);
    ConstantText& constant = *found;
    if (constant.dim >= 0) return {};
    if (const toml::array* list = entry.node->as_array())
      return read_values(entry, *list, &constant);
    const auto before = static_cast<size_t>(found - out_->constants.begin());
    LATHE_ASSIGN(constant.value, reader_.expression(entry, scope(Dims::compiled, before)));
    return {};
  }

  Status read_values(const Entry& entry, const toml::array& list, ConstantText* constant) {
    if (list.empty() || list.size() > kMostValues) {
      return reader_.refuse(entry,
                            text("has ", list.size(), " values; allowed are 1 to ", kMostValues));
    }
    for (const toml::node& each : list) {
      const auto* number = each.as_integer();
      const bool fits = number != nullptr && **number > INT32_MIN && **number <= INT32_MAX;
      const bool twice = fits && std::ranges::count(constant->values, **number) > 0;
      if (!fits || twice) {
        return reader_.refuse(position_of(each),
                              text(entry.name, " has ", found_text(each), twice ? " twice" : "",
                                   "; allowed are whole numbers of 32 bits, each once"));
      }
      constant->values.push_back(**number);
    }
    return {};
  }

  Status check_candidates(const std::vector<Entry>& sections) const {
    size_t candidates = 1;
    for (const ConstantText& each : out_->constants) {
      candidates *= std::max<size_t>(each.values.size(), 1);
      if (candidates <= kMostCandidates) continue;
      return reader_.refuse(at_of(sections, "constants"),
                            text("[constants] has lists with more than ", kMostCandidates,
                                 " combinations; allowed are ", kMostCandidates));
    }
    return {};
  }

  Status read_workspace(const Entry& entry) {
    LATHE_TRY(check_count(entry, "arrays of the workspace", out_->workspaces, kMostWorkspaces));
    LATHE_TRY(names_.add(entry));
    LATHE_ASSIGN(const toml::table* table,
                 reader_.table(entry, "{ dtype = \"f32\", count = \"T * 4\" }"));
    const std::vector<Entry> fields = TomlReader::entries(*table);
    LATHE_TRY(reader_.check_known("workspace " + entry.name, fields, {"dtype", "count"}));
    const Entry *dtype = TomlReader::find(fields, "dtype"),
                *count = TomlReader::find(fields, "count");
    if (dtype == nullptr || count == nullptr) {
      return reader_.refuse(entry, text("has no ", dtype == nullptr ? "dtype" : "count",
                                        "; allowed is { dtype = \"f32\", count = \"T * 4\" }"));
    }
    LATHE_ASSIGN(const std::string word, reader_.string(*dtype));
    const auto found =
        std::ranges::find_if(kDtypes, [&](const DtypeInfo& each) { return word == each.word; });
    if (found == std::end(kDtypes)) {
      return reader_.refuse(*dtype, text("is ", in_quotes(word), "; allowed are ",
                                         comma_list(kDtypes, &DtypeInfo::word)));
    }
    LATHE_ASSIGN(Expression elements, reader_.expression(*count, call_scope()));
    out_->workspaces.push_back({entry.name, found->dtype, std::move(elements)});
    return {};
  }

  Status read_kernels(const std::vector<Entry>& sections) {
    const Entry *launch = TomlReader::find(sections, "launch"),
                *kernels = TomlReader::find(sections, "kernel");
    if ((launch == nullptr) == (kernels == nullptr)) {
      return reader_.refuse(launch != nullptr ? launch->at : Position{1, 1},
                            text("there is ", launch != nullptr ? "both" : "neither",
                                 " [launch] and [[kernel]]; allowed is [launch] for one kernel, or "
                                 "a [[kernel]] for each of several, in their order"));
    }
    if (launch != nullptr) return read_kernel(*launch);
    const toml::array* list = kernels->node->as_array();
    if (list == nullptr || list->empty() || list->size() > kMostKernels) {
      return reader_.refuse(*kernels, text("is ", found_text(*kernels->node), "; allowed are 1 to ",
                                           kMostKernels, " sections [[kernel]]"));
    }
    for (const toml::node& each : *list) {
      LATHE_TRY(read_kernel({"kernel", &each, position_of(each)}));
    }
    return {};
  }

  Status read_kernel(const Entry& entry) {
    LATHE_ASSIGN(const toml::table* table, reader_.table(entry, "a section with grid and block"));
    const std::vector<Entry> fields = TomlReader::entries(*table);
    LATHE_TRY(
        reader_.check_known(text("[", entry.name, "]"), fields,
                            {"function", "grid", "block", "shared", "cluster", "min_blocks"}));
    KernelText kernel;
    if (const Entry* function = TomlReader::find(fields, "function")) {
      LATHE_ASSIGN(kernel.function, reader_.string(*function, kMostNameBytes));
      LATHE_TRY(
          Names(reader_).add({kernel.function, function->node, position_of(*function->node)}));
    }
    for (const char* needed : {"grid", "block"}) {
      if (TomlReader::find(fields, needed) != nullptr) continue;
      return reader_.refuse(entry.at,
                            text("[", entry.name, "] has no ", needed, "; allowed is ",
                                 std::string_view(needed) == "grid"
                                     ? "grid = \"T\", or a list of up to three"
                                     : "block = \"256\", threads of a block, or a list of "
                                       "up to three"));
    }
    LATHE_TRY(read_extents(*TomlReader::find(fields, "grid"), call_scope(), &kernel.grid));
    LATHE_TRY(read_extents(*TomlReader::find(fields, "block"), compiled_scope(), &kernel.block));
    const std::pair<const char*, Expression*> sizes[] = {{"shared", &kernel.shared},
                                                         {"cluster", &kernel.cluster},
                                                         {"min_blocks", &kernel.min_blocks}};
    for (const auto& [name, expression] : sizes) {
      const Entry* field = TomlReader::find(fields, name);
      if (field == nullptr) continue;
      LATHE_ASSIGN(*expression, reader_.expression(*field, compiled_scope()));
    }
    for (const KernelText& other : out_->kernels) {
      if (other.function != kernel.function) continue;
      return reader_.refuse(entry.at, text("two kernels have the function ", kernel.function,
                                           "; allowed is one for each, function = \"...\""));
    }
    out_->kernels.push_back(std::move(kernel));
    return {};
  }

  // "T", or ["T", "H"]: up to three.
  Status read_extents(const Entry& entry, const Scope& usable, std::vector<Expression>* out) {
    const toml::array* list = entry.node->as_array();
    if (list == nullptr) {
      LATHE_ASSIGN(Expression one, reader_.expression(entry, usable));
      out->push_back(std::move(one));
      return {};
    }
    if (list->empty() || list->size() > 3) {
      return reader_.refuse(entry, text("has ", list->size(), " extents; allowed are 1 to 3"));
    }
    for (const toml::node& each : *list) {
      LATHE_ASSIGN(Expression one, reader_.expression(entry, each, usable));
      out->push_back(std::move(one));
    }
    return {};
  }

  Status read_cost(const Entry& entry) {
    LATHE_TRY(reader_.check_known("[cost]", {entry}, {"bytes", "flops", "tensor_ops"}));
    Expression& into = entry.name == "bytes"   ? out_->cost.bytes
                       : entry.name == "flops" ? out_->cost.flops
                                               : out_->cost.tensor_ops;
    LATHE_ASSIGN(into, reader_.expression(entry, call_scope()));
    return {};
  }

  // "D % 8 != 0" = "D must be a multiple of 8"
  Status read_rule(const Entry& entry) {
    LATHE_TRY(check_count(entry, "rules", out_->rules, kMostRules));
    LATHE_ASSIGN(std::string why, reader_.string(entry));
    ExpressionFault fault;
    auto when = Expression::parse(entry.name, call_scope(), &fault);
    if (!when) {
      const int column = entry.at.column + 1 + static_cast<int>(fault.at);
      return reader_.refuse({entry.at.line, column}, "[refuse]: " + fault.what);
    }
    out_->rules.push_back({std::move(*when), std::move(why)});
    return {};
  }

  const TomlReader reader_;
  Names names_;
  std::shared_ptr<Description> out_;
  std::set<std::string> follows_;
};

}  // namespace

Result<std::shared_ptr<const Description>> read_description(const std::string& text,
                                                            const std::string& file) {
  return DescriptionReader(file).read(text);
}

}  // namespace lathe::own
