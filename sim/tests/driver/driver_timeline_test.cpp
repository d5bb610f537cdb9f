// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the timeline in model time against times worked by hand, and sampled grids. On
// the H100 of the model a fill of 3.35 MB takes 1 us of DRAM and 2.5 us of launch, a copy of it
// within the device 2 us and 2.5 us; messages take 5 us and 1 us for each 450 kB.
#include <cmath>

#include "sim/driver/report/timeline_export.h"
#include "sim/tests/child.h"
#include "sim/tests/driver/driver_kernels.h"
#include "sim/tests/driver/nccl_client.h"

using namespace sim::tests;

namespace {

constexpr size_t kBytes = 3'350'000;
constexpr double kFill = 3.5, kCopy = 4.5, kHop = 15;  // 4.5 MB
constexpr size_t kHopBytes = 4'500'000;

struct Line {
  std::string kind, name;
  int rank = -1;
  double begin = 0, end = 0;
  uint64_t stream = 0, bytes = 0, sampled = 0;
  int peer = -1;
};

std::string member(const std::string& line, const std::string& name) {
  const size_t at = line.find("\"" + name + "\":");
  if (at == std::string::npos) return "0";
  const size_t from = at + name.size() + 3;
  if (line[from] == '"') return line.substr(from + 1, line.find('"', from + 1) - from - 1);
  return line.substr(from, line.find_first_of(",}", from) - from);
}

std::vector<Line> read_timeline(const std::string& path) {
  std::istringstream text(content(path));
  std::vector<Line> lines;
  for (std::string line; std::getline(text, line);) {
    Line one;
    one.kind = member(line, "kind"), one.name = member(line, "name");
    one.rank = std::stoi(member(line, "rank")), one.peer = std::stoi(member(line, "peer"));
    one.begin = std::stod(member(line, "begin")), one.end = std::stod(member(line, "end"));
    one.stream = std::stoull(member(line, "stream")),
    one.bytes = std::stoull(member(line, "bytes"));
    one.sampled = std::stoull(member(line, "sampled_blocks"));
    lines.push_back(one);
  }
  const auto key = [](const Line& l) {
    return std::make_tuple(l.rank, l.begin, l.end, l.stream, l.kind);
  };
  std::sort(lines.begin(), lines.end(),
            [&](const Line& a, const Line& b) { return key(a) < key(b); });
  return lines;
}

// Returns the line of `kind` with this index, in the order of rank, then begin.
Line of_kind(const std::vector<Line>& lines, const std::string& kind, size_t index) {
  size_t seen = 0;
  for (const Line& line : lines) {
    if (line.kind == kind && seen++ == index) return line;
  }
  FAIL("no line ", index, " of kind ", kind, " among ", lines.size());
  return {};
}

void check_span(const Line& line, double begin, double end) {
  CAPTURE(line.kind);
  CAPTURE(line.name);
  CHECK(line.begin == doctest::Approx(begin));
  CHECK(line.end == doctest::Approx(end));
}

std::vector<Line> timeline_of(const char* name, const std::function<int()>& body,
                              Environment environment = {}) {
  const std::string path = path_of(name);
  environment.insert({{"LATHE_SIM_TIMELINE", path}, {"LATHE_SIM_GPU", "h100"}});
  const Child child = in_child(environment, body);
  CHECK(child.status == 0);
  CHECK(child.error == "");
  return read_timeline(path);
}

// A context and two streams that do not block each other.
struct Device {
  Device() {
    cuda().init(0);
    cuda().device_primary_ctx_retain(&context, 0);
    cuda().ctx_push_current(context);
    cuda().stream_create(&one, CU_STREAM_NON_BLOCKING);
    cuda().stream_create(&two, CU_STREAM_NON_BLOCKING);
    cuda().event_create(&event, CU_EVENT_DEFAULT);
    cuda().mem_alloc(&from, kHopBytes);
    cuda().mem_alloc(&to, kHopBytes);
  }
  CUcontext context = nullptr;
  CUstream one = nullptr, two = nullptr;
  CUevent event = nullptr;
  CUdeviceptr from = 0, to = 0;
};

int streams_and_an_event() {
  const Device d;
  cuda().memset_d8_async(d.from, 0, kBytes, d.one);  // 0 .. 3.5
  cuda().event_record(d.event, d.one);
  cuda().memset_d8_async(d.from, 0, kBytes, d.one);       // 3.5 .. 7, beside what follows
  cuda().memset_d8_async(d.to, 0, 1, d.two);              // 0 .. 2.5
  cuda().stream_wait_event(d.two, d.event, 0);            // 2.5 .. 3.5
  cuda().memcpy_dtod_async(d.to, d.from, kBytes, d.two);  // 3.5 .. 8
  cuda().stream_synchronize(d.two);                       // the host has seen 8
  cuda().memset_d8_async(d.from, 0, kBytes, d.one);       // 8 .. 11.5
  return cuda().stream_synchronize(d.one);
}

// Rank 1 is late by a fill; then both swap 4.5 MB, twice.
int two_hops(bool captured) {
  std::atomic<int> wrong{0};
  nccl();
  ncclUniqueId id;
  cuda().init(0);
  nccl().get_unique_id(&id);
  std::vector<std::thread> threads;
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      ncclComm_t comm = nullptr;
      CUcontext context = nullptr;
      cuda().device_primary_ctx_retain(&context, 0);
      cuda().ctx_push_current(context);
      wrong += nccl().comm_init_rank(&comm, 2, id, index) != ncclSuccess;
      const Device d;
      cuda().memset_d8_async(d.from, 0, 1, d.one);                       // 0 .. 2.5
      if (index == 1) cuda().memset_d8_async(d.from, 0, kBytes, d.one);  // 2.5 .. 6
      if (captured) cuda().stream_begin_capture(d.one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
      cuda().event_record(d.event, d.one);
      cuda().stream_wait_event(d.two, d.event, 0);
      for (int hop = 0; hop < 2; ++hop) {  // 6 .. 21 .. 36
        nccl().group_start();
        const CUstream stream = d.two;
        nccl().send(pointer(d.from), kHopBytes, ncclInt8, 1 - index, comm, stream);
        nccl().recv(pointer(d.to), kHopBytes, ncclInt8, 1 - index, comm, stream);
        nccl().group_end();
      }
      cuda().memset_d8_async(d.from, 0, kBytes, d.one);  // beside the first hop
      cuda().event_record(d.event, d.two);
      cuda().stream_wait_event(d.one, d.event, 0);
      cuda().memset_d8_async(d.to, 0, kBytes, d.one);  // 36 .. 39.5
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      if (captured) {
        wrong += cuda().stream_end_capture(d.one, &graph) != CUDA_SUCCESS;
        wrong += cuda().graph_instantiate_with_flags(&exec, graph, 0) != CUDA_SUCCESS;
        wrong += cuda().graph_launch(exec, d.one) != CUDA_SUCCESS;
      }
      wrong += cuda().stream_synchronize(d.one) != CUDA_SUCCESS;
      if (captured) cuda().graph_exec_destroy(exec), cuda().graph_destroy(graph);
      nccl().comm_destroy(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

// Two branches of a graph, captured in two streams.
int a_graph() {
  const Device d;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUevent forked = nullptr;
  cuda().event_create(&forked, CU_EVENT_DEFAULT);
  cuda().stream_begin_capture(d.one, CU_STREAM_CAPTURE_MODE_GLOBAL);
  cuda().event_record(forked, d.one);
  cuda().stream_wait_event(d.two, forked, 0);
  cuda().memset_d8_async(d.from, 0, kBytes, d.one);
  cuda().memcpy_dtod_async(d.to, d.from, kBytes, d.two);
  cuda().event_record(d.event, d.two);
  cuda().stream_wait_event(d.one, d.event, 0);
  cuda().memset_d8_async(d.to, 0, kBytes, d.one);
  cuda().stream_end_capture(d.one, &graph);
  cuda().graph_instantiate_with_flags(&exec, graph, 0);
  cuda().graph_launch(exec, d.one);
  return cuda().stream_synchronize(d.one);
}

// add() over 64 blocks of 256; then into another buffer, and over half of the elements.
int run_grids() {
  const Device d;
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  cuda().module_load_data(&module, kernels().c_str());
  cuda().module_get_function(&add, module, "add");
  CUdeviceptr a = 0, b = 0, c = 0, other = 0;
  int count = 64 * 256;
  for (CUdeviceptr* each : {&a, &b, &c, &other}) {
    cuda().mem_alloc(each, 8 * static_cast<size_t>(count));
  }
  void* params[] = {&a, &b, &c, &count};
  cuda().launch_kernel(add, 64, 1, 1, 256, 1, 1, 0, d.one, params, nullptr);
  params[2] = &other;
  cuda().launch_kernel(add, 64, 1, 1, 256, 1, 1, 0, d.one, params, nullptr);
  count /= 2;
  cuda().launch_kernel(add, 64, 1, 1, 256, 1, 1, 0, d.one, params, nullptr);
  return cuda().stream_synchronize(d.one);
}

}  // namespace

TEST_CASE("streams have clocks, events order them, the host's waits count") {
  const auto lines = timeline_of("streams", streams_and_an_event);
  REQUIRE(lines.size() == 6);
  const Line copy = of_kind(lines, "copy", 3);
  const uint64_t two = copy.stream;
  CHECK(copy.name == "copy");
  CHECK(copy.bytes == kBytes);
  check_span(copy, kFill, kFill + kCopy);
  check_span(of_kind(lines, "wait", 0), 2.5, kFill);
  CHECK(of_kind(lines, "wait", 0).stream == two);
  size_t of_one = 0;
  const double begins[] = {0, kFill, kFill + kCopy};
  for (const Line& line : lines) {
    if (line.stream == two) continue;
    REQUIRE(of_one < 3);
    check_span(line, begins[of_one], begins[of_one] + kFill);
    ++of_one;
  }
  CHECK(of_one == 3);
}

TEST_CASE("messages begin when both sides are ready, and streams of work go on beside them") {
  for (const char* seed : {"0", "1", "2"}) {
    for (const char* link : {"", "900,0"}) {
      CAPTURE(seed);
      CAPTURE(link);
      const double hop = *link == '\0' ? kHop : 5;
      const auto lines = timeline_of("hops", [] { return two_hops(false); },
                                     {{"LATHE_SIM_SEED", seed}, {"LATHE_SIM_LINK", link}});
      for (const int rank : {0, 1}) {
        std::vector<Line> own;
        for (const Line& line : lines) {
          if (line.rank == rank) own.push_back(line);
        }
        const double ready = rank == 0 ? 2.5 : 6;
        const Line first = of_kind(own, "transfer", 0), second = of_kind(own, "transfer", 1);
        check_span(first, 6, 6 + hop);
        check_span(second, 6 + hop, 6 + 2 * hop);
        CHECK(first.name == "Send to rank " + std::to_string(1 - rank) + ", Recv from rank " +
                                std::to_string(1 - rank));
        CHECK(first.bytes == kHopBytes);
        CHECK(first.peer == 1 - rank);
        const auto fills = [&](size_t i) { return of_kind(own, "copy", i); };
        const size_t after = rank == 0 ? 1 : 2;
        check_span(fills(after), ready, ready + kFill);
        check_span(fills(after + 1), 6 + 2 * hop, 6 + 2 * hop + kFill);
        // Rank 0 waits for its partner; the stream of work for the messages.
        if (rank == 0) check_span(of_kind(own, "wait", 1), 2.5, 6);
        check_span(of_kind(own, "wait", rank == 0 ? 2 : 1), ready + kFill, 6 + 2 * hop);
      }
      CHECK(lines.size() == 2 * (2 + 2 + 1 + 2) + 2);
    }
  }
}

TEST_CASE("the same captured and replayed") {
  for (const char* seed : {"0", "1"}) {
    CAPTURE(seed);
    const auto lines =
        timeline_of("replayed", [] { return two_hops(true); }, {{"LATHE_SIM_SEED", seed}});
    for (const int rank : {0, 1}) {
      std::vector<Line> own;
      for (const Line& line : lines) {
        if (line.rank == rank) own.push_back(line);
      }
      const double ready = rank == 0 ? 2.5 : 6;
      check_span(of_kind(own, "transfer", 0), 6, 6 + kHop);
      check_span(of_kind(own, "transfer", 1), 6 + kHop, 6 + 2 * kHop);
      const size_t after = rank == 0 ? 1 : 2;
      check_span(of_kind(own, "copy", after), ready, ready + kFill);
      check_span(of_kind(own, "copy", after + 1), 6 + 2 * kHop, 6 + 2 * kHop + kFill);
      CHECK(of_kind(own, "transfer", 0).stream != of_kind(own, "copy", after).stream);
    }
  }
}

TEST_CASE("branches of a graph run beside each other") {
  const auto lines = timeline_of("graph", a_graph);
  REQUIRE(lines.size() >= 3);
  check_span(of_kind(lines, "copy", 0), 0, kFill);
  check_span(of_kind(lines, "copy", 1), 0, kCopy);
  check_span(of_kind(lines, "copy", 2), kCopy, kCopy + kFill);
  CHECK(of_kind(lines, "copy", 0).stream != of_kind(lines, "copy", 1).stream);
}

TEST_CASE("a sampled grid counts as the whole one does") {
  const auto whole = timeline_of("whole", run_grids);
  const auto sampled = timeline_of("sampled", run_grids, {{"LATHE_SIM_SAMPLE_BLOCKS", "4"}});
  const Line all = of_kind(whole, "launch", 0), some = of_kind(sampled, "launch", 0);
  CHECK(all.name == "add");
  CHECK(all.sampled == 0);
  CHECK(some.sampled == 4);
  CHECK(some.bytes == all.bytes);
  CHECK(some.bytes == 3 * 64 * 256 * 4);
  CHECK(some.end == doctest::Approx(all.end));
  for (const auto* lines : {&whole, &sampled}) {
    REQUIRE(lines->size() == 3);
    CHECK(of_kind(*lines, "launch", 1).bytes == all.bytes);
    CHECK(of_kind(*lines, "launch", 2).bytes == all.bytes / 2);
  }
  std::string texts[2];
  for (const bool sample : {false, true}) {
    const std::string counters = path_of("sampled_counters");
    const Child child = in_child(
        {{"LATHE_SIM_SAMPLE_BLOCKS", sample ? "4" : "0"}, {"LATHE_SIM_COUNTERS", counters}},
        run_grids);
    CHECK(child.status == 0);
    texts[sample ? 1 : 0] = content(counters);
  }
  CHECK_FALSE(has(texts[0], "sampled_blocks"));
  CHECK(has(texts[1], "\"sampled_blocks\":4,"));
  for (const char* name : {"thread_instructions", "warp_instructions", "global_load_bytes",
                           "global_store_sectors", "unique_load_sectors", "integer"}) {
    CAPTURE(name);
    CHECK(member(texts[0], name) == member(texts[1], name));
    CHECK(member(texts[0], name) != "0");
  }
}

TEST_CASE("a timeline's variables that are not allowed") {
  for (const char* link : {"fast", "0", "-1", "450,", "450,-1", "450,5,5", "450 GB/s"}) {
    CAPTURE(link);
    const Child child = in_child({{"LATHE_SIM_LINK", link}}, [] { return int{cuda().init(0)}; });
    CHECK(child.status == CUDA_ERROR_NO_DEVICE);
    CHECK(has(child.error, "LATHE_SIM_LINK is"));
    CHECK(has(child.error, "GB/s"));
  }
  const Child child =
      in_child({{"LATHE_SIM_SAMPLE_BLOCKS", "4"}}, [] { return int{cuda().init(0)}; });
  CHECK(child.status == CUDA_ERROR_NO_DEVICE);
  CHECK(has(child.error, "LATHE_SIM_TIMELINE"));
}
