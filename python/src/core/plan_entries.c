/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The hash table of a PlanTable, with open addressing. */
#include "plan_entries.h"

#include <string.h>

enum { FIRST_ROOM = 16 };

Entry* find_entry(const Entries* table, const Key* key, PyObject* options) {
  for (size_t at = key->hash & (table->room - 1);; at = (at + 1) & (table->room - 1)) {
    Entry* entry = &table->places[at];
    if (!entry->words) return entry;
    if (entry->hash != key->hash || entry->count != key->count ||
        memcmp(entry->words, key->words, key->count * sizeof *key->words) != 0) {
      continue;
    }
    const int same = PyObject_RichCompareBool(entry->options, options, Py_EQ);
    if (same < 0) return NULL;
    if (same) return entry;
  }
}

static int grow(Entries* table) {
  if (2 * (table->used + 1) <= table->room) return 0;
  const size_t room = table->room == 0 ? FIRST_ROOM : 2 * table->room;
  Entry* entries = PyMem_Calloc(room, sizeof *entries);
  if (!entries) return PyErr_NoMemory(), -1;
  for (size_t i = 0; i < table->room; ++i) {
    if (!table->places[i].words) continue;
    size_t at = table->places[i].hash & (room - 1);
    while (entries[at].words) at = (at + 1) & (room - 1);
    entries[at] = table->places[i];
  }
  PyMem_Free(table->places);
  table->places = entries;
  table->room = room;
  return 0;
}

int put_entry(Entries* table, const Key* key, PyObject* options, PyObject* value) {
  if (grow(table) != 0) return -1;
  Entry* entry = find_entry(table, key, options);
  if (!entry) return -1;
  if (entry->words) return 0; /* another thread was first */
  entry->words = PyMem_Malloc(key->count * sizeof *key->words);
  if (!entry->words) return PyErr_NoMemory(), -1;
  memcpy(entry->words, key->words, key->count * sizeof *key->words);
  entry->hash = key->hash, entry->count = key->count;
  Py_INCREF(options), Py_INCREF(value);
  entry->options = options, entry->value = value;
  ++table->used;
  return 0;
}

void drop_entries(Entries* table) {
  Entry* places = table->places;
  const size_t room = table->room;
  table->places = NULL;
  table->used = table->room = 0;
  for (size_t i = 0; i < room; ++i) {
    PyMem_Free(places[i].words);
    Py_XDECREF(places[i].options), Py_XDECREF(places[i].value);
  }
  PyMem_Free(places);
}
