// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe.hpp for Node: contexts, buffers of float32 and int32 on the device, operators. Values that
// JavaScript holds keep what they need alive; errors are thrown with lathe's own sentences.
#include <node_api.h>

#include <lathe.hpp>

namespace {

using Shared = std::shared_ptr<lathe::Context>;
struct DeviceBuffer {
  Shared context;  // outlives the buffer: members end in reverse order
  std::variant<lathe::Buffer<float>, lathe::Buffer<int32_t>> buffer;
};
struct DeviceOperator {
  Shared context;
  lathe::Operator op;
  std::shared_ptr<lathe::Kernel> kernel = {};  // of the caller's own text, which it keeps
};

// Tells objects of one kind from those of others.
template <typename T>
struct Tagged {
  static inline const int kTag = 0;
  const int* tag = &kTag;
  T value;
};

// One call from JavaScript: its arguments, and what it answers.
struct Call {
  napi_env env;
  size_t count = 4;
  napi_value arguments[4] = {};

  Call(napi_env of, napi_callback_info info) : env(of) {
    napi_get_cb_info(env, info, &count, arguments, nullptr, nullptr);
  }
  std::string text(napi_value value) const {
    size_t length = 0;
    if (napi_get_value_string_utf8(env, value, nullptr, 0, &length) != napi_ok) return {};
    std::string text(length, '\0');
    napi_get_value_string_utf8(env, value, text.data(), length + 1, &length);
    return text;
  }
  // Null, with an exception, if it is no such thing.
  template <typename T>
  T* held(napi_value value) const {
    void* data = nullptr;
    const bool any = napi_get_value_external(env, value, &data) == napi_ok;
    auto* object = static_cast<Tagged<T>*>(data);
    if (any && object->tag == &Tagged<T>::kTag) return &object->value;
    napi_throw_type_error(env, nullptr, "lathe: an object of another kind was expected");
    return nullptr;
  }
  template <typename T>
  napi_value hold(T value) const {
    napi_value external = nullptr;
    const auto end = [](napi_env, void* data, void*) { delete static_cast<Tagged<T>*>(data); };
    napi_create_external(env, new Tagged<T>{.value = std::move(value)}, end, nullptr, &external);
    return external;
  }
  napi_value fail(const lathe::Error& error) const {
    napi_throw_error(env, nullptr, error.text.c_str());
    return nullptr;
  }
  // Calls f(key, value) for each property, until it returns false.
  template <typename F>
  void each(napi_value object, const F& f) const {
    napi_value keys = nullptr;
    uint32_t size = 0;
    if (napi_get_property_names(env, object, &keys) != napi_ok) return;
    napi_get_array_length(env, keys, &size);
    for (uint32_t i = 0; i < size; ++i) {
      napi_value key = nullptr, value = nullptr;
      napi_get_element(env, keys, i, &key);
      napi_get_property(env, object, key, &value);
      if (!f(text(key), value)) return;
    }
  }
  std::vector<int64_t> shape(napi_value array) const {
    uint32_t rank = 0;
    napi_get_array_length(env, array, &rank);
    std::vector<int64_t> shape(rank);
    for (uint32_t i = 0; i < rank; ++i) {
      napi_value extent = nullptr;
      napi_get_element(env, array, i, &extent);
      napi_get_value_int64(env, extent, &shape[i]);
    }
    return shape;
  }
};

napi_value context(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  auto made = lathe::Context::make();
  if (!made) return call.fail(made.error());
  return call.hold(std::make_shared<lathe::Context>(std::move(*made)));
}

// upload(context, Float32Array or Int32Array)
napi_value upload(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  const auto* context = call.held<Shared>(call.arguments[0]);
  napi_typedarray_type type{};
  size_t count = 0;
  void* data = nullptr;
  if (!context) return nullptr;
  if (napi_get_typedarray_info(env, call.arguments[1], &type, &count, &data, nullptr, nullptr) !=
          napi_ok ||
      (type != napi_float32_array && type != napi_int32_array)) {
    napi_throw_type_error(env, nullptr, "lathe: upload takes a Float32Array or an Int32Array");
    return nullptr;
  }
  const auto copy = [&]<typename T>(T*) -> napi_value {
    auto buffer = (*context)->upload(std::span<const T>(static_cast<const T*>(data), count));
    if (!buffer) return call.fail(buffer.error());
    return call.hold(DeviceBuffer{*context, std::move(*buffer)});
  };
  if (type == napi_int32_array) return copy(static_cast<int32_t*>(nullptr));
  return copy(static_cast<float*>(nullptr));
}

// download(buffer): an array of its own.
napi_value download(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  const auto* held = call.held<DeviceBuffer>(call.arguments[0]);
  if (!held) return nullptr;
  return std::visit(
      [&]<typename T>(const lathe::Buffer<T>& buffer) -> napi_value {
        const auto values = buffer.download();
        if (!values) return call.fail(values.error());
        napi_value memory = nullptr, array = nullptr;
        void* data = nullptr;
        napi_create_arraybuffer(env, values->size() * sizeof(T), &data, &memory);
        std::copy(values->begin(), values->end(), static_cast<T*>(data));
        const auto type = std::is_same_v<T, float> ? napi_float32_array : napi_int32_array;
        napi_create_typedarray(env, type, values->size(), memory, 0, &array);
        return array;
      },
      held->buffer);
}

// operator(context, name, {option: text})
napi_value make_operator(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  const auto* context = call.held<Shared>(call.arguments[0]);
  if (!context) return nullptr;
  DeviceOperator made{*context, lathe::Operator(**context, call.text(call.arguments[1]))};
  call.each(call.arguments[2], [&](const std::string& option, napi_value value) {
    made.op.set(option, call.text(value));
    return true;
  });
  return call.hold(std::move(made));
}

// kernel(context, file): an operator of a kernel's file
napi_value make_kernel(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  const auto* context = call.held<Shared>(call.arguments[0]);
  if (!context) return nullptr;
  auto kernel = lathe::kernel(call.text(call.arguments[1]));
  if (!kernel) return call.fail(kernel.error());
  auto kept = std::make_shared<lathe::Kernel>(std::move(*kernel));
  return call.hold(DeviceOperator{*context, kept->in(**context), kept});
}

// run(operator, {name: [buffer, shape]})
napi_value run(napi_env env, napi_callback_info info) {
  const Call call(env, info);
  auto* held = call.held<DeviceOperator>(call.arguments[0]);
  if (!held) return nullptr;
  std::vector<lathe::Named> tensors;
  bool good = true;
  call.each(call.arguments[1], [&](const std::string& name, napi_value value) {
    napi_value buffer = nullptr, shape = nullptr;
    napi_get_element(env, value, 0, &buffer);
    napi_get_element(env, value, 1, &shape);
    const auto* tensor = call.held<DeviceBuffer>(buffer);
    if (!(good = tensor != nullptr)) return false;
    std::visit(
        [&](const auto& each) {
          auto view = each.shaped(call.shape(shape));
          int64_t elements = 1;
          for (const int64_t extent : view.shape) elements *= extent;
          good = elements == static_cast<int64_t>(each.size());
          tensors.push_back({name, std::move(view)});
        },
        tensor->buffer);
    if (!good)
      napi_throw_range_error(env, nullptr, (name + ": the buffer has another size").c_str());
    return good;
  });
  if (!good) return nullptr;
  const auto ran = held->op(tensors);
  if (!ran) return call.fail(ran.error());
  return nullptr;
}

napi_value start(napi_env env, napi_value exports) {
  const std::pair<const char*, napi_callback> functions[] = {
      {"context", context},        {"upload", upload},      {"download", download},
      {"operator", make_operator}, {"kernel", make_kernel}, {"run", run}};
  for (const auto& [name, function] : functions) {
    napi_value value = nullptr;
    napi_create_function(env, name, NAPI_AUTO_LENGTH, function, nullptr, &value);
    napi_set_named_property(env, exports, name, value);
  }
  return exports;
}

}  // namespace

NAPI_MODULE(lathe, start)
