// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes the line of a problem.
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "api/boundary.h"
#include "api/cache/manifest.h"
#include "ops/group.h"
#include "ops/problem.h"

namespace lathe {
namespace {

using Json = nlohmann::ordered_json;

Json tensors_json(const lathe_problem& problem) {
  Json out = Json::object();
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given) continue;
    Json extents = Json::array();
    for (int d = 0; d < declared.shape.rank; ++d) extents.push_back(declared.extents[d]);
    out[problem.op->tensors[i].name] = Json::array({word(declared.dtype), std::move(extents)});
  }
  return out;
}

// A number as one, so that 1, 01 and 1.0 are the same line; words such as unset stay.
Json value_json(const OptionInfo& option, const std::string& value) {
  const auto parsed = [&](auto* number) {
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, *number);
    return error == std::errc() && stop == end;
  };
  int64_t integer = 0;
  double number = 0;
  if (option.type == OptionType::integer && parsed(&integer)) return integer;
  if (option.type == OptionType::number && parsed(&number)) return number;
  return value;
}

const Mod* text_of(const lathe_problem& problem, const char* option) {
  for (const Mod& mod : problem.mods) {
    if (mod.name == option) return &mod;
  }
  return nullptr;
}

Json group_json(const lathe_problem& problem) {
  Json flags = Json::array();
  for (const GroupFlag& each : kGroupFlagWords) {
    if (problem.group_flags & each.flag) flags.push_back(each.word);
  }
  return {{"world", problem.group->group->world()}, {"flags", std::move(flags)}};
}

}  // namespace

Result<std::string> problem_text(const lathe_problem& problem) {
  Json line = {{"op", problem.op->name}, {"tensors", tensors_json(problem)}};
  Json options = Json::object(), mods = Json::object();
  for (size_t i = 0; i < problem.op->options.size(); ++i) {
    if (!problem.options[i]) continue;
    const OptionInfo& option = problem.op->options[i];
    const Mod* mod = text_of(problem, option.name);
    (mod ? mods : options)[option.name] =
        mod ? Json(mod->text) : value_json(option, *problem.options[i]);
  }
  if (!options.empty()) line["options"] = std::move(options);
  if (problem.alignment != 16) line["alignment"] = problem.alignment;
  if (!mods.empty()) line["snippets"] = mods;
  if (problem.group) line["group"] = group_json(problem);
  try {
    return line.dump(-1, ' ', /*ensure_ascii=*/true);
  } catch (const Json::type_error&) {
    for (const auto& [name, value] : mods.items()) {
      try {
        (void)value.dump();
      } catch (const Json::type_error&) {
        return invalid(text("the text of ", name,
                            " is no UTF-8, so the problem has no line in a manifest; allowed is "
                            "UTF-8"));
      }
    }
    throw;
  }
}

Status with_problem(const Status& status, const lathe_problem& problem) {
  if (status.code() != Code::not_cached) return status;
  const Result<std::string> line = problem_text(problem);
  if (!line.ok()) return status;
  const size_t end = std::min(status.text().find('\n'), status.text().size());
  return Status(status.code(),
                text(status.text().substr(0, end),
                     "; where there is a compiler, `lathe warm` makes it from this line:\n", *line,
                     status.text().substr(end)));
}

}  // namespace lathe

using namespace lathe;

extern "C" lathe_status lathe_problem_text(const lathe_problem* problem, char* out, size_t bytes,
                                           size_t* needed) {
  return boundary({{problem, "problem"}}, [&]() -> Status {
    if (bytes > 0) LATHE_TRY(require(out, "text"));
    LATHE_ASSIGN(const std::string line, problem_text(*problem));
    return give_text(line, out, bytes, needed);
  });
}
