/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What a PlanTable has made, by the keys of calls and their options. */
#ifndef LATHE_PYTHON_PLAN_ENTRIES_H
#define LATHE_PYTHON_PLAN_ENTRIES_H

#include "plan_key.h"

typedef struct {
  uint64_t hash;
  size_t count;
  int64_t* words; /* NULL: the place is free */
  PyObject *options, *value;
} Entry;

typedef struct {
  Entry* places;
  size_t used, room; /* room: a power of 2, at least twice `used` */
} Entries;

/* Returns the entry of a key, or the free place for it; NULL with an exception if options cannot be
 * compared. There must be room: the table is not empty. */
Entry* find_entry(const Entries* table, const Key* key, PyObject* options);
/* Adds an entry, unless there is one with this key. Returns 0, or -1. */
int put_entry(Entries* table, const Key* key, PyObject* options, PyObject* value);
/* Forgets all entries. */
void drop_entries(Entries* table);

#endif /* LATHE_PYTHON_PLAN_ENTRIES_H */
