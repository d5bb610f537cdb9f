// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a call may have is a list of choices, and the calls are their product. An operator's own
// rules say which of them are none: these are left out, as nobody can make such a call.
#include "ops/serving.h"

#include <algorithm>
#include <functional>
#include <set>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"
#include "ops/infer.h"
#include "ops/resolve.h"
#include "ops/serving_kinds.h"

namespace lathe {
namespace {

// More are a mistake: each takes a fraction of a millisecond.
constexpr size_t kMostTries = 1 << 16;

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// ---- extents
// -------------------------------------------------------------------------------------

using Known = std::map<std::string, std::vector<int64_t>, std::less<>>;

// The only value of a dim; kUnknown if there is none, or several.
int64_t one(const Known& known, std::string_view dim) {
  const auto found = known.find(dim);
  return found == known.end() || found->second.size() != 1 ? kUnknown : found->second.front();
}

void fill(Known* known, std::string_view dim, std::vector<int64_t> extents) {
  std::erase_if(extents, [](int64_t extent) { return extent < 0; });
  std::ranges::sort(extents);
  extents.erase(std::unique(extents.begin(), extents.end()), extents.end());
  if (!extents.empty()) known->emplace(dim, std::move(extents));
}

int64_t product(int64_t a, int64_t b) { return a < 0 || b < 0 ? kUnknown : a * b; }

// Fills what follows: as many value heads as heads, values as wide as keys, the channels of q, k
// and v, states of no more columns than a call needs.
Known extents_of(const ServedLayer& layer, const ServedCall& call) {
  Known known = layer.extents;
  const bool kda = known.contains("K");
  if (kda) {
    fill(&known, "HV", {one(known, "H")});
    fill(&known, "V", {one(known, "K")});
    const int64_t keys = product(one(known, "H"), one(known, "K"));
    const int64_t values = product(one(known, "HV"), one(known, "V"));
    fill(&known, "HV*K", {product(one(known, "HV"), one(known, "K"))});
    const int64_t all = keys < 0 || values < 0 ? kUnknown : 2 * keys + values;
    fill(&known, "D", call.split_channels ? std::vector{all, keys, values} : std::vector{all});
  }
  for (const std::string_view row : split(call.extents, ',')) {
    const size_t equals = row.find('=');
    fill(&known, row.substr(0, equals), {std::stoll(std::string(row.substr(equals + 1)))});
  }
  fill(&known, "DV", {one(known, "D")});
  if (const int64_t taps = one(known, "W"); taps > 0) {
    // A prefill's states have no room for drafts, or are given as a view without it.
    const int64_t drafts = call.decodes ? layer.drafts.most - 1 : 0;
    fill(&known, "LS", {taps - 1 + drafts});
  }
  return known;
}

// ---- choices
// --------------------------------------------------------------------------------------

// A choice sets something of a problem in one of several ways; how a tensor is declared comes after
// the options, which choose among its shapes.
using Set = std::function<Status(lathe_problem*)>;
using Choice = std::vector<Set>;

Set option_setter(std::string name, std::string value) {
  return [name = std::move(name), value = std::move(value)](lathe_problem* problem) {
    return set_option(problem, name.c_str(), OptionType::word, value);
  };
}

Set tensor_setter(const char* name, Dtype dtype, std::vector<int64_t> extents) {
  return [name, dtype, extents = std::move(extents)](lathe_problem* problem) {
    return declare(*problem, name, static_cast<int>(dtype), static_cast<int>(extents.size()),
                   extents.data());
  };
}

class CallChoices {
 public:
  CallChoices(const ServedLayer& layer, const ServedCall& call)
      : layer_(layer),
        call_(call),
        held_(find_operator(call.op)),
        op_(*held_),
        known_(extents_of(layer, call)) {
    for (const std::string_view name : split(call.with, ',')) with_.emplace_back(name);
    for (const std::string_view name : split(call.maybe, ',')) maybe_.emplace_back(name);
  }

  Result<std::vector<lathe_problem>> problems() const {
    std::vector<Choice> choices;
    Choice promises;
    for (const int64_t bytes : layer_.alignments) {
      promises.push_back(
          [bytes](lathe_problem* problem) { return set_alignment(*problem, bytes); });
    }
    choices.push_back(promises);
    for (const OptionInfo& option : op_.options) {
      Choice values = values_of(option);
      if (!values.empty()) choices.push_back(std::move(values));
    }
    for (size_t i = 0; i < op_.tensors.size(); ++i) {
      LATHE_ASSIGN(Choice forms, forms_of(op_.tensors[i]));
      if (!forms.empty()) choices.push_back(std::move(forms));
    }
    return product_of(choices);
  }

 private:
  // What the layer says of an option, else what serving does.
  Choice values_of(const OptionInfo& option) const {
    Choice out;
    if (listed(call_.unset, ',', option.name)) return out;
    const auto said = layer_.options.find(std::string_view(option.name));
    if (said != layer_.options.end()) {
      for (const std::string& value : said->second)
        out.push_back(option_setter(option.name, value));
      return out;
    }
    for (const std::string_view row : split(call_.options, ',')) {
      const size_t equals = row.find('=');
      if (row.substr(0, equals) != option.name) continue;
      for (const std::string_view value : split(row.substr(equals + 1), '|')) {
        out.push_back(option_setter(option.name, std::string(value)));
      }
    }
    return out;
  }

  std::vector<Dtype> dtypes_of(const TensorInfo& tensor) const {
    const auto said = layer_.dtypes.find(std::string_view(tensor.name));
    if (said != layer_.dtypes.end()) return said->second;
    std::string_view allowed = tensor.dtypes;
    if (allowed.starts_with('=')) {
      return dtypes_of(op_.tensors[find_tensor(op_, allowed.substr(1))]);
    }
    // States are float32 unless the layer says otherwise, whatever its activations are.
    const bool state = std::string_view(tensor.name) == "state_pool";
    if (!state && layer_.dtype && listed(allowed, '|', word(*layer_.dtype))) return {*layer_.dtype};
    const std::string_view first = split(allowed, '|').front();
    const auto found = std::ranges::find(kDtypes, first, &DtypeInfo::word);
    return {found->dtype};
  }

  // Says whether serving knows a dim; which of several shapes a tensor has depends on it.
  bool is_served(Dim dim) const {
    const bool several = layer_.drafts.most > 1;
    if (dim == Dim::T) return !call_.decodes || several;
    if (dim == Dim::spec) return several;
    if (dim == Dim::bytes) return layer_.options.contains("row_format");
    return true;
  }

  // Each way to declare a tensor; with none the call has none of it.
  Result<Choice> forms_of(const TensorInfo& tensor) const {
    Choice out;
    const std::string_view name = tensor.name;
    const bool input = tensor.role != Role::output && !tensor.given_if && !tensor.alias_of;
    if (!input || has(layer_.without, name)) return out;
    const bool needed = !tensor.is_optional || has(layer_.with, name) || has(with_, name);
    const bool optional = !needed && (has(layer_.maybe, name) || has(maybe_, name));
    if (!needed && !optional) return out;
    if (optional) out.push_back([](lathe_problem*) { return Status(); });
    const std::vector<Shape> shapes = parse_shapes(tensor.shape);
    std::set<int> ranks;  // shapes of one rank are told apart by an option
    for (const Shape& shape : shapes) {
      const auto served = [&](const Axis& axis) { return is_served(axis.dim); };
      const auto dims = std::span(shape.dims).first(shape.rank);
      if (shapes.size() > 1 && !std::ranges::all_of(dims, served)) continue;
      if (!ranks.insert(shape.rank).second) continue;
      LATHE_TRY(add_extents(tensor, shape, &out));
    }
    return out;
  }

  Status add_extents(const TensorInfo& tensor, const Shape& shape, Choice* out) const {
    std::vector<std::vector<int64_t>> all = {{}};
    for (const Axis& axis : std::span(shape.dims).first(shape.rank)) {
      std::vector<int64_t> extents = {kUnknown};
      // The extents of another shape of this rank are the option's to know.
      if (!info_of(axis.dim).varies && axis.dim != Dim::fixed) {
        const auto found = known_.find(std::string_view(name_of(axis.dim)));
        if (found == known_.end()) {
          return invalid(text("extent ", name_of(axis.dim), " of ", op_.name, "'s ", tensor.name,
                              " ", shape_text(shape), " is missing; allowed is a number: \"",
                              name_of(axis.dim), "\": N in extents"));
        }
        extents = found->second;
      }
      std::vector<std::vector<int64_t>> longer;
      for (const auto& begun : all) {
        for (const int64_t extent : extents) {
          longer.push_back(begun);
          longer.back().push_back(extent == kUnknown ? kUnknown : extent + axis.plus);
        }
      }
      all = std::move(longer);
    }
    for (const Dtype dtype : dtypes_of(tensor)) {
      for (const auto& extents : all) out->push_back(tensor_setter(tensor.name, dtype, extents));
    }
    return {};
  }

  Result<std::vector<lathe_problem>> product_of(const std::vector<Choice>& choices) const {
    size_t tries = 1;
    for (const Choice& choice : choices) {
      tries *= choice.size();
      if (tries <= kMostTries) continue;
      return invalid(text("the layer asks for more than ", kMostTries, " calls of ", op_.name,
                          "; name fewer tensors in maybe, or fewer values of its options, dtypes "
                          "and extents"));
    }
    std::vector<lathe_problem> out;
    Status refusal;
    for (size_t number = 0; number < tries; ++number) {
      lathe_problem problem;
      problem.op = held_;
      problem.options.resize(op_.options.size());
      Status made = make(choices, number, &problem);
      if (made.ok()) {
        out.push_back(std::move(problem));
        LATHE_TRY(add_declared(&out));
      } else {
        refusal = std::move(made);  // the last one's call has all that one may have
      }
    }
    if (out.empty()) return refusal;
    return out;
  }

  Status make(const std::vector<Choice>& choices, size_t number, lathe_problem* problem) const {
    for (const Choice& choice : choices) {
      LATHE_TRY(choice[number % choice.size()](problem));
      number /= choice.size();
    }
    LATHE_TRY(infer(problem, nullptr));
    return resolve(*problem).status();
  }

  // A program may declare what varies, which decides between kernels: how many new tokens there
  // are in decoding, how long and how many a prefill's sequences are. The operator has to take what
  // the layer says.
  Status add_declared(std::vector<lathe_problem>* out) const {
    const lathe_problem open = out->back();
    for (const int64_t tokens : call_.decodes ? every(layer_.drafts) : doubled(layer_.tokens)) {
      for (const int64_t sequences : {layer_.batch.least, layer_.batch.most}) {
        lathe_problem exact = open;
        if (!declare_lengths(tokens, sequences, &exact)) return {};
        const Status found = resolve(exact).status();
        if (!found.ok()) {
          return invalid(text(op_.name, " with ", tokens, " tokens of each of ", sequences,
                              " sequences is refused, and ", call_.decodes ? "drafts" : "tokens",
                              " and batch allow it: ", found.text()));
        }
        out->push_back(std::move(exact));
        if (call_.decodes) break;
      }
    }
    return {};
  }

  static std::vector<int64_t> every(const ServedRange& range) {
    std::vector<int64_t> out;
    for (int64_t each = range.least; each <= range.most; ++each) out.push_back(each);
    return out;
  }
  static std::vector<int64_t> doubled(const ServedRange& range) {
    std::vector<int64_t> out;
    for (int64_t each = range.least; each < range.most; each *= 2) out.push_back(each);
    out.push_back(range.most);
    return out;
  }

  // Returns false for a call that has no length of its own. Those of packed rows in decoding are
  // the device's to know.
  bool declare_lengths(int64_t tokens, int64_t sequences, lathe_problem* problem) const {
    bool found = false;
    for (Declared& declared : problem->tensors) {
      for (int d = 0; declared.given && d < declared.shape.rank; ++d) {
        const Dim dim = declared.shape.dims[d].dim;
        const bool length = dim == Dim::T || dim == Dim::Sq ||
                            (!call_.decodes && info_of(dim).axis != TokenAxis::none &&
                             info_of(dim).axis != TokenAxis::chunks);
        found = found || length;
        if (length) declared.extents[d] = tokens;
        if (dim == Dim::N && !call_.decodes) {
          declared.extents[d] = sequences + declared.shape.dims[d].plus;
        }
      }
    }
    return found;
  }

  const ServedLayer& layer_;
  const ServedCall& call_;
  const OperatorPointer held_;
  const Operator& op_;
  const Known known_;
  std::vector<std::string> with_, maybe_;
};

// ---- what no call has
// -----------------------------------------------------------------------------

std::string operators_of(std::span<const Operator* const> ops) {
  return comma_list(ops, [](const Operator* op) { return op->name; });
}

Status check_tensors(const ServedLayer& layer, std::span<const Operator* const> ops) {
  std::vector<std::pair<const char*, std::string>> named;
  for (const std::string& name : layer.with) named.emplace_back("with", name);
  for (const std::string& name : layer.maybe) named.emplace_back("maybe", name);
  for (const std::string& name : layer.without) named.emplace_back("without", name);
  for (const auto& [name, unused] : layer.dtypes) named.emplace_back("dtypes", name);
  for (const auto& [field, name] : named) {
    const auto knows = [&](const Operator* op) {
      const int found = find_tensor(*op, name);
      return found >= 0 && op->tensors[found].role != Role::output;
    };
    if (std::ranges::any_of(ops, knows)) continue;
    return invalid(
        text(field, " names ", in_quotes(name), "; allowed are the inputs of ", operators_of(ops)));
  }
  return {};
}

Status check_options(const ServedLayer& layer, std::span<const Operator* const> ops) {
  for (const auto& [name, unused] : layer.options) {
    const auto knows = [&](const Operator* op) { return find_option(*op, name) >= 0; };
    if (std::ranges::any_of(ops, knows)) continue;
    return invalid(
        text("options has ", in_quotes(name), "; allowed are the options of ", operators_of(ops)));
  }
  return {};
}

}  // namespace

Status check_names(const ServedLayer& said) {
  std::vector<const Operator*> ops;
  if (said.kind.empty()) {
    for (const Operator& op : operators()) ops.push_back(&op);
  } else {
    ServedCall own;
    LATHE_ASSIGN(const auto calls, calls_of(said.kind, &own));
    for (const ServedCall& call : calls)
      ops.push_back(find_operator(call.op).get());  // lathe's own
  }
  LATHE_TRY(check_tensors(said, ops));
  return check_options(said, ops);
}

Result<std::vector<lathe_problem>> problems_of_layer(const ServedLayer& layer) {
  ServedCall own;
  LATHE_ASSIGN(const auto calls, calls_of(layer.kind, &own));
  std::vector<lathe_problem> out;
  for (const ServedCall& call : calls) {
    LATHE_ASSIGN(std::vector<lathe_problem> made, CallChoices(layer, call).problems());
    std::ranges::move(made, std::back_inserter(out));
  }
  return out;
}

}  // namespace lathe
