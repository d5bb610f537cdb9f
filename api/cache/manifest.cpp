// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes the line of a problem and makes a problem of a line. Each refusal says where in the line,
// what was found and what is allowed.
#include "api/cache/manifest.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "api/boundary.h"
#include "api/cache/line_json.h"
#include "codegen/base/printable.h"
#include "ops/group.h"
#include "ops/problem.h"

namespace lathe {
namespace {

using Json = LineJson;

// Older lines have the mods' texts under this name.
constexpr const char* kOlderMods = "snippets";

// The words of a group's flags in a line, in this order.
struct GroupFlag {
  unsigned flag;
  const char* word;
};
constexpr GroupFlag kGroupFlagWords[] = {
    {LATHE_REDUCE_PARAMETER_GRADS, "reduce_parameter_grads"},
    {LATHE_ALLGATHER, "allgather"},
    {LATHE_DISPATCH, "dispatch"},
    {LATHE_EXCHANGE_HEADS, "exchange_heads"},
    {LATHE_NARROW_GRADIENTS, "narrow_gradients"},
    {LATHE_RANK_INVARIANT, "rank_invariant"},
};

Json tensors_json(const lathe_problem& problem) {
  Json out = Json::object();
  for (size_t i = 0; i < problem.op->tensors.size(); ++i) {
    const Declared& declared = problem.tensors[i];
    if (!declared.given) continue;
    const auto extents = std::span(declared.extents).first(declared.shape.rank);
    out[problem.op->tensors[i].name] = Json::array({word(declared.dtype), extents});
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

Json group_json(const lathe_problem& problem) {
  Json flags = Json::array();
  for (const GroupFlag& each : kGroupFlagWords) {
    if (problem.group_flags & each.flag) flags.push_back(each.word);
  }
  return {{"world", problem.group->group->world()}, {"flags", std::move(flags)}};
}

Status read_tensor(lathe_problem* problem, const std::string& name, const Json& value) {
  const std::string field = "tensor " + escaped(name);
  const bool good =
      value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_array();
  if (!good) return wrong(field, value, "[dtype, [extents]], such as [\"bf16\", [1, -1, 4096]]");
  const auto found = std::ranges::find(kDtypes, value[0].get<std::string>(), &DtypeInfo::word);
  if (found == std::end(kDtypes))
    return wrong(field + "'s dtype", value[0], "f32, f16, bf16, i32, i64, f8_e4m3 or u8");
  std::vector<int64_t> extents;
  for (const Json& extent : value[1]) {
    if (!is_int64(extent)) {
      return wrong(field + "'s extent " + std::to_string(extents.size()), extent,
                   "a whole number from -1 (varies) up");
    }
    extents.push_back(extent.get<int64_t>());
  }
  return declare(*problem, name.c_str(), static_cast<lathe_dtype>(found - std::begin(kDtypes)),
                 static_cast<int>(extents.size()), extents.data());
}

Status read_option(lathe_problem* problem, const std::string& name, const Json& value) {
  const auto set = [&](OptionType type, const std::string& given) {
    return set_option(problem, name.c_str(), type, given);
  };
  const int index = find_option(*problem->op, name);
  if (index >= 0 && takes_file(problem->op->options[index]) &&
      value != problem->op->options[index].fallback) {
    return wrong("option " + name, value,
                 text('"', problem->op->options[index].fallback,
                      "\": a text of your own is in mods, whole, not as a file's name"));
  }
  LATHE_ASSIGN(const std::string given, option_text(name, value));
  const bool integer = value.is_boolean() || value.is_number_integer();
  return set(integer                   ? OptionType::integer
             : value.is_number_float() ? OptionType::number
                                       : OptionType::word,
             given);
}

Status read_mod(lathe_problem* problem, const std::string& name, const Json& value) {
  if (!value.is_string()) return wrong("mod " + escaped(name), value, "a text");
  return set_option_text(problem, name.c_str(), value.get<std::string>());
}

Status read_group(lathe_problem* problem, const Json& value) {
  if (!value.is_object()) return wrong("group", value, "{\"world\": N, \"flags\": [...]}");
  LATHE_TRY(check_fields(value, "group", {"world", "flags"}));
  const std::string worlds = text("a whole number from 1 to ", kMostWorld);
  if (!value.contains("world")) return invalid("group has no world; allowed is " + worlds);
  const Json& world = value["world"];
  if (!is_int64(world) || world.get<int64_t>() < 1 || world.get<int64_t>() > kMostWorld) {
    return wrong("group's world", world, worlds);
  }
  unsigned flags = 0;
  const std::string known = comma_list(kGroupFlagWords, &GroupFlag::word);
  const Json listed = value.contains("flags") ? value["flags"] : Json::array();
  if (!listed.is_array()) return wrong("group's flags", listed, "a list of " + known);
  for (const Json& each : listed) {
    unsigned found = 0;
    for (const GroupFlag& flag : kGroupFlagWords) {
      if (each == flag.word) found = flag.flag;
    }
    if (found == 0 || (flags & found)) {
      return wrong("a flag of group", each, "each once of " + known);
    }
    flags |= found;
  }
  LATHE_TRY(check_group_flags(*problem->op, flags));
  problem->said_group = std::make_shared<lathe_group>();
  problem->said_group->group = Group::unconnected(static_cast<int>(world.get<int64_t>()), 0);
  problem->group = problem->said_group.get();
  problem->group_flags = flags;
  return {};
}

// Calls `read` for each member of an object of the line, if the line has it.
Status for_each(const Json& line, const char* field,
                const std::function<Status(const std::string&, const Json&)>& read) {
  if (!line.contains(field)) return {};
  const Json& object = line[field];
  if (!object.is_object()) return wrong(field, object, "an object");
  for (const auto& [name, value] : object.items()) {
    // The tables' names are C strings.
    if (name.find('\0') != name.npos) {
      return invalid(
          text("a name in ", field, " is ", shown(name), "; allowed are the operator's"));
    }
    LATHE_TRY(read(name, value));
  }
  return {};
}

}  // namespace

std::string problem_text(const lathe_problem& problem) {
  Json line = {{"op", problem.op->name}, {"tensors", tensors_json(problem)}};
  Json options = Json::object(), mods = Json::object();
  for (size_t i = 0; i < problem.op->options.size(); ++i) {
    if (!problem.options[i]) continue;
    const OptionInfo& option = problem.op->options[i];
    const auto mod = std::ranges::find(problem.mods, option.name, &Mod::name);
    if (mod != problem.mods.end()) {
      mods[option.name] = mod->text;
    } else {
      options[option.name] = value_json(option, *problem.options[i]);
    }
  }
  if (!options.empty()) line["options"] = std::move(options);
  if (problem.alignment != 16) line["alignment"] = problem.alignment;
  if (!mods.empty()) line["mods"] = mods;
  if (problem.group) line["group"] = group_json(problem);
  // No text is other than UTF-8, which dump would refuse: a mod's was checked when it was set.
  return line.dump(-1, ' ', /*ensure_ascii=*/true);
}

Status with_problem(const Status& status, const lathe_problem& problem) {
  if (status.code() != Code::not_cached) return status;
  const size_t end = std::min(status.text().find('\n'), status.text().size());
  return Status(status.code(),
                text(status.text().substr(0, end),
                     "; where there is a compiler, `lathe warm` makes it from this line:\n",
                     problem_text(problem), status.text().substr(end)));
}

Result<std::unique_ptr<lathe_problem>> parse_problem(std::string_view given) {
  LATHE_ASSIGN(const Json line, read_line_json(given));
  return parse_problem(line);
}

Result<std::unique_ptr<lathe_problem>> parse_problem(const LineJson& line) {
  LATHE_TRY(check_fields(line, "the line",
                         {"op", "tensors", "options", "alignment", "mods", kOlderMods, "group"}));
  if (line.contains("mods") && line.contains(kOlderMods)) {
    return invalid(text("the line has mods and ", kOlderMods, ", which is the older name of mods"));
  }
  const std::string operators = "one of " + operator_names();
  if (!line.contains("op")) return invalid("op is missing; allowed is " + operators);
  if (!line["op"].is_string()) return wrong("op", line["op"], operators);
  const auto asked = line["op"].get<std::string>();
  const Operator* op = find_operator(asked);
  if (!op) return invalid(no_such_operator(asked));
  if (!line.contains("tensors")) {
    return invalid("tensors is missing; allowed is {name: [dtype, [extents]]}");
  }
  auto problem = std::make_unique<lathe_problem>();
  problem->op = op;
  problem->options.resize(op->options.size());
  LATHE_TRY(for_each(line, "tensors", std::bind_front(read_tensor, problem.get())));
  LATHE_TRY(for_each(line, "options", std::bind_front(read_option, problem.get())));
  for (const char* name : {"mods", kOlderMods}) {
    LATHE_TRY(for_each(line, name, std::bind_front(read_mod, problem.get())));
  }
  if (line.contains("alignment")) {
    const Json& alignment = line["alignment"];
    if (!is_int64(alignment)) return wrong("alignment", alignment, "1, 2, 4, 8 or 16");
    LATHE_TRY(set_alignment(*problem, alignment.get<int64_t>()));
  }
  if (line.contains("group")) LATHE_TRY(read_group(problem.get(), line["group"]));
  return problem;
}

}  // namespace lathe
