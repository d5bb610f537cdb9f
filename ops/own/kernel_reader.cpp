// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/kernel_reader.h"

#include "ops/own/names.h"

namespace lathe::own {
namespace {

class KernelReader {
 public:
  KernelReader(const TomlReader& reader, const KernelScopes& scopes, Description* out)
      : reader_(reader), scopes_(scopes), out_(out) {}

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

 private:
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
    LATHE_TRY(read_extents(*TomlReader::find(fields, "grid"), scopes_.call, &kernel.grid));
    LATHE_TRY(read_extents(*TomlReader::find(fields, "block"), scopes_.compiled, &kernel.block));
    const std::pair<const char*, Expression*> sizes[] = {{"shared", &kernel.shared},
                                                         {"cluster", &kernel.cluster},
                                                         {"min_blocks", &kernel.min_blocks}};
    for (const auto& [name, expression] : sizes) {
      const Entry* field = TomlReader::find(fields, name);
      if (field == nullptr) continue;
      LATHE_ASSIGN(*expression, reader_.expression(*field, scopes_.compiled));
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

  const TomlReader& reader_;
  const KernelScopes& scopes_;
  Description* const out_;
};

}  // namespace

Status read_kernel_texts(const TomlReader& reader, const std::vector<Entry>& sections,
                         const KernelScopes& scopes, Description* description) {
  return KernelReader(reader, scopes, description).read_kernels(sections);
}

}  // namespace lathe::own
