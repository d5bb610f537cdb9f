// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/tensor_reader.h"

#include <algorithm>

#include "codegen/base/letters.h"
#include "codegen/base/nearest_name.h"
#include "codegen/base/printable.h"

namespace lathe::own {
namespace {

class TensorReader {
 public:
  TensorReader(const TomlReader& reader, Names* names, Description* out)
      : reader_(reader), names_(names), out_(out) {}

  Status read_tensor(const Entry& entry) {
    LATHE_TRY(check_count(reader_, entry, "tensors", out_->tensors, kMaxTensors));
    LATHE_TRY(names_->add(entry, {entry.name + "_t", entry.name + "_stride", entry.name + "_map",
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

 private:
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
    LATHE_TRY(check_count(reader_, entry, "dims", out_->dims, kMostOwnDims));
    LATHE_TRY(names_->add(entry));
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

  const TomlReader& reader_;
  Names* const names_;
  Description* const out_;
};

}  // namespace

Status read_tensor_text(const TomlReader& reader, const Entry& entry, Names* names,
                        Description* description) {
  return TensorReader(reader, names, description).read_tensor(entry);
}

}  // namespace lathe::own
