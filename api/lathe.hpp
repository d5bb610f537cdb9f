// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe.h for C++20: objects that free what they own, spans, and results that hold a value or why
// there is none. It adds no rules: what lathe.h says of units, errors and threads holds here.
//
//   auto context = lathe::Context::make({.device = LATHE_DEVICE_SIM}).value();
//   auto x = context.upload(std::span(values)).value();        // a Buffer<float>
//   auto y = context.allocate<float>(x.size()).value();
//   lathe::Operator conv(context, "causal_conv1d");
//   conv.set("activation", "silu");
//   lathe::Result<void> ran = conv({{"x", x.shaped({1, T, D})}, {"weight", w.shaped({D, 4})},
//                                   {"y", y.shaped({1, T, D})}});
//   if (!ran) std::cerr << ran.error().text;
//
// No function throws but Result::value of a result that has none, and the allocations of the
// standard library.
#pragma once

#include <lathe.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lathe {

struct Error {
  lathe_status status = LATHE_OK;
  std::string text;  // what was wrong, the value found, the values allowed
};

// Holds a value, or the error in its place.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  // The behaviour is undefined without a value; value() throws std::runtime_error instead.
  T& operator*() & { return *std::get_if<0>(&state_); }
  const T& operator*() const& { return *std::get_if<0>(&state_); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }
  T&& value() && { return std::move(checked()); }
  T& value() & { return checked(); }
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  T& checked() {
    if (!has_value()) throw std::runtime_error(error().text);
    return **this;
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const { return error_.status == LATHE_OK; }
  explicit operator bool() const { return has_value(); }
  void value() const {
    if (!has_value()) throw std::runtime_error(error_.text);
  }
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// Takes the calling thread's error if a call of lathe.h failed.
inline Result<void> result_of(lathe_status status) {
  if (status == LATHE_OK) return {};
  return Error{status, std::string(lathe_status_name(status)) + ": " + lathe_last_error()};
}

// Elements that C++20 has no types for; their bits are those of the device's types.
struct half {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};
struct e4m3 {
  uint8_t bits;
};

template <typename T>
inline constexpr bool kIsElement = false;
template <typename T>
inline constexpr lathe_dtype kDtype = LATHE_F32;
#define LATHE_HPP_ELEMENT(Type, dtype)           \
  template <>                                    \
  inline constexpr bool kIsElement<Type> = true; \
  template <>                                    \
  inline constexpr lathe_dtype kDtype<Type> = dtype;
LATHE_HPP_ELEMENT(float, LATHE_F32)
LATHE_HPP_ELEMENT(half, LATHE_F16)
LATHE_HPP_ELEMENT(bfloat16, LATHE_BF16)
LATHE_HPP_ELEMENT(int32_t, LATHE_I32)
LATHE_HPP_ELEMENT(int64_t, LATHE_I64)
LATHE_HPP_ELEMENT(e4m3, LATHE_F8_E4M3)
LATHE_HPP_ELEMENT(uint8_t, LATHE_U8)
#undef LATHE_HPP_ELEMENT
template <typename T>
concept Element = kIsElement<T>;

// A view of device memory, which others own. Strides are in elements; none: contiguous rows.
struct Tensor {
  void* data = nullptr;
  lathe_dtype dtype = LATHE_F32;
  std::vector<int64_t> shape, strides;

  // The struct lends its shape and strides: it outlives what is returned.
  DLTensor dl() const {
    constexpr DLDataType kTypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1},
                                     {kDLInt, 32, 1},   {kDLInt, 64, 1},   {kDLUInt, 8, 1},
                                     {kDLUInt, 8, 1}};
    return {data,
            {kDLCUDA, 0},
            static_cast<int32_t>(shape.size()),
            kTypes[dtype],
            const_cast<int64_t*>(shape.data()),
            strides.empty() ? nullptr : const_cast<int64_t*>(strides.data()),
            0};
  }
};

// Owns device memory of `size()` elements; the context outlives it.
template <Element T>
class Buffer {
 public:
  Buffer(lathe_context* context, void* data, size_t size)
      : data_(data, Free{context}), size_(size) {}

  T* data() const { return static_cast<T*>(data_.get()); }
  size_t size() const { return size_; }
  Tensor shaped(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) const {
    return {data_.get(), kDtype<T>, std::move(shape), std::move(strides)};
  }
  // Returns when the elements have arrived, behind what `stream` was given before.
  Result<std::vector<T>> download(void* stream = nullptr) const {
    std::vector<T> values(size_);
    const auto copied = result_of(lathe_copy_to_host(data_.get_deleter().context, values.data(),
                                                     data(), size_ * sizeof(T), stream));
    if (!copied) return copied.error();
    return values;
  }

 private:
  struct Free {
    lathe_context* context;
    void operator()(void* data) const { lathe_free(context, data); }
  };
  std::unique_ptr<void, Free> data_;
  size_t size_;
};

struct ContextOptions {
  lathe_device_kind device = LATHE_DEVICE_DEFAULT;
  int ordinal = 0;
  std::string arch = {}, cache_dir = {}, family = {};  // empty: the default
};

// One device and one cache; any thread may use it. It outlives whatever was made with it.
class Context {
 public:
  static Result<Context> make(const ContextOptions& options = {}) {
    const auto text = [](const std::string& s) { return s.empty() ? nullptr : s.c_str(); };
    lathe_context_options raw = LATHE_CONTEXT_OPTIONS_INIT;
    raw.device = options.device, raw.ordinal = options.ordinal;
    raw.arch = text(options.arch), raw.cache_dir = text(options.cache_dir);
    raw.family = text(options.family);
    lathe_context* context = nullptr;
    const auto made = result_of(lathe_context_create(&context, &raw));
    if (!made) return made.error();
    return Context(context);
  }
  lathe_context* get() const { return context_.get(); }

  template <Element T>
  Result<Buffer<T>> allocate(size_t size) const {
    void* data = nullptr;
    const auto made = result_of(lathe_malloc(get(), &data, size * sizeof(T)));
    if (!made) return made.error();
    return Buffer<T>(get(), data, size);
  }
  template <Element T>
  Result<Buffer<T>> upload(std::span<const T> values, void* stream = nullptr) const {
    auto buffer = allocate<T>(values.size());
    if (!buffer) return buffer;
    const auto copied = result_of(
        lathe_copy_to_device(get(), buffer->data(), values.data(), values.size_bytes(), stream));
    if (!copied) return copied.error();
    return buffer;
  }
  template <Element T>
  Result<Buffer<T>> upload(const std::vector<T>& values, void* stream = nullptr) const {
    return upload(std::span<const T>(values), stream);
  }

 private:
  explicit Context(lathe_context* context) : context_(context) {}
  struct Destroy {
    void operator()(lathe_context* context) const { lathe_context_destroy(context); }
  };
  std::unique_ptr<lathe_context, Destroy> context_;
};

// What is asked of an operator: the tensors that there are, and options.
class Problem {
 public:
  static Result<Problem> make(const std::string& op) {
    lathe_problem* problem = nullptr;
    const auto made = result_of(lathe_problem_create(&problem, op.c_str()));
    if (!made) return made.error();
    return Problem(problem);
  }
  lathe_problem* get() const { return problem_.get(); }

  // -1: varies from run to run.
  Result<void> tensor(const std::string& name, lathe_dtype dtype, std::span<const int64_t> shape) {
    return result_of(lathe_problem_tensor(get(), name.c_str(), dtype,
                                          static_cast<int>(shape.size()), shape.data()));
  }
  // Any option may be given as text: "1", "silu".
  Result<void> set(const std::string& option, const std::string& value) {
    return result_of(lathe_problem_set_string(get(), option.c_str(), value.c_str()));
  }
  // Leaves open whatever may vary without a new kernel.
  Result<void> open() { return result_of(lathe_problem_open(get())); }
  Result<std::string> text() const {
    size_t needed = 0;
    auto got = result_of(lathe_problem_text(get(), nullptr, 0, &needed));
    if (!got) return got.error();
    std::string line(needed, '\0');
    got = result_of(lathe_problem_text(get(), line.data(), line.size(), &needed));
    if (!got) return got.error();
    line.resize(needed - 1);
    return line;
  }

 private:
  explicit Problem(lathe_problem* problem) : problem_(problem) {}
  struct Destroy {
    void operator()(lathe_problem* problem) const { lathe_problem_destroy(problem); }
  };
  std::unique_ptr<lathe_problem, Destroy> problem_;
};

// The kernels of a problem, compiled or loaded; immutable, for any thread.
class Plan {
 public:
  static Result<Plan> make(const Context& context, const Problem& problem) {
    lathe_plan* plan = nullptr;
    const auto made = result_of(lathe_plan_create(&plan, context.get(), problem.get()));
    if (!made) return made.error();
    return Plan(plan);
  }
  lathe_plan* get() const { return plan_.get(); }

  Result<size_t> slot(const std::string& name) const {
    size_t slot = 0;
    const auto found = result_of(lathe_plan_slot(get(), name.c_str(), &slot));
    if (!found) return found.error();
    return slot;
  }
  Result<size_t> workspace(std::span<const DLTensor* const> slots) const {
    size_t bytes = 0;
    const auto got = result_of(lathe_plan_workspace(get(), slots.data(), nullptr, &bytes));
    if (!got) return got.error();
    return bytes;
  }
  // Enqueues the work: no allocation, lock, file or wait. A CUDA graph may capture it.
  Result<void> run(std::span<const DLTensor* const> slots, void* workspace, size_t bytes,
                   void* stream = nullptr) const {
    return result_of(lathe_plan_run(get(), slots.data(), workspace, bytes, stream));
  }

 private:
  explicit Plan(lathe_plan* plan) : plan_(plan) {}
  struct Destroy {
    void operator()(lathe_plan* plan) const { lathe_plan_destroy(plan); }
  };
  std::unique_ptr<lathe_plan, Destroy> plan_;
};

struct Named {
  std::string name;
  Tensor tensor;
};

// An operator that is called with tensors. It makes a plan for each kind of call, keeps it and its
// workspace, and serves other lengths with the same plan. For one thread and one stream at a time;
// whoever must not allocate in a call makes a Plan.
class Operator {
 public:
  Operator(const Context& context, std::string op) : context_(&context), op_(std::move(op)) {}

  // Any option as text; it holds for the calls that follow.
  Operator& set(const std::string& option, const std::string& value) {
    options_[option] = value;
    return *this;
  }

  // Inputs, and the outputs that are wanted, in any order.
  Result<void> operator()(std::span<const Named> tensors, void* stream = nullptr) {
    auto problem = declare(tensors);
    if (!problem) return problem.error();
    auto line = problem->text();
    if (!line) return line.error();
    auto found = plans_.find(*line);
    if (found == plans_.end()) {
      auto plan = Plan::make(*context_, *problem);
      if (!plan) return plan.error();
      found = plans_.emplace(std::move(*line), Kept{std::move(*plan), {}}).first;
    }
    return run(found->second, tensors, stream);
  }
  Result<void> operator()(std::initializer_list<Named> tensors, void* stream = nullptr) {
    return (*this)(std::span<const Named>(tensors.begin(), tensors.size()), stream);
  }

 private:
  struct Kept {
    Plan plan;
    // The last one is the largest. Runs that are under way may use the others.
    std::vector<Buffer<uint8_t>> workspaces;
  };

  Result<Problem> declare(std::span<const Named> tensors) const {
    auto problem = Problem::make(op_);
    if (!problem) return problem;
    for (const auto& [option, value] : options_) {
      if (auto set = problem->set(option, value); !set) return set.error();
    }
    for (const auto& [name, tensor] : tensors) {
      if (auto set = problem->tensor(name, tensor.dtype, tensor.shape); !set) return set.error();
    }
    if (auto opened = problem->open(); !opened) return opened.error();
    return problem;
  }

  Result<void> run(Kept& kept, std::span<const Named> tensors, void* stream) const {
    std::vector<DLTensor> views(tensors.size());
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(kept.plan.get()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto slot = kept.plan.slot(tensors[i].name);
      if (!slot) return slot.error();
      views[i] = tensors[i].tensor.dl();
      slots[*slot] = &views[i];
    }
    const auto bytes = kept.plan.workspace(slots);
    if (!bytes) return bytes.error();
    const bool enough = !kept.workspaces.empty() && kept.workspaces.back().size() >= *bytes;
    if (*bytes > 0 && !enough) {
      auto larger = context_->allocate<uint8_t>(*bytes + *bytes / 2);
      if (!larger) return larger.error();
      kept.workspaces.push_back(std::move(*larger));
    }
    void* workspace = kept.workspaces.empty() ? nullptr : kept.workspaces.back().data();
    const size_t size = kept.workspaces.empty() ? 0 : kept.workspaces.back().size();
    return kept.plan.run(slots, workspace, size, stream);
  }

  const Context* context_;
  std::string op_;
  std::map<std::string, std::string> options_;
  std::map<std::string, Kept> plans_;
};

}  // namespace lathe
