// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe from C++20: owners of the C API's objects, tensors of spans, and calls whose answer is a
// value or a failure. Header only, above lathe.h, which states the rules.
//
//   lathe::Context context = lathe::Context::open().value();
//   lathe::Buffer<float> x = context.buffer<float>(host).value(), y = ...;
//   lathe::Kernel kernel = lathe::kernel("scale.cuh").value();
//   kernel.set("scale", "2");
//   lathe::Expected<> done = kernel(context, x.tensor({rows, width}), y.tensor({rows, width}));
//   if (!done) std::cerr << done.failure().text;
//
// Nothing here throws but value() of a failure, and what the standard library does without memory.
#pragma once

#include <lathe.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lathe {

// What the library answered, and its sentence.
struct Failure {
  lathe_status status = LATHE_OK;
  std::string text;
};

// A failure, as value() throws it.
class Error : public std::runtime_error {
 public:
  explicit Error(const Failure& failure)
      : std::runtime_error(std::string(lathe_status_name(failure.status)) + ": " + failure.text),
        status(failure.status) {}
  lathe_status status;
};

// A value or a failure.
template <typename T = std::monostate>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : held_(std::move(value)) {}
  Expected(Failure failure) : held_(std::move(failure)) {}

  bool has_value() const { return std::holds_alternative<T>(held_); }
  explicit operator bool() const { return has_value(); }
  // Only where there is none.
  const Failure& failure() const { return std::get<Failure>(held_); }
  T& operator*() { return std::get<T>(held_); }
  T* operator->() { return &std::get<T>(held_); }
  T& value() & { return require(), std::get<T>(held_); }
  T value() && { return require(), std::move(std::get<T>(held_)); }

 private:
  void require() const {
    if (!has_value()) throw Error(failure());
  }
  std::variant<T, Failure> held_;
};

// Returns the answer of a call as such.
inline Expected<> answer(lathe_status status) {
  if (status == LATHE_OK) return std::monostate();
  return Failure{status, lathe_last_error()};
}

namespace detail {
template <auto kDestroy>
struct Destroy {
  template <typename T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
}  // namespace detail

using ProblemHandle = std::unique_ptr<lathe_problem, detail::Destroy<lathe_problem_destroy>>;
using PlanHandle = std::unique_ptr<lathe_plan, detail::Destroy<lathe_plan_destroy>>;
using OperatorHandle = std::unique_ptr<lathe_operator, detail::Destroy<lathe_operator_destroy>>;
using ContextHandle = std::unique_ptr<lathe_context, detail::Destroy<lathe_context_destroy>>;

// The dtype of a C++ type. 16-bit and 8-bit floats are structs of the caller's: they name theirs.
template <typename T>
constexpr lathe_dtype dtype_of() {
  using Type = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Type, float>) return LATHE_F32;
  if constexpr (std::is_same_v<Type, int32_t>) return LATHE_I32;
  if constexpr (std::is_same_v<Type, int64_t>) return LATHE_I64;
  if constexpr (std::is_same_v<Type, uint8_t>) return LATHE_U8;
  static_assert(std::is_same_v<Type, float> || std::is_same_v<Type, int32_t> ||
                    std::is_same_v<Type, int64_t> || std::is_same_v<Type, uint8_t>,
                "give the dtype of this type");
}

// A view of device memory, without gaps. It owns nothing but its shape.
struct Tensor {
  void* data = nullptr;
  lathe_dtype dtype = LATHE_F32;
  std::vector<int64_t> shape;

  // Returns DLPack's description, which lives as long as this view stays where it is.
  DLTensor dl(int ordinal) const {
    static constexpr DLDataType kTypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1},
                                            {kDLInt, 32, 1},   {kDLInt, 64, 1},   {kDLUInt, 8, 1},
                                            {kDLUInt, 8, 1}};
    return {data, {kDLCUDA, ordinal}, static_cast<int32_t>(shape.size()), kTypes[dtype],
            const_cast<int64_t*>(shape.data()), nullptr, 0};
  }
};

// Device memory of a context, given back at the end; the context outlives it.
template <typename T>
class Buffer {
 public:
  Buffer(lathe_context* context, void* data, size_t count)
      : context_(context), data_(data), count_(count) {}
  Buffer(Buffer&& other) noexcept
      : context_(other.context_), data_(std::exchange(other.data_, nullptr)), count_(other.count_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(context_, other.context_), std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) lathe_free(context_, data_);
  }

  size_t size() const { return count_; }
  Expected<> upload(std::span<const T> from, void* stream = nullptr) {
    if (from.size() != count_) return Failure{LATHE_INVALID_ARGUMENT, "the span has another size"};
    return answer(lathe_copy_to_device(context_, data_, from.data(), from.size_bytes(), stream));
  }
  Expected<> download(std::span<T> to, void* stream = nullptr) const {
    if (to.size() != count_) return Failure{LATHE_INVALID_ARGUMENT, "the span has another size"};
    return answer(lathe_copy_to_host(context_, to.data(), data_, to.size_bytes(), stream));
  }
  // A view of the whole, whose elements are as many as the shape has.
  Tensor tensor(std::vector<int64_t> shape, lathe_dtype dtype = dtype_of<T>()) const {
    return {data_, dtype, std::move(shape)};
  }

 private:
  lathe_context* context_;
  void* data_;
  size_t count_;
};

// A device and a cache. Any thread may use it.
class Context {
 public:
  static Expected<Context> open(const lathe_context_options& options = LATHE_CONTEXT_OPTIONS_INIT) {
    lathe_context* made = nullptr;
    if (auto done = answer(lathe_context_create(&made, &options)); !done) return done.failure();
    lathe_context_info info = {};
    info.size = sizeof info;
    Context out{ContextHandle(made), 0};
    if (auto done = answer(lathe_context_get_info(made, &info)); !done) return done.failure();
    out.ordinal_ = info.ordinal;
    return out;
  }
  lathe_context* get() const { return handle_.get(); }
  int ordinal() const { return ordinal_; }

  template <typename T>
  Expected<Buffer<T>> buffer(size_t count) const {
    void* data = nullptr;
    auto done = answer(lathe_malloc(get(), &data, count > 0 ? count * sizeof(T) : 1));
    if (!done) return done.failure();
    return Buffer<T>(get(), data, count);
  }
  template <typename T>
  Expected<Buffer<T>> buffer(std::span<const T> from) const {
    auto made = buffer<T>(from.size());
    if (!made) return made;
    if (auto done = made->upload(from); !done) return done.failure();
    return made;
  }

 private:
  Context(ContextHandle handle, int ordinal) : handle_(std::move(handle)), ordinal_(ordinal) {}
  ContextHandle handle_;
  int ordinal_ = 0;
};

// Tensors by name, in the order of a plan's slots, and what a run needs besides.
class Plan {
 public:
  static Expected<Plan> make(const Context& context, const lathe_problem* problem) {
    lathe_plan* made = nullptr;
    if (auto done = answer(lathe_plan_create(&made, context.get(), problem)); !done) {
      return done.failure();
    }
    return Plan(context, PlanHandle(made));
  }
  lathe_plan* get() const { return handle_.get(); }

  // Enqueues a run and waits for it if it needs a workspace, which goes afterwards.
  Expected<> run(std::span<const std::pair<std::string, Tensor>> tensors, void* stream = nullptr) const {
    std::vector<DLTensor> views(tensors.size());
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(get()), nullptr);
    for (size_t i = 0; i < tensors.size(); ++i) {
      size_t slot = 0;
      auto found = answer(lathe_plan_slot(get(), tensors[i].first.c_str(), &slot));
      if (!found) return found;
      views[i] = tensors[i].second.dl(ordinal_);
      slots[slot] = &views[i];
    }
    size_t bytes = 0;
    if (auto done = answer(lathe_plan_workspace(get(), slots.data(), nullptr, &bytes)); !done) {
      return done;
    }
    if (bytes == 0) return answer(lathe_plan_run(get(), slots.data(), nullptr, 0, stream));
    void* data = nullptr;
    if (auto done = answer(lathe_malloc(context_, &data, bytes)); !done) return done;
    const Buffer<uint8_t> workspace(context_, data, bytes);
    auto done = answer(lathe_plan_run(get(), slots.data(), data, bytes, stream));
    if (!done) return done;
    return answer(lathe_stream_synchronize(context_, stream));
  }

 private:
  Plan(const Context& context, PlanHandle handle)
      : context_(context.get()), ordinal_(context.ordinal()), handle_(std::move(handle)) {}
  lathe_context* context_;
  int ordinal_;
  PlanHandle handle_;
};

// A kernel of one's own, which is called like a function.
class Kernel {
 public:
  static Expected<Kernel> parse(std::string_view text, const std::string& file = "kernel.cuh") {
    lathe_operator* made = nullptr;
    auto done = answer(lathe_operator_parse(&made, text.data(), text.size(), file.c_str()));
    if (!done) return done.failure();
    return Kernel(OperatorHandle(made));
  }
  const lathe_operator_info& table() const { return *lathe_operator_describe(handle_.get()); }
  // Sets an option for the calls from now on.
  Kernel& set(const std::string& option, const std::string& value) {
    options_[option] = value;
    return *this;
  }

  // Makes a plan for tensors of these dtypes and shapes; extents that may vary are left open. A call
  // makes one each time: whoever calls often keeps a plan.
  Expected<Plan> plan(const Context& context,
                      std::span<const std::pair<std::string, Tensor>> tensors) const {
    lathe_problem* made = nullptr;
    if (auto done = answer(lathe_problem_create(&made, table().name)); !done) return done.failure();
    const ProblemHandle problem(made);
    for (const auto& [name, tensor] : tensors) {
      auto done = answer(lathe_problem_tensor(made, name.c_str(), tensor.dtype,
                                              static_cast<int>(tensor.shape.size()),
                                              tensor.shape.data()));
      if (!done) return done.failure();
    }
    for (const auto& [option, value] : options_) {
      auto done = answer(lathe_problem_set_string(made, option.c_str(), value.c_str()));
      if (!done) return done.failure();
    }
    if (auto done = answer(lathe_problem_open(made)); !done) return done.failure();
    return Plan::make(context, made);
  }

  // Runs once. The tensors are the description's, in its order, those that are not optional.
  template <typename... Tensors>
  Expected<> operator()(const Context& context, const Tensors&... tensors) const {
    std::vector<std::pair<std::string, Tensor>> named;
    size_t next = 0;
    (named.emplace_back(name(&next), Tensor(tensors)), ...);
    auto made = plan(context, named);
    if (!made) return made.failure();
    return made->run(named);
  }

 private:
  explicit Kernel(OperatorHandle handle) : handle_(std::move(handle)) {}
  std::string name(size_t* next) const {
    const lathe_operator_info& info = table();
    while (*next < info.tensor_count && info.tensors[*next].optional) ++*next;
    return *next < info.tensor_count ? info.tensors[(*next)++].name : "a tensor too many";
  }
  OperatorHandle handle_;
  std::map<std::string, std::string> options_;
};

// Reads a kernel of one's own from a file.
inline Expected<Kernel> kernel(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Failure{LATHE_INVALID_ARGUMENT, "the kernel " + path + " cannot be read"};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return Kernel::parse(text, path);
}

}  // namespace lathe
