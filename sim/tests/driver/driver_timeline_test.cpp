// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the timeline in model time against times worked by hand. On the H100 of the
// model a fill of 3.35 MB takes 1 us of DRAM and 2.5 us of launch, a copy of it within the device 2
// us and 2.5 us; messages take 5 us and 1 us for each 450 kB.
#include <dlfcn.h>

#include <cmath>

#include "sim/driver/report/timeline_export.h"
#include "sim/tests/child.h"
#include "sim/tests/driver/nccl_client.h"
#include "sim/tests/driver/timeline_lines.h"

using namespace sim::tests;

namespace {

constexpr size_t kBytes = 3'350'000;
constexpr double kFill = 3.5, kCopy = 4.5, kHop = 15;  // 4.5 MB
constexpr size_t kHopBytes = 4'500'000;

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
  cuda().memset_d8_async(d.from, 0, kBytes, d.one);       // 3.5 .. 8, beside what follows
  cuda().memset_d8_async(d.to, 0, 1, d.two);              // 0 .. 2.5
  cuda().stream_wait_event(d.two, d.event, 0);            // 2.5 .. 3.5
  cuda().memcpy_dtod_async(d.to, d.from, kBytes, d.two);  // 3.5 .. 9: both want all of DRAM from 6
  cuda().stream_synchronize(d.two);                       // the host has seen 9
  cuda().memset_d8_async(d.from, 0, kBytes, d.one);       // 9 .. 12.5
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

}  // namespace

TEST_CASE("streams have clocks, events order them, the host's waits count") {
  const auto lines = timeline_of("streams", streams_and_an_event);
  REQUIRE(lines.size() == 6);
  const Line copy = of_kind(lines, "copy", 3);
  const uint64_t two = copy.stream;
  CHECK(copy.name == "copy");
  CHECK(copy.bytes == kBytes);
  check_span(copy, kFill, kFill + kCopy + 1);
  check_span(of_kind(lines, "wait", 0), 2.5, kFill);
  CHECK(of_kind(lines, "wait", 0).stream == two);
  size_t of_one = 0;
  const double begins[] = {0, kFill, 9}, lasts[] = {kFill, kFill + 1, kFill};
  for (const Line& line : lines) {
    if (line.stream == two) continue;
    REQUIRE(of_one < 3);
    check_span(line, begins[of_one], begins[of_one] + lasts[of_one]);
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
  check_span(of_kind(lines, "copy", 0), 0, kFill + 1);  // both want all of DRAM from 2.5
  check_span(of_kind(lines, "copy", 1), 0, kCopy + 1);
  check_span(of_kind(lines, "copy", 2), kCopy + 1, kCopy + 1 + kFill);
  CHECK(of_kind(lines, "copy", 0).stream != of_kind(lines, "copy", 1).stream);
}

// Counts the trace's events that say when something began.
size_t pieces(const std::string& trace) {
  size_t out = 0;
  for (size_t at = 0; (at = trace.find("\"ph\":\"X\"", at)) != std::string::npos; ++at) ++out;
  return out;
}

int run_with_a_restart() {
  const Device d;
  auto* restart = reinterpret_cast<void (*)(const char*)>(
      dlsym(dlopen(SIM_LIBRARY_DIR "/libcuda.so.1", RTLD_NOW), "lathe_sim_restart_timeline"));
  cuda().memset_d8_async(d.from, 0, kBytes, d.one);
  restart("again");
  cuda().memset_d8_async(d.from, 0, kBytes, d.one);
  cuda().memset_d8_async(d.to, 0, kBytes, d.two);
  return cuda().ctx_synchronize();
}

TEST_CASE("a picture and a trace of each stretch between restarts") {
  const std::string picture = path_of("picture");
  timeline_of("ranks", [] { return two_hops(false); }, {{"LATHE_SIM_TIMELINE_PICTURE", picture}});
  const std::string svg = content(picture + "0.svg"), trace = content(picture + "0.json");
  CHECK(pieces(trace) == 16);  // as many as the timeline has lines
  for (const char* name : {"rank 0", "rank 1", "Send to rank 1, Recv from rank 1", "partner"}) {
    CAPTURE(name);
    CHECK(has(svg, name));
    CHECK(has(trace, name));
  }
  CHECK_FALSE(exists(picture + "1.svg"));
  timeline_of("restarted", run_with_a_restart, {{"LATHE_SIM_TIMELINE_PICTURE", picture}});
  CHECK(pieces(content(picture + "0.json")) == 1);
  CHECK(pieces(content(picture + "1.json")) == 2);
  CHECK(has(content(picture + "0.svg"), "3.50 microseconds"));
  CHECK(has(content(picture + "1.svg"), "4.50 microseconds"));  // both want all of DRAM
}

TEST_CASE("a program that ends with an exit code of its findings leaves its timeline") {
  const std::string path = path_of("findings");
  const Child child = in_child({{"LATHE_SIM_TIMELINE", path},
                                {"LATHE_SIM_GPU", "h100"},
                                {"LATHE_SIM_QUIET", "1"},
                                {"LATHE_SIM_ERROR_EXITCODE", "77"}},
                               [] {
                                 const Device d;
                                 cuda().memset_d8_async(d.from, 0, kBytes, d.one);
                                 cuda().stream_synchronize(d.one);
                                 cuda().device_primary_ctx_release(0);  // its memory is a leak
                                 return 0;
                               });
  CHECK(child.status == 77);
  check_span(of_kind(read_timeline(path), "copy", 0), 0, kFill);
}

TEST_CASE("a timeline's variables that are not allowed") {
  for (const char* link : {"fast", "0", "-1", "450,", "450,-1", "450,5,5", "450 GB/s"}) {
    CAPTURE(link);
    const Child child = in_child({{"LATHE_SIM_LINK", link}}, [] { return int{cuda().init(0)}; });
    CHECK(child.status == CUDA_ERROR_NO_DEVICE);
    CHECK(has(child.error, "LATHE_SIM_LINK is"));
    CHECK(has(child.error, "GB/s"));
  }
  for (const auto& [name, value] :
       {std::pair{"LATHE_SIM_SAMPLE_BLOCKS", "4"}, {"LATHE_SIM_TIMELINE_PICTURE", "p"}}) {
    CAPTURE(name);
    const Child child = in_child({{name, value}}, [] { return int{cuda().init(0)}; });
    CHECK(child.status == CUDA_ERROR_NO_DEVICE);
    CHECK(has(child.error, "with LATHE_SIM_TIMELINE"));
  }
}
