// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Work of different streams: what nothing orders is a race under every seed and policy, the same
// with an event, a flag, a dependency or a wait of the host is clean. Kernels of two streams run at
// the same time, and a dependent launch starts early.
#include "sim/tests/child.h"
#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

constexpr unsigned kBlocks = 4, kThreads = 64;
constexpr size_t kBytes = 4 * kBlocks * kThreads;

// Each thread has an element of `data`. `write` and `read` touch it; `tell` writes it and then
// releases a flag, that `hear` acquires before it reads; `tell_relaxed` lacks the release.
// `ping` and `pong` count up to 40 by turns.
std::string text() {
  const std::string begin = R"((.param .u64 data, .param .u64 flag)
{
  .reg .b32 %t, %n, %v;
  .reg .b64 %w, %f, %x;
  .reg .pred %p;
  ld.param.u64 %w, [data];
  ld.param.u64 %f, [flag];
  mov.u32 %t, %tid.x;
  mov.u32 %n, %ctaid.x;
  mad.lo.u32 %n, %n, 64, %t;
  mul.wide.u32 %x, %n, 4;
  add.u64 %w, %w, %x;
  setp.eq.u32 %p, %t, 0;
)";
  const std::string write = "  st.global.u32 [%w], %n;\n", read = "  ld.global.u32 %v, [%w];\n";
  const std::string wait =
      "  @!%p bra HEARD;\nAGAIN:\n  ld.acquire.gpu.global.u32 %v, [%f];\n"
      "  setp.ne.u32 %p, %v, 4;\n  @%p bra AGAIN;\nHEARD:\n  bar.sync 0;\n";
  const auto entry = [&](const std::string& name, const std::string& body) {
    return ".visible .entry " + name + begin + body + "  ret;\n}\n";
  };
  const auto count = [&](const std::string& name, const char* first) {
    return entry(name, std::string("  mov.u32 %n, ") + first +
                           ";\nTURN:\n  ld.acquire.gpu.global.u32 %v, [%f];\n"
                           "  setp.ne.u32 %p, %v, %n;\n  @%p bra TURN;\n"
                           "  ld.global.u32 %v, [%w];\n  add.u32 %v, %v, 1;\n"
                           "  st.global.u32 [%w], %v;\n  add.u32 %v, %n, 1;\n"
                           "  st.release.gpu.global.u32 [%f], %v;\n  add.u32 %n, %n, 2;\n"
                           "  setp.lt.u32 %p, %n, 40;\n  @%p bra TURN;\n");
  };
  // Many rounds after it has told its dependents to start.
  const std::string linger =
      "  griddepcontrol.launch_dependents;\n  mov.u32 %v, 3000;\nROUND:\n  sub.u32 %v, %v, 1;\n"
      "  setp.ne.u32 %p, %v, 0;\n  @%p bra ROUND;\n  st.relaxed.gpu.global.u32 [%f], 1;\n";
  const std::string look = "  ld.relaxed.gpu.global.u32 %v, [%f];\n  st.global.u32 [%w], %v;\n";
  return ".version 8.0\n.target sm_90\n.address_size 64\n" + entry("write", write) +
         entry("read", read) +
         entry("tell", write + "  bar.sync 0;\n  @%p red.release.gpu.global.add.u32 [%f], 1;\n") +
         entry("tell_relaxed",
               write + "  bar.sync 0;\n  @%p red.relaxed.gpu.global.add.u32 [%f], 1;\n") +
         entry("hear", wait + read) + count("ping", "0") + count("pong", "1") +
         entry("first", linger) + entry("look_early", look + "  griddepcontrol.wait;\n") +
         entry("look_late", "  griddepcontrol.wait;\n" + look);
}

// A device with two streams, memory and kernels.
struct Bench {
  Bench() {
    cuda().init(0);
    cuda().device_primary_ctx_retain(&context, 0);
    cuda().ctx_set_current(context);
    wrong += cuda().module_load_data(&module, text().c_str());
    for (CUstream* stream : {&one, &two}) cuda().stream_create(stream, CU_STREAM_NON_BLOCKING);
    cuda().event_create(&event, CU_EVENT_DEFAULT);
    cuda().mem_alloc(&data, kBytes);
    cuda().mem_alloc(&flag, 4);
    cuda().mem_host_alloc(&host, kBytes, 0);
    cuda().memset_d8(data, 0, kBytes);
    cuda().memset_d8(flag, 0, 4);
    wrong += cuda().ctx_synchronize();
  }
  void launch(const char* name, CUstream stream, unsigned blocks = kBlocks,
              unsigned threads = kThreads, bool early = false) {
    CUfunction function = nullptr;
    wrong += cuda().module_get_function(&function, module, name);
    void* params[] = {&data, &flag};
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = blocks;
    config.blockDimX = threads;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    wrong += cuda().launch_kernel_ex(&config, function, params, nullptr);
  }
  // The next work of `to` comes after the work of `from`.
  void order(CUstream from, CUstream to) {
    wrong += cuda().event_record(event, from);
    wrong += cuda().stream_wait_event(to, event, 0);
  }
  int end() { return wrong + cuda().ctx_synchronize(); }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUstream one = nullptr, two = nullptr;
  CUevent event = nullptr;
  CUdeviceptr data = 0, flag = 0;
  void* host = nullptr;
  int wrong = 0;
};

// Each of these puts the work of the second stream behind that of the first.
enum class Order { none, event, host, query, function, value };

void put_in_order(Bench& b, Order order) {
  switch (order) {
    case Order::event:
      return b.order(b.one, b.two);
    case Order::host:
      b.wrong += cuda().stream_synchronize(b.one);
      return;
    case Order::query:
      b.wrong += cuda().event_record(b.event, b.one);
      while (cuda().event_query(b.event) == CUDA_ERROR_NOT_READY) {
      }
      return;
    case Order::function: {
      static std::atomic<bool> over{false};
      over = false;
      const auto note = [](void*) { over = true; };
      b.wrong += cuda().launch_host_func(b.one, note, nullptr);
      while (!over) {
      }
      return;
    }
    case Order::value:
      b.wrong += cuda().stream_write_value32(b.one, b.flag, 7, 0);
      b.wrong += cuda().stream_wait_value32(b.two, b.flag, 7, CU_STREAM_WAIT_VALUE_EQ);
      return;
    default:
      return;
  }
}

int two_kernels(const char* first, const char* second, Order order) {
  Bench b;
  b.launch(first, b.one);
  put_in_order(b, order);
  b.launch(second, b.two);
  return b.end();
}

int copy_and_kernel(bool copy_first, Order order) {
  Bench b;
  const auto copy = [&](CUstream s) {
    b.wrong += cuda().memcpy_htod_async(b.data, b.host, kBytes, s);
  };
  if (copy_first) copy(b.one);
  if (!copy_first) b.launch("read", b.one);
  put_in_order(b, order);
  if (!copy_first) copy(b.two);
  if (copy_first) b.launch("read", b.two);
  return b.end();
}

int fill_and_copy(Order order) {
  Bench b;
  b.wrong += cuda().memset_d8_async(b.data, 1, kBytes, b.one);
  put_in_order(b, order);
  b.wrong += cuda().memcpy_dtoh_async(b.host, b.data, kBytes, b.two);
  return b.end();
}

// The legacy stream waits for streams that block, and they for it.
int legacy(bool blocks) {
  Bench b;
  CUstream stream = nullptr;
  cuda().stream_create(&stream, blocks ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
  b.launch("write", nullptr);
  b.launch("read", stream);
  return b.end();
}

// Two branches of a graph, or one behind the other.
int graph(bool ordered) {
  Bench b;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUevent begun = nullptr;
  cuda().event_create(&begun, CU_EVENT_DEFAULT);
  b.wrong += cuda().stream_begin_capture(b.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
  b.wrong += cuda().event_record(begun, b.one);
  b.wrong += cuda().stream_wait_event(b.two, begun, 0);
  b.launch("write", b.one);
  if (ordered) b.order(b.one, b.two);
  b.launch("read", b.two);
  b.order(b.two, b.one);
  b.wrong += cuda().stream_end_capture(b.one, &graph);
  b.wrong += cuda().graph_instantiate_with_flags(&executable, graph, 0);
  for (int k = 0; k < 2; ++k) b.wrong += cuda().graph_launch(executable, b.one);
  return b.end();
}

// The memory of the first kernel goes to the second one by way of the pool.
int reused() {
  Bench b;
  CUdeviceptr first = 0, second = 0;
  b.wrong += cuda().mem_alloc_async(&first, kBytes, b.one);
  std::swap(b.data, first);
  b.launch("write", b.one);
  std::swap(b.data, first);
  b.wrong += cuda().mem_free_async(first, b.one);
  b.order(b.one, b.two);
  b.wrong += cuda().mem_alloc_async(&second, kBytes, b.two);
  std::swap(b.data, second);
  b.launch("write", b.two);
  return b.end();
}

int by_turns() {
  Bench b;
  b.launch("ping", b.one, 1, 1);
  b.launch("pong", b.two, 1, 1);
  int wrong = b.end();
  uint32_t count = 0;
  wrong += cuda().memcpy_dtoh(&count, b.data, 4);
  return wrong + (count == 40 ? 0 : 50);
}

// The dependent kernel says what it saw of the end of the primary one: 10 nothing, 11 all of it, 12
// both.
int dependent(const char* name) {
  Bench b;
  b.launch("first", b.one, 1, 32);
  b.launch(name, b.one, kBlocks, kThreads, true);
  if (b.end() != 0) return 1;
  uint32_t seen[kBlocks * kThreads] = {};
  if (cuda().memcpy_dtoh(seen, b.data, kBytes) != CUDA_SUCCESS) return 2;
  const auto ones = std::count(std::begin(seen), std::end(seen), 1u);
  return ones == 0 ? 10 : ones == kBlocks * kThreads ? 11 : 12;
}

constexpr int kSeeds = 20;
#if defined(__SANITIZE_THREAD__)
constexpr int kSeedStep = 5;  // a process takes ten times as long
#else
constexpr int kSeedStep = 1;
#endif
const char* const kPolicies[] = {"eager", "lazy", "random"};

// Runs the program under every seed and policy; each run has a race or has none.
void runs(const char* name, bool race, const std::function<int()>& program) {
  CAPTURE(name);
  for (const char* policy : kPolicies) {
    for (int seed = 0; seed < kSeeds; seed += kSeedStep) {
      CAPTURE(policy);
      CAPTURE(seed);
      const Child child = in_child({{"LATHE_SIM_CHECK", "all"},
                                    {"LATHE_SIM_ASYNC", policy},
                                    {"LATHE_SIM_INSTRUCTION_LIMIT", "50000000"},
                                    {"LATHE_SIM_SEED", std::to_string(seed)}},
                                   program);
      INFO(child.error);
      CHECK(child.status == 0);
      CHECK(has(child.error, "racecheck race") == race);
      CHECK(has(child.error, "needs an event between them") == race);
      CHECK((child.error == "") == !race);
    }
  }
}

}  // namespace

TEST_CASE("kernels of two streams") {
  for (const Order order :
       {Order::none, Order::event, Order::host, Order::query, Order::function, Order::value}) {
    CAPTURE(static_cast<int>(order));
    const bool none = order == Order::none;
    runs("a write and a read", none, [&] { return two_kernels("write", "read", order); });
    if (order > Order::event) continue;
    runs("a read and a write", none, [&] { return two_kernels("read", "write", order); });
    runs("two reads", false, [&] { return two_kernels("read", "read", order); });
  }
}

TEST_CASE("copies and fills beside kernels") {
  for (const Order order : {Order::none, Order::event}) {
    const bool none = order == Order::none;
    runs("a copy and a kernel", none, [&] { return copy_and_kernel(true, order); });
    runs("a kernel and a copy", none, [&] { return copy_and_kernel(false, order); });
    runs("a fill and a copy", none, [&] { return fill_and_copy(order); });
  }
}

TEST_CASE("the legacy stream, graphs and pools order what they should") {
  runs("a stream that blocks", false, [] { return legacy(true); });
  runs("a stream that does not block", true, [] { return legacy(false); });
  runs("branches of a graph", true, [] { return graph(false); });
  runs("a graph in order", false, [] { return graph(true); });
  runs("memory that is used again", false, reused);
}

TEST_CASE("kernels that run at the same time and wait for each other") {
  runs("a flag", false, [] { return two_kernels("tell", "hear", Order::none); });
  runs("a flag whose reader comes first", false,
       [] { return two_kernels("hear", "tell", Order::none); });
  runs("a flag without a release", true,
       [] { return two_kernels("tell_relaxed", "hear", Order::none); });
  runs("by turns", false, by_turns);
}

TEST_CASE("a dependent launch starts early under some seeds, and never passes its wait") {
  std::map<int, int> early, late;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Environment environment = {{"LATHE_SIM_CHECK", "all"},
                                     {"LATHE_SIM_SEED", std::to_string(seed)}};
    ++early[in_child(environment, [] { return dependent("look_early"); }).status];
    ++late[in_child(environment, [] { return dependent("look_late"); }).status];
  }
  CHECK(early[10] + early[12] > 0);
  CHECK(early[11] > 0);
  CHECK(early[10] + early[11] + early[12] == kSeeds);
  CHECK(late[11] == kSeeds);
}
