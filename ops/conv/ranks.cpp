// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs causal_conv1d on one rank among several. Only the first token tile and the state tiles need
// the halo: all others run while the messages travel. collective/plans/conv_halo.h draws the order.
#include "ops/conv/ranks.h"

#include "collective/plans/conv_halo.h"
#include "ops/conv/ranks_pieces.h"
#include "ops/rank_program.h"

namespace lathe {
namespace {

class ConvOverRanks : public Executor {
 public:
  ConvOverRanks(std::unique_ptr<ConvExecutor> its_own, Group* its_group)
      : own(std::move(its_own)), group(its_group) {
    list(*own);
  }
  Status check(const Call&) const { return {}; }

  const std::unique_ptr<ConvExecutor> own;
  Group* const group;
};

// Holds the offsets of what ranks exchange. A section that a call does not use has no bytes.
struct ConvRankWorkspace {
  int64_t rows = 0;                        // [W - 1, B, D]: this rank's tail rows
  int64_t received = 0;                    // a message of rows from each source
  int64_t halo = 0;                        // [W - 1, B, D]: joined from several messages
  int64_t dhalo = 0;                       // float32 [W - 1, B, D]
  int64_t dreceived = 0;                   // a message of dhalo from each destination
  int64_t row_bytes = 0, dhalo_bytes = 0;  // of one message
};

class ConvRankRun final : public RankRun {
 public:
  ConvRankRun(const ConvOverRanks& program, const Call& call)
      : RankRun(*program.group, call),
        own_(*program.own),
        halo_(halo_plan(call.shard->layout.partition, call.shard->rank, own_.problem().width)) {}
  Status lay_out();
  Status operator()();
  Result<Estimate> estimate() const;

 private:
  const ConvKernels& kernels() const { return own_.kernels(); }
  void* halo() const {
    if (halo_.sources.empty()) return nullptr;
    return at(halo_.aligned ? workspace_.received : workspace_.halo);
  }
  // A forward in the same call leaves the halo in the workspace.
  bool has_halo() const { return kernels().forward.has_value(); }
  // Tiles after the first, in two halves: one hides the rows on their way here, if they are yet to
  // come, the other the gradients on their way back.
  int half() const { return has_halo() ? 0 : std::max(backward_.all_tiles - 1, 0) / 2; }

  // These are the steps that collective/plans/conv_halo.h calls.
  Status pack(CUstream stream);
  Status join(CUstream stream);
  Status add(CUstream stream);
  Status forward_interior(CUstream stream) {
    return own_.launch_forward(forward_, plan_, 1, forward_.tiles - 1, 0, stream);
  }
  Status forward_boundary(CUstream stream) {
    return own_.launch_forward(forward_, plan_, 0, std::min(forward_.tiles, 1),
                               forward_.state_tiles, stream);
  }
  Status backward_first_half(CUstream stream) {
    return own_.launch_backward(backward_, plan_, 1, half(), 0, stream);
  }
  Status backward_boundary(CUstream stream) {
    return own_.launch_backward(backward_, plan_, 0, std::min(backward_.all_tiles, 1),
                                backward_.state_tiles, stream);
  }
  Status backward_second_half(CUstream stream) {
    return own_.launch_backward(backward_, plan_, 1 + half(), backward_.all_tiles - 1 - half(), 0,
                                stream);
  }

  template <Status (ConvRankRun::*kBody)(CUstream)>
  Step step() {
    return {[](void* user, CUstream stream) {
              return (static_cast<ConvRankRun*>(user)->*kBody)(stream);
            },
            this};
  }
  Step join_step() { return halo_.aligned ? Step{} : step<&ConvRankRun::join>(); }
  template <typename Params>
  Status launch_halo(const NumberedSlot<ConvHaloNumbers>& kernel, const Params& p,
                     CUstream stream) const {
    return kernel.launch(conv_halo_grid(kernel.numbers(), plan_.part.shape), &p, stream);
  }

  Status run_forward(const HaloBuffers& rows);
  Status run_backward(const HaloBuffers& rows);

  const ConvExecutor& own_;
  const HaloPlan halo_;
  ConvPlan plan_;
  ConvRankWorkspace workspace_;
  ConvForwardParams forward_ = {};
  ConvBackwardParams backward_ = {};
};

Status ConvRankRun::lay_out() {
  LATHE_ASSIGN(plan_, own_.plan(call_));
  // The one rank's executor reads its sections from the start of the workspace.
  reserve(plan_.total());
  LATHE_TRY(lay_out_steps());
  const ConvShape& shape = plan_.part.shape;
  const int64_t rows = own_.problem().width - 1;
  const auto sources = static_cast<int64_t>(halo_.sources.size());
  const auto destinations = static_cast<int64_t>(halo_.destinations.size());
  ConvRankWorkspace& w = workspace_;
  w.rows = section({rows, shape.batch, shape.channels, bytes_of(own_.problem().x)}, &w.row_bytes);
  w.received = section({sources, w.row_bytes});
  if (!halo_.aligned) w.halo = section({w.row_bytes});
  if (!kernels().backward) return layout_status();
  w.dhalo = section({rows, shape.batch, shape.channels, 4}, &w.dhalo_bytes);
  w.dreceived = section({destinations, w.dhalo_bytes});
  return layout_status();
}

Status ConvRankRun::pack(CUstream stream) {
  auto p = conv_params<ConvHaloPackParams>(call_, plan_.part);
  p.rows = at(workspace_.rows);
  return launch_halo(kernels().halo_pack, p, stream);
}

Status ConvRankRun::join(CUstream stream) {
  auto p = conv_params<ConvHaloJoinParams>(call_, plan_.part);
  p.messages = at(workspace_.received);
  p.halo = at(workspace_.halo);
  for (const HaloPeer& peer : halo_.sources) {
    p.part_begin[p.count] = static_cast<int>(peer.part.begin);
    p.part_end[p.count++] = static_cast<int>(peer.part.end);
  }
  return launch_halo(kernels().halo_join, p, stream);
}

Status ConvRankRun::add(CUstream stream) {
  auto p = conv_params<ConvHaloAddParams>(call_, plan_.part);
  p.messages = at(workspace_.dreceived);
  for (const HaloPeer& peer : halo_.destinations) {
    p.from_begin[p.count++] = static_cast<int>(peer.part.begin);
  }
  return launch_halo(kernels().halo_add, p, stream);
}

Status ConvRankRun::run_forward(const HaloBuffers& rows) {
  forward_ = own_.forward_params(call_, plan_);
  forward_.halo = halo();
  return conv_halo_forward(group_, halo_, rows, step<&ConvRankRun::pack>(),
                           step<&ConvRankRun::forward_interior>(), join_step(),
                           step<&ConvRankRun::forward_boundary>(), call_.stream);
}

Status ConvRankRun::run_backward(const HaloBuffers& rows) {
  backward_ = own_.backward_params(call_, plan_);
  backward_.halo = halo();
  backward_.dhalo = at(workspace_.dhalo);
  const HaloBuffers gradients{at(workspace_.dhalo), at(workspace_.dreceived),
                              static_cast<size_t>(workspace_.dhalo_bytes)};
  const bool there = has_halo();
  return conv_halo_backward(
      group_, halo_, there ? HaloBuffers{} : rows, gradients,
      there ? Step{} : step<&ConvRankRun::pack>(), step<&ConvRankRun::backward_first_half>(),
      there ? Step{} : join_step(), step<&ConvRankRun::backward_boundary>(),
      step<&ConvRankRun::backward_second_half>(), step<&ConvRankRun::add>(), call_.stream);
}

Status ConvRankRun::operator()() {
  const HaloBuffers rows{at(workspace_.rows), at(workspace_.received),
                         static_cast<size_t>(workspace_.row_bytes)};
  if (kernels().forward) LATHE_TRY(run_forward(rows));
  if (!kernels().backward) return {};
  LATHE_TRY(run_backward(rows));
  return own_.problem().weight_grad ? own_.weight_grad(call_, plan_) : Status();
}

Result<Estimate> ConvRankRun::estimate() const {
  LATHE_ASSIGN(Estimate out, own_.estimate_plan(call_, plan_));
  const bool sends = !halo_.destinations.empty(), joins = !halo_.sources.empty() && !halo_.aligned;
  const uint64_t exchange = (sends ? 1 : 0) + (joins ? 1 : 0);
  if (kernels().forward) out.launches += 1 + exchange;
  if (!kernels().backward) return out;
  // Behind a forward the halo is there already, and the tiles that hid its way go in one launch.
  out.launches += kernels().forward ? 1 : 2 + exchange;
  if (sends) ++out.launches;
  return out;
}

}  // namespace

MadeExecutor make_conv_over_ranks(std::unique_ptr<ConvExecutor> own, const DeviceFacts& facts,
                                  Group* group, bool reduce) {
  MadeExecutor pieces = make_conv_over_pieces(own->problem(), facts, group, reduce);
  return executor_of_layouts(
      executor_of<RankExecutor<ConvOverRanks, ConvRankRun>>(std::move(own), group),
      std::move(pieces));
}

}  // namespace lathe
