-- SPDX-FileCopyrightText: 2026 The lathe authors
-- SPDX-License-Identifier: Apache-2.0
-- A causal convolution, causal attention and a kernel of one's own, each held against its formula in double.
local ffi, lathe = require "ffi", require "lathe"
local context = lathe.context()

local function values(count, step)
  local values = ffi.new("float[?]", count)
  for i = 0, count - 1 do values[i] = i * step % 101 / 50 - 1 end
  return values, context:upload("float", values, count)
end

local function compare(what, buffer, expected)
  local found, worst = buffer:download(), 0
  for i = 0, buffer.count - 1 do worst = math.max(worst, math.abs(found[i] - expected(i))) end
  print(("%s: largest error %.1e"):format(what, worst))
  assert(worst < 1e-5, what .. " is wrong")
end

local function convolution()
  local T, D, W = 100, 64, 4
  local plan = context:plan("causal_conv1d", {
    {"x", "float", {-1, -1, D}}, {"weight", "float", {D, W}}, {"y", "float", {-1, -1, D}},
  }, {activation = "silu"})
  local x, on_x = values(T * D, 37)
  local weight, on_weight = values(D * W, 53)
  local y = context:allocate("float", T * D)
  plan:run {x = {on_x, {1, T, D}}, weight = {on_weight, {D, W}}, y = {y, {1, T, D}}}
  compare("causal_conv1d", y, function(i)
    local row, channel, z = math.floor(i / D), i % D, 0
    for tap = math.max(0, W - 1 - row), W - 1 do
      z = z + weight[channel * W + tap] * x[i + (tap + 1 - W) * D]
    end
    return z / (1 + math.exp(-z))
  end)
end

local function attention()
  local T, D, tensors = 48, 32, {{"lse", "float", {-1, 1, -1}}}
  for _, name in ipairs {"q", "k", "v", "out"} do
    tensors[#tensors + 1] = {name, "float", {-1, -1, 1, D}}
  end
  local plan = context:plan("flash_attention", tensors, {causal = "1"})
  local q, on_q = values(T * D, 37)
  local k, on_k = values(T * D, 29)
  local v, on_v = values(T * D, 53)
  local out, lse, shape = context:allocate("float", T * D), context:allocate("float", T), {1, T, 1, D}
  plan:run {q = {on_q, shape}, k = {on_k, shape}, v = {on_v, shape}, out = {out, shape},
            lse = {lse, {1, 1, T}}}
  compare("flash_attention", out, function(i)
    local row, sum, total = math.floor(i / D), 0, 0
    for j = 0, row do
      local score = 0
      for c = 0, D - 1 do score = score + q[row * D + c] * k[j * D + c] end
      local weight = math.exp(score / math.sqrt(D))
      sum, total = sum + weight, total + weight * v[j * D + i % D]
    end
    return total / sum
  end)
end

local function own_kernel()
  local op, name = lathe.kernel("../../own_kernels/add.cuh")
  local tensors = {}
  for i, tensor in ipairs {"x", "y", "z"} do tensors[i] = {tensor, "float", {-1}} end
  local plan = context:plan(name, tensors)
  local x, on_x = values(1000, 37)
  local y, on_y = values(1000, 53)
  local z, shape = context:allocate("float", 1000), {1000}
  plan:run {x = {on_x, shape}, y = {on_y, shape}, z = {z, shape}}
  compare("own_kernel", z, function(i) return x[i] + y[i] end)
  return op
end

convolution()
attention()
own_kernel()
local _, refused = pcall(context.plan, context, "causal_conv1d", {}, {activation = "relu"})
print("refused: " .. refused)
