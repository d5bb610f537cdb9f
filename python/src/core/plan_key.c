/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the keys of a PlanTable from tensors. */
#include "plan_key.h"

#include <string.h>

static int lowest_bit(uint64_t value) {
  const uint64_t bit = value & (~value + 1);
  return bit == 0 || bit > BEST_ALIGNMENT ? BEST_ALIGNMENT : (int)bit;
}

int alignment_of(const DLTensor* tensor) {
  const int last = tensor->ndim - 1;
  if (last < 0) return BEST_ALIGNMENT;
  const uint64_t item = tensor->dtype.bits / 8u;
  const int wanted = lowest_bit((uint64_t)tensor->shape[last] * item);
  int found = lowest_bit((uint64_t)(uintptr_t)tensor->data + tensor->byte_offset);
  for (int d = 0; tensor->strides && d < last; ++d) {
    if (tensor->shape[d] <= 1) continue;
    const int stride = lowest_bit((uint64_t)tensor->strides[d] * item);
    if (stride < found) found = stride;
  }
  return found < wanted ? found : BEST_ALIGNMENT;
}

int read_alignments(const char* op, const char* const* names, size_t count, Alignments* out) {
  const lathe_operator_info* info = lathe_operator_find(op);
  if (!info) return raise_invalid("there is no operator \"%.40s\"", op), -1;
  *out = (Alignments){.least = info->least_alignment};
  for (size_t i = 0; i < count; ++i) {
    for (size_t at = 0; at < info->tensor_count; ++at) {
      if (strcmp(names[i], info->tensors[at].name) != 0) continue;
      out->wide |= (uint64_t)(info->tensors[at].wide != 0) << i;
      out->kept |= (uint64_t)(info->tensors[at].role == LATHE_INOUT) << i;
    }
  }
  return 0;
}

PyObject* raise_unaligned(const char* name, int found, const lathe_operator_info* op) {
  return raise_unsupported(
      "%s begins at an address, or has strides, that are multiples of %d bytes; %s takes multiples "
      "of %d: give a copy, clone() in torch or copy() in NumPy, which begins at a multiple of 16",
      name, found, op->name, op->least_alignment);
}

uint64_t unaligned(const Alignments* alignments, const Given* given) {
  uint64_t found = 0;
  for (size_t i = 0; alignments->least > 1 && i < given->count; ++i) {
    if (given->borrowed_at[i] < 0 || !(alignments->wide >> i & 1)) continue;
    const DLTensor* tensor = &given->tensors.borrowed[given->borrowed_at[i]].tensor;
    found |= (uint64_t)(alignment_of(tensor) < alignments->least) << i;
  }
  return found;
}

int copy_unaligned(const char* const* names, const Alignments* alignments, PyObject* copy,
                   Given* given, PyObject** copies) {
  const uint64_t found = copy ? unaligned(alignments, given) & ~alignments->kept : 0;
  for (size_t i = 0; i < given->count; ++i) {
    if (!(found >> i & 1)) continue;
    PyObject* made = PyObject_CallFunctionObjArgs(copy, given->objects[i], NULL);
    if (made && !*copies) *copies = PyList_New(0);
    const int failed = !made || !*copies || PyList_Append(*copies, made) != 0;
    Py_XDECREF(made); /* the list has it */
    if (failed) return -1;
    Borrowed* borrowed = &given->tensors.borrowed[given->borrowed_at[i]];
    give_back(borrowed, 1);
    if (borrow(made, names[i], borrowed) != 0) return memset(borrowed, 0, sizeof *borrowed), -1;
    given->objects[i] = given->tensors.objects[given->borrowed_at[i]] = made;
  }
  return 0;
}

static void add_tensor(const FixedDims* dims, size_t index, const DLTensor* tensor, int wide,
                       Key* key) {
  const uint64_t device =
      (uint64_t)tensor->device.device_type << 8 | (uint8_t)tensor->device.device_id;
  key->words[key->count++] =
      (int64_t)(1u | (uint64_t)tensor->ndim << 8 | (uint64_t)tensor->dtype.code << 16 |
                (uint64_t)tensor->dtype.bits << 24 | device << 32);
  const uint8_t fixed = dims->of[index][tensor->ndim];
  for (int d = 0; d < tensor->ndim; ++d) {
    if (fixed >> d & 1) key->words[key->count++] = tensor->shape[d];
  }
  const int alignment = wide ? alignment_of(tensor) : BEST_ALIGNMENT;
  if (alignment < key->alignment) key->alignment = alignment;
}

int make_key(const char* const* names, const FixedDims* dims, const Alignments* alignments,
             const Given* given, int aligned, Key* key) {
  key->count = 0;
  key->alignment = BEST_ALIGNMENT;
  for (size_t i = 0; i < given->count; ++i) {
    if (given->borrowed_at[i] < 0) {
      key->words[key->count++] = 0;
      continue;
    }
    const DLTensor* tensor = &given->tensors.borrowed[given->borrowed_at[i]].tensor;
    if (tensor->ndim > LATHE_MAX_RANK) {
      raise_invalid("%s has rank %d; allowed are up to %d", names[i], tensor->ndim, LATHE_MAX_RANK);
      return -1;
    }
    add_tensor(dims, i, tensor, alignments->wide >> i & 1, key);
  }
  if (aligned) key->alignment = BEST_ALIGNMENT;
  key->words[key->count++] = key->alignment;
  const Py_hash_t of_options = PyObject_Hash(given->options);
  if (of_options == -1) return -1;
  uint64_t hash = (uint64_t)of_options;
  for (size_t i = 0; i < key->count; ++i) {
    hash = (hash ^ (uint64_t)key->words[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  key->hash = hash;
  return 0;
}

int has_type(PyObject* object, PyObject* types) {
  if (!types || object == Py_None) return 1;
  for (Py_ssize_t at = 0; at < PyTuple_Size(types); ++at) {
    if ((PyObject*)Py_TYPE(object) == PyTuple_GetItem(types, at)) return 1;
  }
  return 0;
}

int borrow_given(const char* const* names, Given* given) {
  for (size_t i = 0; i < given->count; ++i) {
    const int there = given->objects[i] != Py_None;
    given->borrowed_at[i] = there ? (int)given->tensors.count : -1;
    if (there && borrow_more(given->objects[i], names[i], &given->tensors) != 0) return -1;
  }
  return 0;
}

PyObject* refuse_unaligned(const char* const* names, const Alignments* alignments, const char* op,
                           const Given* given) {
  const uint64_t found = unaligned(alignments, given);
  size_t at = 0;
  while (!(found >> at & 1)) ++at;
  const DLTensor* tensor = &given->tensors.borrowed[given->borrowed_at[at]].tensor;
  return raise_unaligned(names[at], alignment_of(tensor), lathe_operator_find(op));
}

/* True if no two elements of a tensor share a place and each row is contiguous. */
static int has_rows(const DLTensor* tensor) {
  const int last = tensor->ndim - 1;
  for (int d = 0; tensor->strides && d <= last; ++d) {
    if (tensor->shape[d] == 1) continue;
    if (tensor->strides[d] == 0 || (d == last && tensor->strides[d] != 1)) return 0;
  }
  return 1;
}

int lie_well(const Given* given, uint64_t rows, uint64_t kept) {
  for (size_t i = 0; i < given->count; ++i) {
    if (given->borrowed_at[i] < 0 || kept >> i & 1) continue;
    const DLTensor* tensor = &given->tensors.borrowed[given->borrowed_at[i]].tensor;
    const int only_rows = rows >> i & 1;
    int64_t dense = 1;
    if (only_rows && !has_rows(tensor)) return 0;
    for (int d = tensor->ndim - 1; !only_rows && tensor->strides && d >= 0; --d) {
      if (tensor->shape[d] != 1 && tensor->strides[d] != dense) return 0;
      dense *= tensor->shape[d];
    }
  }
  return 1;
}

void learn_dims(const char* const* names, size_t count, const lathe_problem* problem,
                FixedDims* out) {
  lathe_tensor_info info = {.size = sizeof info};
  for (size_t i = 0; lathe_problem_tensor_info(problem, i, &info) == LATHE_OK; ++i) {
    for (size_t at = 0; info.declared && at < count; ++at) {
      if (strcmp(names[at], info.name) != 0) continue;
      uint8_t fixed = 0;
      for (int d = 0; d < info.rank; ++d) fixed |= (uint8_t)(!info.varies[d] << d);
      out->of[at][info.rank] = fixed;
    }
  }
}
