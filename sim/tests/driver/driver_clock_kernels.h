// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kernels whose time depends on much: what L1 keeps, and blocks that wait for each other.
#pragma once

namespace sim::tests {

// Blocks that read 110 KiB of each of two arrays four times, from L1 as far as its sets have kept
// them.
inline constexpr char kAgain[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry again(.param .u64 a, .param .u64 b, .param .u64 out)
{
  .reg .pred %p;
  .reg .b32 %t, %b, %i, %round;
  .reg .f32 %f, %sum;
  .reg .b64 %first, %second, %out, %x, %y, %w;
  ld.param.u64 %first, [a];
  ld.param.u64 %second, [b];
  ld.param.u64 %out, [out];
  mov.u32 %t, %tid.x;
  mov.u32 %b, %ctaid.x;
  mul.wide.u32 %x, %t, 4;
  mul.wide.u32 %w, %b, 112640;
  add.u64 %w, %w, %x;
  add.u64 %first, %first, %w;
  add.u64 %second, %second, %w;
  mov.f32 %sum, 0f00000000;
  mov.u32 %round, 4;
ROUND:
  mov.u32 %i, 110;
  mov.u64 %x, %first;
  mov.u64 %y, %second;
NEXT:
  ld.global.f32 %f, [%x];
  add.f32 %sum, %sum, %f;
  ld.global.f32 %f, [%y];
  add.f32 %sum, %sum, %f;
  add.u64 %x, %x, 1024;
  add.u64 %y, %y, 1024;
  sub.u32 %i, %i, 1;
  setp.ne.u32 %p, %i, 0;
  @%p bra NEXT;
  sub.u32 %round, %round, 1;
  setp.ne.u32 %p, %round, 0;
  @%p bra ROUND;
  mad.lo.u32 %t, %b, 256, %t;
  mul.wide.u32 %w, %t, 4;
  add.u64 %out, %out, %w;
  st.global.f32 [%out], %sum;
  ret;
}
)";

// The blocks of a cluster hand a turn around by arrivals at each other's mbarriers, after a copy by
// the engine to all of them; block 0 alone goes on to write.
inline constexpr char kTurns[] = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry turns(.param .u64 from, .param .u64 to) .reqnctapercluster 2, 1, 1
{
  .reg .pred %p, %q, %second;
  .reg .b16 %both;
  .reg .b32 %bar, %rank, %there, %t, %i, %parity, %count;
  .reg .b64 %from, %to, %w;
  .shared .align 1024 .b8 room[4096];
  .shared .align 8 .b8 bars[16];
  ld.param.u64 %from, [from];
  ld.param.u64 %to, [to];
  mov.u32 %rank, %cluster_ctarank;
  setp.ne.u32 %second, %rank, 0;
  mov.u32 %bar, bars;
  mov.u32 %t, %tid.x;
  setp.ne.u32 %p, %t, 0;
  @%p bra READY;
  mbarrier.init.shared.b64 [%bar], 1;
  mbarrier.init.shared.b64 [%bar+8], 2;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 4096;
  fence.mbarrier_init.release.cluster;
READY:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  or.pred %q, %p, %second;
  mov.u16 %both, 3;
  mov.u32 %i, room;
  @%q bra WAIT;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%i], [%from], 4096, [%bar], %both;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0;
  @!%q bra WAIT;
  mov.u32 %count, 0;
  add.u32 %bar, %bar, 8;
ROUND:
  setp.gt.u32 %p, %t, 1;
  @%p bra TURN;
  mapa.shared::cluster.u32 %there, %bar, %t;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%there];
TURN:
  and.b32 %parity, %count, 1;
TRY:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%bar], %parity;
  @!%q bra TRY;
  add.u32 %count, %count, 1;
  setp.ne.u32 %p, %count, 20;
  @%p bra ROUND;
  @%second bra OVER;
  mov.u32 %i, %ctaid.x;
  mad.lo.u32 %i, %i, 32, %t;
  mul.wide.u32 %w, %i, 4;
  add.u64 %to, %to, %w;
  st.global.u32 [%to], %count;
OVER:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  ret;
}
)";

}  // namespace sim::tests
