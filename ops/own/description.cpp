// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the description in front of a text and reads it, section by section: first what has names,
// then the expressions that use them.
#include "ops/own/description.h"

#include <algorithm>
#include <set>

#include "codegen/base/letters.h"
#include "codegen/base/nearest_name.h"
#include "codegen/base/printable.h"
#include "ops/own/kernel_reader.h"
#include "ops/own/map_reader.h"
#include "ops/own/names.h"
#include "ops/own/option_reader.h"
#include "ops/own/symbols.h"
#include "ops/own/tensor_reader.h"
#include "ops/own/toml_reader.h"

namespace lathe::own {
namespace {

constexpr std::string_view kBegin = "/* lathe", kEnd = "*/";

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
    out_->symbols = lay_symbols(*out_);
    LATHE_TRY(in_section(sections, "dims", &DescriptionReader::read_dim));
    LATHE_TRY(check_dims(sections));
    LATHE_TRY(in_section(sections, "constants", &DescriptionReader::read_constant));
    LATHE_TRY(check_candidates(sections));
    LATHE_TRY(in_section(sections, "tensors", &DescriptionReader::read_map));
    LATHE_TRY(in_section(sections, "workspace", &DescriptionReader::read_workspace));
    const KernelScopes scopes = {call_scope(), compiled_scope()};
    LATHE_TRY(read_kernel_texts(reader_, sections, scopes, out_.get()));
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

  Status read_tensor(const Entry& entry) {
    return read_tensor_text(reader_, entry, &names_, out_.get());
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
    LATHE_TRY(check_count(reader_, entry, "options", out_->options, kMostOptions));
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
    LATHE_TRY(check_count(reader_, entry, "constants", out_->constants, kMostConstants));
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

  Scope compiled_scope() const { return scope_of(*out_, Dims::compiled, out_->constants.size()); }
  Scope call_scope() const { return scope_of(*out_, Dims::all, out_->constants.size()); }

  Status read_dim(const Entry& entry) {
    DimText& dim = out_->dims[static_cast<size_t>(find_dim_text(entry.name))];
    Scope usable = scope_of(*out_, Dims::given, 0);
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
    LATHE_ASSIGN(constant.value,
                 reader_.expression(entry, scope_of(*out_, Dims::compiled, before)));
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
    LATHE_TRY(
        check_count(reader_, entry, "arrays of the workspace", out_->workspaces, kMostWorkspaces));
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
    LATHE_TRY(check_count(reader_, entry, "rules", out_->rules, kMostRules));
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
