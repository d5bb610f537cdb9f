// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cache/serving_line.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

// Of one name, and of the tensors of one list.
constexpr size_t kMostValues = 16, kMostNames = 32;
constexpr int64_t kMostDrafts = 64;
constexpr const char* kName = "a text of 1 to 100 characters";

// Calls read(value) for the values of a name: those of a list, or the one that is none.
template <typename Read>
Status each_value(const std::string& field, const LineJson& given, const Read& read) {
  if (!given.is_array()) return read(given);
  if (given.empty() || given.size() > kMostValues) {
    return wrong(field, given, text("a value, or a list of 1 to ", kMostValues));
  }
  for (const LineJson& value : given) LATHE_TRY(read(value));
  return {};
}

template <typename Read>
Status each_member(const LineJson& line, const char* field, const Read& read) {
  if (!line.contains(field)) return {};
  const LineJson& object = line[field];
  if (!object.is_object()) return wrong(field, object, "an object");
  for (const auto& [name, value] : object.items()) LATHE_TRY(read(name, value));
  return {};
}

Result<Dtype> read_dtype(const std::string& field, const LineJson& value) {
  if (value.is_string()) {
    const auto found = std::ranges::find(kDtypes, value.get<std::string>(), &DtypeInfo::word);
    if (found != std::end(kDtypes)) return found->dtype;
  }
  return wrong(field, value, comma_list(kDtypes, &DtypeInfo::word));
}

Status read_dtypes(const LineJson& line, ServedLayer* layer) {
  if (line.contains("dtype")) {
    LATHE_ASSIGN(layer->dtype, read_dtype("dtype", line["dtype"]));
  }
  return each_member(line, "dtypes", [&](const std::string& name, const LineJson& given) {
    const std::string field = "dtype of " + escaped(name);
    std::vector<Dtype>& all = layer->dtypes[name];
    all.clear();
    return each_value(field, given, [&](const LineJson& value) -> Status {
      LATHE_ASSIGN(const Dtype dtype, read_dtype(field, value));
      all.push_back(dtype);
      return {};
    });
  });
}

Status read_extents(const LineJson& line, ServedLayer* layer) {
  return each_member(line, "extents", [&](const std::string& name, const LineJson& given) {
    const Dim dim = find_dim(name);
    if (dim == Dim::fixed || info_of(dim).varies) {
      std::vector<std::string> known;
      for (const DimInfo& each : std::span(kDims).first(kDimCount - 1)) {
        if (!each.varies) known.emplace_back(each.name);
      }
      return invalid(text("extents has ", in_quotes(name), "; allowed are ", comma_list(known),
                          ": other extents vary from call to call without a new kernel"));
    }
    const std::string field = "extent " + name;
    std::vector<int64_t>& all = layer->extents[name];
    all.clear();
    return each_value(field, given, [&](const LineJson& value) -> Status {
      if (!is_int64(value) || value.get<int64_t>() < 1 || value.get<int64_t>() > kMaxExtent) {
        return wrong(field, value, text("a whole number from 1 to ", kMaxExtent));
      }
      all.push_back(value.get<int64_t>());
      return {};
    });
  });
}

// The name of a file is no value: nothing of a manifest opens one.
bool names_file(const std::string& name, const std::string& value) {
  for (const Operator& op : operators()) {
    const int index = find_option(op, name);
    if (index >= 0 && takes_file(op.options[index]) && value != op.options[index].fallback) {
      return true;
    }
  }
  return false;
}

Status read_options(const LineJson& line, ServedLayer* layer) {
  return each_member(line, "options", [&](const std::string& name, const LineJson& given) {
    std::vector<std::string>& all = layer->options[name];
    all.clear();
    return each_value("option " + escaped(name), given, [&](const LineJson& value) -> Status {
      LATHE_ASSIGN(std::string word, option_text(name, value));
      if (names_file(name, word)) {
        return wrong("option " + escaped(name), value,
                     "none: a problem with a mod is a line of its own (LATHE_RECORD)");
      }
      all.push_back(std::move(word));
      return {};
    });
  });
}

Status read_names(const LineJson& line, const char* field, std::vector<std::string>* names) {
  if (!line.contains(field)) return {};
  const LineJson& given = line[field];
  const std::string allowed = text("a list of at most ", kMostNames, " tensors' names");
  if (!given.is_array() || given.size() > kMostNames) return wrong(field, given, allowed);
  names->clear();
  for (const LineJson& name : given) {
    if (!name.is_string()) return wrong(field, given, allowed);
    names->push_back(name.get<std::string>());
  }
  return {};
}

Status read_range(const LineJson& line, const char* field, int64_t most, ServedRange* range) {
  if (!line.contains(field)) return {};
  const LineJson& given = line[field];
  const bool good = given.is_array() && given.size() == 2 && is_int64(given[0]) &&
                    is_int64(given[1]) && given[0].get<int64_t>() >= 1 &&
                    given[0].get<int64_t>() <= given[1].get<int64_t>() &&
                    given[1].get<int64_t>() <= most;
  if (!good) {
    return wrong(field, given, text("[least, most], whole numbers from 1 to ", most));
  }
  *range = {given[0].get<int64_t>(), given[1].get<int64_t>()};
  return {};
}

Status read_alignment(const LineJson& line, ServedLayer* layer) {
  if (!line.contains("alignment")) return {};
  layer->alignments.clear();
  return each_value("alignment", line["alignment"], [&](const LineJson& value) -> Status {
    const int64_t bytes = is_int64(value) ? value.get<int64_t>() : 0;
    if (bytes < 1 || bytes > 16 || (bytes & (bytes - 1)) != 0) {
      return wrong("alignment", value, "1, 2, 4, 8 or 16");
    }
    layer->alignments.push_back(bytes);
    return {};
  });
}

Status read_common(const LineJson& line, ServedLayer* layer) {
  LATHE_TRY(read_dtypes(line, layer));
  LATHE_TRY(read_extents(line, layer));
  LATHE_TRY(read_options(line, layer));
  LATHE_TRY(read_alignment(line, layer));
  LATHE_TRY(read_names(line, "with", &layer->with));
  LATHE_TRY(read_names(line, "maybe", &layer->maybe));
  LATHE_TRY(read_names(line, "without", &layer->without));
  LATHE_TRY(read_range(line, "batch", kMaxExtent, &layer->batch));
  LATHE_TRY(read_range(line, "tokens", kMaxExtent, &layer->tokens));
  return read_range(line, "drafts", kMostDrafts, &layer->drafts);
}

}  // namespace

bool is_serving_line(const LineJson& line) {
  return line.contains("layer") || line.contains("model");
}

Result<std::vector<lathe_problem>> read_serving_line(const LineJson& line, ServedLayer* model) {
  const char* field = line.contains("layer") ? "layer" : "model";
  LATHE_TRY(check_fields(line, "the line",
                         {field, "dtype", "dtypes", "extents", "options", "alignment", "with",
                          "maybe", "without", "batch", "tokens", "drafts"}));
  const LineJson& name = line[field];
  const bool named =
      name.is_string() && !name.get<std::string>().empty() && name.get<std::string>().size() <= 100;
  if (!named) return wrong(field, name, kName);
  const bool is_layer = line.contains("layer");
  ServedLayer said, read;
  if (is_layer) {
    read = *model;
    said.kind = read.kind = name.get<std::string>();
  }
  LATHE_TRY(read_common(line, &said));
  LATHE_TRY(check_names(said));
  LATHE_TRY(read_common(line, &read));
  if (is_layer) return problems_of_layer(read);
  *model = std::move(read);
  return std::vector<lathe_problem>();
}

}  // namespace lathe
