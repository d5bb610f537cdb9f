-- SPDX-FileCopyrightText: 2026 The lathe authors
-- SPDX-License-Identifier: Apache-2.0
-- lathe.h for LuaJIT: contexts, buffers on the device, problems and plans. Errors are raised, with
-- lathe's own sentences. A context ends when nothing is left that was made with it: Lua collects in
-- any order.
local ffi = require "ffi"

ffi.cdef [[
typedef struct { size_t size; int device, ordinal; const char *arch, *cache_dir, *family; }
  lathe_context_options;
typedef struct {
  void* data; int32_t device_type, device_id, ndim; uint8_t code, bits; uint16_t lanes;
  const int64_t *shape, *strides; uint64_t byte_offset;
} DLTensor;
const char* lathe_last_error(void);
int lathe_context_create(void** out, const lathe_context_options* options);
void lathe_context_destroy(void* context);
int lathe_malloc(void* context, void** out, size_t bytes);
int lathe_free(void* context, void* pointer);
int lathe_copy_to_device(void* context, void* to, const void* from, size_t bytes, void* stream);
int lathe_copy_to_host(void* context, void* to, const void* from, size_t bytes, void* stream);
int lathe_stream_synchronize(void* context, void* stream);
typedef struct { const char* name; } lathe_operator_info;  /* the rest is not read here */
int lathe_operator_parse(void** out, const char* text, size_t bytes, const char* file);
const lathe_operator_info* lathe_operator_describe(const void* op);
void lathe_operator_destroy(void* op);
int lathe_problem_create(void** out, const char* op);
void lathe_problem_destroy(void* problem);
int lathe_problem_tensor(void* problem, const char* name, int dtype, int rank, const int64_t* shape);
int lathe_problem_set_string(void* problem, const char* option, const char* value);
int lathe_plan_create(void** out, void* context, const void* problem);
void lathe_plan_destroy(void* plan);
int lathe_plan_slot(const void* plan, const char* name, size_t* out);
size_t lathe_plan_slot_count(const void* plan);
int lathe_plan_workspace(const void* plan, const DLTensor* const* slots, const void* shard,
                         size_t* bytes);
int lathe_plan_run(const void* plan, const DLTensor* const* slots, void* workspace, size_t bytes,
                   void* stream);
]]
local prefix = os.getenv("LATHE_PREFIX")
local C = ffi.load(prefix and prefix .. "/lib/liblathe.so" or "lathe")

-- lathe_dtype, and DLPack's code and bits.
local dtypes = {
  float = {0, 2, 32}, int32_t = {3, 0, 32}, int64_t = {4, 0, 64},
}
local devices = {default = 0, cuda = 1, sim = 2}

local function check(status)
  if status ~= 0 then error(ffi.string(C.lathe_last_error()), 0) end
end

-- Calls create(out, ...) and returns what it made, which `destroy` ends.
local function made(destroy, create, ...)
  local out = ffi.new("void*[1]")
  check(create(out, ...))
  return ffi.gc(out[0], destroy)
end

local Context, Buffer, Plan = {}, {}, {}
Context.__index, Buffer.__index, Plan.__index = Context, Buffer, Plan

local function context(device)
  local options = ffi.new("lathe_context_options")
  options.size, options.device = ffi.sizeof(options), devices[device or "default"]
  local raw, users
  local function release()
    users = users - 1
    if users == 0 then C.lathe_context_destroy(raw) end
  end
  local handle = made(release, C.lathe_context_create, options)
  raw, users = ffi.cast("void*", handle), 1
  return setmetatable({raw = raw, handle = handle, made = function(destroy, ...)
    local new = made(function(old) destroy(old) release() end, ...)
    users = users + 1
    return new
  end}, Context)
end

function Context:allocate(dtype, count)
  local raw, bytes = self.raw, count * ffi.sizeof(dtype)
  local function free(data) C.lathe_free(raw, data) end
  local data = self.made(free, function(out) return C.lathe_malloc(raw, out, bytes) end)
  return setmetatable({data, dtype = dtype, count = count, context = self}, Buffer)
end

-- `values`: an array of the FFI, dtype[count].
function Context:upload(dtype, values, count)
  local buffer = self:allocate(dtype, count)
  check(C.lathe_copy_to_device(self.raw, buffer[1], values, count * ffi.sizeof(dtype), nil))
  return buffer
end

function Buffer:download()
  local values = ffi.new(ffi.typeof("$[?]", ffi.typeof(self.dtype)), self.count)
  check(C.lathe_copy_to_host(self.context.raw, values, self[1], ffi.sizeof(values), nil))
  return values
end

-- Makes a plan. `tensors`: {{name, dtype, {extents, -1: varies}}, ...}; `options`: name = text.
function Context:plan(op, tensors, options)
  local problem = made(C.lathe_problem_destroy, C.lathe_problem_create, op)
  for option, value in pairs(options or {}) do
    check(C.lathe_problem_set_string(problem, option, value))
  end
  for _, tensor in ipairs(tensors) do
    local name, dtype, shape = unpack(tensor)
    check(C.lathe_problem_tensor(problem, name, dtypes[dtype][1], #shape,
                                 ffi.new("int64_t[?]", #shape, shape)))
  end
  local plan = self.made(C.lathe_plan_destroy, C.lathe_plan_create, self.raw, problem)
  return setmetatable({plan, context = self}, Plan)
end

-- Runs with contiguous tensors, name = {buffer, {extents}}, and waits for it.
function Plan:run(tensors)
  local plan, kept, slot = self[1], {}, ffi.new("size_t[1]")
  local slots = ffi.new("const DLTensor*[?]", tonumber(C.lathe_plan_slot_count(plan)))
  for name, tensor in pairs(tensors) do
    local buffer, shape = unpack(tensor)
    local count = 1
    for _, extent in ipairs(shape) do count = count * extent end
    assert(count == buffer.count, name .. ": the buffer has another number of elements")
    local extents = ffi.new("int64_t[?]", #shape, shape)
    local _, code, bits = unpack(dtypes[buffer.dtype])
    local dl = ffi.new("DLTensor", {buffer[1], 2, 0, #shape, code, bits, 1, extents})
    check(C.lathe_plan_slot(plan, name, slot))
    slots[slot[0]] = dl
    kept[#kept + 1], kept[#kept + 2] = dl, extents
  end
  check(C.lathe_plan_workspace(plan, slots, nil, slot))
  local bytes = tonumber(slot[0])
  local workspace = self.context:allocate("int32_t", math.ceil(bytes / 4))
  check(C.lathe_plan_run(plan, slots, workspace[1], bytes, nil))
  check(C.lathe_stream_synchronize(self.context.raw, nil))
end

-- Makes an operator of a kernel's file: its handle, which keeps it, and its name.
local function kernel(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  local op = made(C.lathe_operator_destroy, C.lathe_operator_parse, text, #text, path)
  return op, ffi.string(C.lathe_operator_describe(op).name)
end

return {context = context, kernel = kernel}
