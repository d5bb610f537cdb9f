// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the words of asynchronous copies, their barriers, clusters and proxy fences.
#include "sim/ptx/opcodes/opcodes.h"
#include "sim/ptx/parse/parser.h"

namespace sim {
namespace {

constexpr uint64_t kOrder = kScope | kRelaxed | kAcquire | kRelease | kWeak;

// An opcode begins with the name of its family. The longest name wins.
constexpr OpInfo kFamilies[] = {
    {"mbarrier.init", Op::mbarrier_init, Class::async, nullptr, 0},
    {"mbarrier.inval", Op::mbarrier_inval, Class::async, nullptr, 0},
    {"mbarrier.expect_tx", Op::mbarrier_expect_tx, Class::async, nullptr, kOrder},
    {"mbarrier.complete_tx", Op::mbarrier_complete_tx, Class::async, nullptr, kOrder},
    {"mbarrier.arrive", Op::mbarrier_arrive, Class::async, nullptr, kOrder},
    {"mbarrier.arrive_drop", Op::mbarrier_arrive_drop, Class::async, nullptr, kOrder},
    {"mbarrier.test_wait", Op::mbarrier_test_wait, Class::async, nullptr, kOrder},
    {"mbarrier.try_wait", Op::mbarrier_try_wait, Class::async, nullptr, kOrder},
    {"mbarrier.pending_count", Op::mbarrier_pending_count, Class::async, nullptr, 0},
    {"cp.async.mbarrier.arrive", Op::cp_mbarrier_arrive, Class::async, nullptr, 0},
    {"cp.async.bulk", Op::bulk_copy, Class::async, nullptr, kCacheHint},
    {"cp.async.bulk.prefetch", Op::bulk_prefetch, Class::async, nullptr, kCacheHint | kCache},
    {"cp.async.bulk.prefetch.tensor", Op::tensor_prefetch, Class::async, nullptr,
     kCacheHint | kCache},
    {"cp.async.bulk.tensor", Op::tensor_copy, Class::async, nullptr, kCacheHint},
    {"cp.reduce.async.bulk", Op::bulk_reduce, Class::async, nullptr, kCacheHint | kNoftz},
    {"cp.reduce.async.bulk.tensor", Op::tensor_reduce, Class::async, nullptr, kCacheHint},
    {"cp.async.bulk.commit_group", Op::bulk_commit, Class::async, nullptr, 0},
    {"cp.async.bulk.wait_group", Op::bulk_wait, Class::async, nullptr, 0},
    {"st.async", Op::st_async, Class::async, nullptr, kOrder},
    {"red.async", Op::red_async, Class::async, nullptr, kOrder},
    {"tensormap.replace.tile", Op::tensormap_replace, Class::async, nullptr, 0},
    {"tensormap.cp_fenceproxy", Op::tensormap_copy, Class::async, nullptr,
     kOrder | kSync | kAligned},
    {"barrier.cluster.arrive", Op::cluster_arrive, Class::barrier, nullptr, kOrder | kAligned},
    {"barrier.cluster.wait", Op::cluster_wait, Class::barrier, nullptr, kOrder | kAligned},
    {"mapa", Op::mapa, Class::move, nullptr, 0},
    {"getctarank", Op::getctarank, Class::move, nullptr, 0},
    {"setmaxnreg", Op::setmaxnreg, Class::control, nullptr, kSync | kAligned},
    {"fence.proxy", Op::fence, Class::barrier, nullptr, kOrder},
    {"fence.mbarrier_init", Op::fence, Class::barrier, nullptr, kOrder},
    {"prefetch.tensormap", Op::prefetch, Class::memory, nullptr, 0},
};

const OpInfo* family_of(std::string_view opcode) {
  const OpInfo* best = nullptr;
  for (const OpInfo& f : kFamilies) {
    const bool fits = opcode.substr(0, f.name.size()) == f.name &&
                      (opcode.size() == f.name.size() || opcode[f.name.size()] == '.');
    if (fits && (!best || f.name.size() > best->name.size())) best = &f;
  }
  return best;
}

constexpr Word<MapField> kMapFields[] = {{"global_address", MapField::global_address},
                                         {"rank", MapField::rank},
                                         {"box_dim", MapField::box_dim},
                                         {"global_dim", MapField::global_dim},
                                         {"global_stride", MapField::global_stride},
                                         {"element_stride", MapField::element_stride},
                                         {"elemtype", MapField::element_type},
                                         {"interleave_layout", MapField::interleave},
                                         {"swizzle_mode", MapField::swizzle},
                                         {"fill_mode", MapField::fill_mode}};

// Words with a meaning in this family alone. Anything after the family's own word is positional
// only where two of a kind occur, such as spaces.
bool own_word(std::string_view w, Form* f) {
  static constexpr Word<uint32_t> kDetails[] = {{"noinc", kNoinc},
                                                {"expect_tx", kExpectTx},
                                                {"noComplete", kNoComplete},
                                                {"parity", kParity},
                                                {"multicast::cluster", kMulticast},
                                                {"bulk_group", kBulkGroup},
                                                {"mbarrier::complete_tx::bytes", kCompleteTx},
                                                {"read", kReadOnly},
                                                {"cp_mask", kByteMask},
                                                {"inc", kIncrease},
                                                {"dec", 0},
                                                {"tile", 0},
                                                {"b1024", 0},
                                                {"async", kFenceAsync},
                                                {"async::generic", kFenceAsync},
                                                {"tensormap::generic", kFenceTensorMap},
                                                {"alias", 0},
                                                {"generic", 0},
                                                {"sync_restrict::shared::cta", 0},
                                                {"sync_restrict::shared::cluster", 0}};
  const bool reduces =
      f->op == Op::bulk_reduce || f->op == Op::tensor_reduce || f->op == Op::red_async;
  if (reduces && atomic_name(w, &f->atomic)) return true;
  if (f->op == Op::tensormap_replace && look_up(kMapFields, w, &f->field)) return true;
  if (w == "cluster") f->detail |= kClusterScope;
  const bool rank = w.size() == 2 && w[1] == 'd' && w[0] >= '1' && w[0] <= '5';
  const bool tensor =
      f->op == Op::tensor_copy || f->op == Op::tensor_reduce || f->op == Op::tensor_prefetch;
  if (tensor && rank) {
    f->k = static_cast<uint16_t>(w[0] - '0');
    return true;
  }
  uint32_t detail = 0;
  if (!look_up(kDetails, w, &detail)) return false;
  f->detail |= detail;
  return true;
}

}  // namespace

bool is_async_family(std::string_view opcode) { return family_of(opcode) != nullptr; }

bool parse_async_form(std::string_view opcode, Form* form, const OpInfo** info) {
  const OpInfo* family = family_of(opcode);
  *info = family;
  form->op = family->op;
  if (family->name == "fence.mbarrier_init") form->detail = kFenceInit;
  std::string_view rest = opcode.substr(family->name.size());
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view w = rest.substr(0, rest.find('.'));
    rest.remove_prefix(w.size());
    if (!own_word(w, form) && !modifier(w, *family, form)) return false;
  }
  return true;
}

}  // namespace sim
