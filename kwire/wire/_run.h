/* A run of records, as _run.c makes it and _door.c fills it. `_door.py` is the specification of both.
 *
 * Include _speedups.h before.
 */
#ifndef KWIRE_RUN_H
#define KWIRE_RUN_H

#include "_record.h"

#define BATCH_OVERHEAD 61
#define RECORD_OVERHEAD_MAX 36
#define HEADER_OVERHEAD_MAX 10

#define OBJECT(thing) ((PyObject *)(thing))

enum { UNDESIGNATED = -1, UNROUTED = -2 };

typedef struct run run_t;

typedef struct {
    uint32_t from;
    int64_t timestamp;
} mark_t;

typedef struct {
    uint32_t start, end;
    int64_t base_offset, append_time;
    PyObject *error; /* NULL for none */
} part_t;

typedef struct {
    uint32_t number;
    PyObject *place, *callback;
} report_t;

typedef struct {
    run_t *run;
    uint32_t number;
} child_t;

/* `data` has room for the header of a batch in front. It may move while the run is open, and not while it is exported,
 * which an open run never is. No object here is a garbage collector's: whatever a run is part of a circle with, its
 * resolution lets go of. */
struct run {
    PyObject_HEAD
    PyObject *topic, *terms, *dispatch, *since, *late;
    int partition;
    char is_closed, has_headers, is_freed;
    Py_ssize_t size_bytes, bytes_max;
    int64_t base_timestamp, max_timestamp;
    unsigned char *data;
    size_t used, room;
    uint32_t count, dropped;
    Py_ssize_t exports;
    mark_t *marks;
    part_t *parts;
    report_t *reports;
    child_t *children;
    uint32_t marks_used, marks_room, parts_used, reports_used, reports_room;
};

typedef struct {
    PyObject_HEAD
    run_t *run;
    uint32_t number;
} place_t;

/* What is to be written of a record: its fields, or `tail`, which is all from the length of the key on. */
typedef struct {
    int64_t timestamp;
    span key, value, tail;
    PyObject *headers; /* a tuple, or NULL */
    int has_headers;   /* in the tail */
} entry_t;

/* None of these runs Python code. 0 or -1 with an exception, before anything was changed. */
int run_put(run_t *run, const entry_t *entry, Py_ssize_t size_bytes, size_t room_hint);
int run_report(run_t *run, uint32_t number, PyObject *place, PyObject *callback);
/* Its records are elsewhere now. */
void run_forget(run_t *run);
PyObject *run_new(PyTypeObject *type, PyObject *topic, int partition, Py_ssize_t bytes_max, PyObject *terms,
                  PyObject *dispatch);

#endif
