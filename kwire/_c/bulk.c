/* Many records in one call: `all_bytes`, `split_lines`, `RecordAccumulator.append_many` and `BatchBuilder.outcomes`.
 *
 * See ManyColumns in kwire/producer/accumulator.py for the columns.
 */
#include "module.h"
#include "batch_builder.h"
#include "bulk.h"

/* ---- columns ----------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *list;
    Py_buffer validity, ends, data; /* `obj` NULL: absent */
    int is_wide;
    Py_ssize_t first;
} cells_t;

typedef struct {
    int64_t all; /* if there is no buffer */
    Py_buffer each;
} numbers_t;

typedef struct {
    cells_t values, keys;
    PyObject *headers; /* NULL or a list of tuples, from the call's first record on; owned */
    Py_ssize_t first;
    numbers_t timestamps, partitions;
} columns_t;

static void
close_cells(cells_t *cells)
{
    PyBuffer_Release(&cells->validity);
    PyBuffer_Release(&cells->ends);
    PyBuffer_Release(&cells->data);
}

static void
close_columns(columns_t *columns)
{
    close_cells(&columns->values);
    close_cells(&columns->keys);
    Py_CLEAR(columns->headers);
    PyBuffer_Release(&columns->timestamps.each);
    PyBuffer_Release(&columns->partitions.each);
}

static int
open_headers(PyObject *column, columns_t *columns, Py_ssize_t start, Py_ssize_t end)
{
    if (column == Py_None) {
        return 0;
    }
    if (!PyList_CheckExact(column)) {
        PyErr_SetString(PyExc_TypeError, "headers are a list with a tuple for each record");
        return -1;
    }
    columns->first = start;
    columns->headers = PyList_GetSlice(column, start, end);
    PyObject *before = NULL, *sendable = NULL; /* often all records have the same headers */
    for (Py_ssize_t index = 0; columns->headers != NULL && index < PyList_Size(columns->headers); index++) {
        PyObject *headers = PyList_GetItem(columns->headers, index);
        if (!PyTuple_CheckExact(headers)) {
            PyErr_SetString(PyExc_TypeError, "headers are a list with a tuple for each record");
            return -1;
        }
        if (headers == before) {
            Py_INCREF(sendable);
        }
        else if ((sendable = sendable_headers(headers)) == NULL) {
            return -1;
        }
        before = headers;
        PyList_SetItem(columns->headers, index, sendable);
    }
    return columns->headers == NULL ? -1 : 0;
}

static int
outside(void)
{
    PyErr_SetString(PyExc_ValueError,
                    "a column ends before its last record, or an item or a number is outside of its bounds");
    return -1;
}

static int
open_cells(PyObject *column, cells_t *cells)
{
    if (column == Py_None) {
        return 0;
    }
    if (PyList_CheckExact(column)) {
        cells->list = column;
        return 0;
    }
    PyObject *validity, *ends, *data;
    if (!PyTuple_Check(column)) {
        PyErr_SetString(PyExc_TypeError, "a column is a list of bytes, or buffers");
        return -1;
    }
    if (!PyArg_ParseTuple(column, "OOOpn", &validity, &ends, &data, &cells->is_wide, &cells->first) ||
        PyObject_GetBuffer(ends, &cells->ends, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(data, &cells->data, PyBUF_SIMPLE) < 0 ||
        (validity != Py_None && PyObject_GetBuffer(validity, &cells->validity, PyBUF_SIMPLE) < 0)) {
        return -1;
    }
    return cells->first < 0 || cells->first > PY_SSIZE_T_MAX / 4 ? outside() : 0;
}

static int
open_numbers(PyObject *column, numbers_t *numbers, int64_t none)
{
    if (column == Py_None) {
        numbers->all = none;
        return 0;
    }
    if (PyLong_Check(column)) {
        numbers->all = PyLong_AsLongLong(column);
        return numbers->all == -1 && PyErr_Occurred() ? -1 : 0;
    }
    return PyObject_GetBuffer(column, &numbers->each, PyBUF_SIMPLE);
}

static int
open_columns(PyObject *given, columns_t *columns, Py_ssize_t start, Py_ssize_t end)
{
    if (PyTuple_Size(given) != 5) {
        PyErr_SetString(PyExc_TypeError, "columns are values, keys, headers, timestamps and partitions");
        return -1;
    }
    if (open_headers(PyTuple_GetItem(given, 2), columns, start, end) < 0 ||
        open_cells(PyTuple_GetItem(given, 0), &columns->values) < 0 ||
        open_cells(PyTuple_GetItem(given, 1), &columns->keys) < 0 ||
        open_numbers(PyTuple_GetItem(given, 3), &columns->timestamps, 0) < 0 ||
        open_numbers(PyTuple_GetItem(given, 4), &columns->partitions, CHOSEN) < 0) {
        return -1;
    }
    int64_t partition = columns->partitions.all;
    return partition != CHOSEN && (partition < 0 || partition > INT32_MAX) ? outside() : 0;
}

static int
get_cell(const cells_t *cells, Py_ssize_t index, span *found)
{
    *found = (span){NULL, -1};
    if (cells->list != NULL) {
        PyObject *item = PyList_GetItem(cells->list, index);
        if (item == NULL || item == Py_None) {
            return item == NULL ? -1 : 0;
        }
        if (!PyBytes_CheckExact(item)) {
            PyErr_SetString(PyExc_TypeError, "a column is of bytes or None");
            return -1;
        }
        *found = (span){PyBytes_AsString(item), Py_SIZE(item)};
        return 0;
    }
    if (cells->ends.obj == NULL) {
        return 0;
    }
    Py_ssize_t at = cells->first + index;
    if (cells->validity.obj != NULL) {
        if (at >> 3 >= cells->validity.len) {
            return outside();
        }
        if (!(((bytes_t)cells->validity.buf)[at >> 3] >> (at & 7) & 1)) {
            return 0;
        }
    }
    Py_ssize_t width = cells->is_wide ? 8 : 4;
    if (at + 2 > cells->ends.len / width) {
        return outside();
    }
    int64_t bounds[2];
    if (cells->is_wide) {
        memcpy(bounds, (bytes_t)cells->ends.buf + at * 8, 16);
    }
    else {
        int32_t narrow[2];
        memcpy(narrow, (bytes_t)cells->ends.buf + at * 4, 8);
        bounds[0] = narrow[0];
        bounds[1] = narrow[1];
    }
    if (bounds[0] < 0 || bounds[0] > bounds[1] || bounds[1] > cells->data.len) {
        return outside();
    }
    /* An empty buffer may have address NULL, which would mean a null item. */
    *found = (span){cells->data.buf == NULL ? "" : (const char *)cells->data.buf + bounds[0], bounds[1] - bounds[0]};
    return 0;
}

static int
get_number(const numbers_t *numbers, Py_ssize_t index, Py_ssize_t width, int64_t *found)
{
    *found = numbers->all;
    if (numbers->each.obj == NULL) {
        return 0;
    }
    if (index >= numbers->each.len / width) {
        return outside();
    }
    bytes_t at = (bytes_t)numbers->each.buf + index * width;
    if (width == 8) {
        memcpy(found, at, 8);
        return 0;
    }
    int32_t narrow;
    memcpy(&narrow, at, 4);
    *found = narrow < 0 ? CHOSEN : narrow;
    return 0;
}

/* A record, its upper bound, and its slot. */
static int
get_record(const columns_t *columns, Py_ssize_t index, entry_t *entry, Py_ssize_t *size, int64_t *slot)
{
    if (get_cell(&columns->values, index, &entry->value) < 0 || get_cell(&columns->keys, index, &entry->key) < 0 ||
        get_number(&columns->timestamps, index, 8, &entry->timestamp) < 0 ||
        get_number(&columns->partitions, index, 4, slot) < 0) {
        return -1;
    }
    Py_ssize_t total = counted_record(entry->key, entry->value);
    if (columns->headers != NULL) {
        entry->headers = PyList_GetItem(columns->headers, index - columns->first);
        if (entry->headers == NULL) {
            return -1;
        }
        for (Py_ssize_t at = 0; at < PyTuple_Size(entry->headers); at++) {
            span name = {NULL, -1}, value = {NULL, -1};
            if (!is_sendable(entry->headers, at, &name, &value)) {
                PyErr_SetString(PyExc_TypeError, "headers are a tuple of (str, bytes or None)");
                return -1;
            }
            total += counted_header(name, value);
        }
    }
    *size = total;
    return 0;
}

/* ---- spans ------------------------------------------------------------------------------------------------------- */

typedef struct {
    builder_t *builder; /* owned */
    uint32_t first, count;
} stretch_t;

typedef struct {
    stretch_t *stretches;
    uint32_t used, capacity, last; /* `last`: span of the last record */
    uint32_t *order;               /* the span of each record, once there are several slots; else NULL */
    uint32_t *by_slot;             /* 1 + the last span of each slot, from UNROUTED on; as `order` */
    int slots, slot;               /* length of `by_slot`; slot of the last record */
    int is_mixed;
} placed_t;

/* The first record of a second slot: from here on, store the span of each record. */
static int
begin_order(placed_t *placed, Py_ssize_t count)
{
    if ((placed->order = PyMem_Malloc((size_t)count * sizeof(uint32_t))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint32_t *next = placed->order;
    for (uint32_t at = 0; at < placed->used; at++) {
        for (uint32_t n = 0; n < placed->stretches[at].count; n++) {
            *next++ = at;
        }
    }
    return 0;
}

static int
grow_slots(placed_t *placed, int slot)
{
    int slots = (slot - UNROUTED + 1) * 2;
    uint32_t *grown = PyMem_Realloc(placed->by_slot, (size_t)slots * sizeof(uint32_t));
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(grown + placed->slots, 0, (size_t)(slots - placed->slots) * sizeof(uint32_t));
    placed->by_slot = grown;
    placed->slots = slots;
    return 0;
}

/* Make space for one more of the call's `count` records, before any change. */
static int
reserve(placed_t *placed, int slot, Py_ssize_t count)
{
    if (placed->used && slot != placed->slot && placed->order == NULL) {
        if (begin_order(placed, count) < 0) {
            return -1;
        }
        if (placed->slot < PARTITIONS_MAX) {
            if (grow_slots(placed, placed->slot) < 0) {
                return -1;
            }
            placed->by_slot[placed->slot - UNROUTED] = placed->used;
        }
    }
    if (placed->order != NULL && slot < PARTITIONS_MAX && slot - UNROUTED >= placed->slots &&
        grow_slots(placed, slot) < 0) {
        return -1;
    }
    return grow((void **)&placed->stretches, placed->used, &placed->capacity, sizeof(stretch_t));
}

/* Return the span that ends with the builder's last record, if it is known for this slot; else -1. */
static int64_t
open_stretch(const placed_t *placed, int slot)
{
    if (!placed->used) {
        return -1;
    }
    if (slot == placed->slot) {
        return placed->last;
    }
    return (int64_t)slot - UNROUTED < placed->slots ? (int64_t)placed->by_slot[slot - UNROUTED] - 1 : -1;
}

/* Note that the call's next record joined the slot's builder; there is space. */
static void
note(placed_t *placed, int64_t known, builder_t *builder, int slot, Py_ssize_t number)
{
    const stretch_t *call = known < 0 ? NULL : &placed->stretches[known];
    if (call == NULL || call->builder != builder || call->first + call->count != builder->count - 1) {
        Py_INCREF(OBJECT(builder));
        known = placed->used++;
        placed->stretches[known] = (stretch_t){builder, builder->count - 1, 0};
        if ((int64_t)slot - UNROUTED < placed->slots) {
            placed->by_slot[slot - UNROUTED] = placed->used;
        }
    }
    placed->stretches[known].count++;
    placed->last = (uint32_t)known;
    placed->slot = slot;
    if (placed->order != NULL) {
        placed->order[number] = (uint32_t)known;
        placed->is_mixed |= (uint32_t)known + 1 != placed->used;
    }
}

static void
free_placed(placed_t *placed)
{
    for (uint32_t at = 0; at < placed->used; at++) {
        Py_DECREF(OBJECT(placed->stretches[at].builder));
    }
    PyMem_Free(placed->stretches);
    PyMem_Free(placed->order);
    PyMem_Free(placed->by_slot);
}

static PyObject *
result_of(const placed_t *placed, Py_ssize_t start, Py_ssize_t count, Py_ssize_t too_large)
{
    PyObject *stretches = PyList_New(0);
    for (uint32_t at = 0; stretches != NULL && at < placed->used; at++) {
        const stretch_t *one = &placed->stretches[at];
        PyObject *item = Py_BuildValue("(OII)", one->builder, one->first, one->count);
        if (item == NULL || PyList_Append(stretches, item) < 0) {
            Py_CLEAR(stretches);
        }
        Py_XDECREF(item);
    }
    if (stretches == NULL) {
        return NULL;
    }
    if (!placed->is_mixed) {
        return Py_BuildValue("(nnNO)", start + count, too_large, stretches, Py_None);
    }
    return Py_BuildValue("(nnNy#)", start + count, too_large, stretches, (const char *)placed->order, count * 4);
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

/* Return whether all records have only a value, and the same time and partition: then they join the same builder until
 * it is full. False for round robin. */
static int
are_values(const accumulator_t *accumulator, const columns_t *columns)
{
    return columns->keys.list == NULL && columns->keys.ends.obj == NULL && columns->headers == NULL &&
           columns->timestamps.each.obj == NULL && columns->partitions.each.obj == NULL &&
           (columns->partitions.all != CHOSEN || !accumulator_takes_turns(accumulator));
}

/* The bytes to write between CRC updates: they are still in the processor's first cache then. */
#define AT_ONCE_MAX (48 * 1024)

/* Append plain values from `index` on as `builder_put_plain` does: each counts at most `size_max` and all together at
 * most `capacity`. Return the index of the first value not appended. */
static Py_ssize_t
put_values(builder_t *builder, const columns_t *columns, Py_ssize_t index, Py_ssize_t end, Py_ssize_t size_max,
           Py_ssize_t capacity)
{
    Py_ssize_t left = builder->bytes_max - builder_size(builder) - 1,
               memory = (Py_ssize_t)builder->capacity - builder_size(builder);
    left = left < memory ? left : memory;
    left = left < AT_ONCE_MAX ? left : AT_ONCE_MAX;
    if (builder->is_closed || builder->terms != Py_None || builder->last_timestamp != columns->timestamps.all) {
        return index;
    }
    const Py_ssize_t room_before = capacity;
    unsigned char alike[16] = {0}; /* attributes, time */
    const size_t alike_size =
        (size_t)(put_varint(alike + 1, builder->last_timestamp - builder->base_timestamp) - alike);
    unsigned char *const start = builder->data + BATCH_OVERHEAD + builder->used, *const limit = start + left,
                         *at = start;
    uint32_t count = builder->count;
    for (; index < end; index++, count++) {
        span value;
        if (get_cell(&columns->values, index, &value) < 0) {
            PyErr_Clear(); /* it is raised when it comes first */
            break;
        }
        Py_ssize_t size = counted_record((span){NULL, -1}, value);
        if (size > limit - at || size > capacity || size > size_max) {
            break;
        }
        capacity -= size;
        at = put_varint(at, (int64_t)(alike_size + varint_size(count) + 1 + span_size(value) + 1));
        memcpy(at, alike, sizeof(alike)); /* shorter than a record's upper bound */
        at = put_varint(at + alike_size, count);
        *at++ = 1; /* no key */
        at = put_span(at, value);
        *at++ = 0; /* no headers */
    }
    builder->used += (size_t)(at - start);
    builder->count = count;
    builder->buffered_bytes += room_before - capacity;
    return index;
}

/* Append start .. end - 1 while there is memory and none is too large; -1 with an exception. Set `*after` to the first
 * record not appended. */
static int
take_in(accumulator_t *accumulator, PyObject *name, topic_t *topic, const columns_t *columns, Py_ssize_t start,
        Py_ssize_t end, placed_t *placed, wakeup_t *wakeup_of, Py_ssize_t *after, Py_ssize_t *too_large)
{
    const Py_ssize_t size_max = accumulator_record_bytes_max(accumulator);
    const int is_alike = are_values(accumulator, columns);
    Py_ssize_t capacity = accumulator_capacity(accumulator, topic), used = 0;
    int failed = 0;
    Py_ssize_t index = start;
    for (; index < end; index++) {
        entry_t entry = {0};
        Py_ssize_t size;
        int64_t requested;
        if ((failed = get_record(columns, index, &entry, &size, &requested)) < 0) {
            break;
        }
        if (size > size_max || (size > capacity && (used || !accumulator_is_first(accumulator, topic, size)))) {
            *too_large = size > size_max ? size : 0;
            break;
        }
        int slot = accumulator_slot(accumulator, topic, requested, &entry); /* CHOSEN is negative */
        int64_t known = open_stretch(placed, slot);
        builder_t *builder = known < 0 ? NULL : placed->stretches[known].builder;
        if (builder != NULL && builder->terms == Py_None && !entry.chosen && builder_put_plain(builder, &entry, size)) {
            used += size;
            capacity -= size;
        }
        else {
            accumulator_use(accumulator, topic, used);
            used = 0;
            if ((failed = reserve(placed, slot, end - start)) < 0 ||
                (failed = accumulator_admit(accumulator, name, topic, slot, &entry, size, &builder, wakeup_of)) < 0) {
                break;
            }
            capacity = accumulator_capacity(accumulator, topic);
        }
        note(placed, known, builder, slot, index - start);
        if (is_alike && !entry.chosen) {
            Py_ssize_t before = builder->buffered_bytes,
                       next = put_values(builder, columns, index + 1, end, size_max, capacity);
            used += builder->buffered_bytes - before;
            capacity -= builder->buffered_bytes - before;
            placed->stretches[placed->last].count += (uint32_t)(next - index - 1);
            index = next - 1;
            accumulator_sum(accumulator, placed->stretches[placed->last].builder);
        }
    }
    accumulator_use(accumulator, topic, used);
    for (uint32_t at = 0; at < placed->used; at++) {
        accumulator_sum(accumulator, placed->stretches[at].builder);
    }
    *after = index;
    return failed;
}

/* (topic, columns, start, end) -> (after, too large, [(builder, first, count)], order | None) */
PyObject *
accumulator_append_many(accumulator_t *accumulator, PyObject *args)
{
    PyObject *name, *given, *result = NULL;
    Py_ssize_t start, end, after = 0, too_large = 0;
    if (!PyArg_ParseTuple(args, "UO!nn", &name, &PyTuple_Type, &given, &start, &end)) {
        return NULL;
    }
    if (start < 0 || end < start || end - start > INT32_MAX / 4 || end > PY_SSIZE_T_MAX / 4) {
        PyErr_SetString(PyExc_ValueError, "not a range of records");
        return NULL;
    }
    columns_t columns = {0};
    placed_t placed = {0};
    wakeup_t wakeup_of = {0};
    topic_t *topic = NULL;
    accumulator_hold_topics(accumulator, 1);
    if (open_columns(given, &columns, start, end) == 0 && (topic = accumulator_topic(accumulator, name)) != NULL) {
        int outcome = take_in(accumulator, name, topic, &columns, start, end, &placed, &wakeup_of, &after, &too_large);
        if (outcome < 0 && after > start) {
            PyErr_Clear(); /* earlier records are appended: it is raised when it comes first */
            outcome = 0;
        }
        if (outcome == 0 && accumulator_tell(accumulator, &wakeup_of) == 0) {
            result = result_of(&placed, start, after - start, too_large);
        }
    }
    accumulator_hold_topics(accumulator, -1);
    free_placed(&placed);
    close_columns(&columns);
    return result;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Append the results of start .. end - 1, numbered from `base` on, to `found`. Creating an object may run code that
 * resolves more records, so each part is looked up again. */
static int
add_parts(const builder_t *builder, uint32_t start, uint32_t end, uint32_t base, PyObject *found)
{
    for (uint32_t at = start; at < end;) {
        const part_t *next = NULL;
        for (uint32_t index = 0; index < builder->parts_used; index++) {
            const part_t *part = &builder->parts[index];
            if (part->start < end && part->end > at && (next == NULL || part->start < next->start)) {
                next = part;
            }
        }
        if (next == NULL) {
            return 0;
        }
        part_t part = *next;
        uint32_t first = part.start > at ? part.start : at, last = part.end < end ? part.end : end;
        long long offset = part.base_offset < 0 ? -1 : part.base_offset + (first - part.start);
        PyObject *item = Py_BuildValue("(IIiLLO)", first - start + base, last - start + base, builder->partition,
                                       offset, (long long)part.append_time, part.error == NULL ? Py_None : part.error);
        int failed = item == NULL || PyList_Append(found, item) < 0;
        Py_XDECREF(item);
        if (failed) {
            return -1;
        }
        at = last;
    }
    return 0;
}

PyObject *
builder_outcomes(builder_t *builder, PyObject *args)
{
    unsigned int start, end;
    if (!PyArg_ParseTuple(args, "II", &start, &end)) {
        return NULL;
    }
    if (end > builder->count) {
        PyErr_SetString(PyExc_IndexError, "the builder has no such record");
        return NULL;
    }
    PyObject *found = PyList_New(0);
    if (found == NULL) {
        return NULL;
    }
    int failed = 0;
    if (builder->children == NULL) {
        failed = add_parts(builder, start, end, start, found) < 0;
    }
    while (builder->children != NULL && !failed && start < end) {
        child_t child = builder->children[start];
        uint32_t after = start + 1;
        while (after < end && builder->children[after].builder == child.builder &&
               builder->children[after].number == child.number + (after - start)) {
            after++;
        }
        failed = add_parts(child.builder, child.number, child.number + (after - start), start, found) < 0;
        start = after;
    }
    if (failed) {
        Py_DECREF(found);
        return NULL;
    }
    return found;
}

/* ---- type checks ------------------------------------------------------------------------------------------------- */

static PyObject *
all_bytes(PyObject *Py_UNUSED(module), PyObject *items)
{
    if (!PyList_CheckExact(items)) {
        PyErr_SetString(PyExc_TypeError, "items are a list");
        return NULL;
    }
    for (Py_ssize_t index = 0; index < Py_SIZE(items); index++) {
        PyObject *item = PyList_GetItem(items, index);
        if (item != Py_None && !PyBytes_CheckExact(item)) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

/* Return where the delimiter is next in start .. end - 1, or `end`. */
static bytes_t
find_delimiter(bytes_t start, bytes_t end, const Py_buffer *delimiter)
{
    const size_t size = (size_t)delimiter->len;
    while ((size_t)(end - start) >= size) {
        bytes_t found = memchr(start, *(bytes_t)delimiter->buf, (size_t)(end - start) - size + 1);
        if (found == NULL) {
            break;
        }
        if (memcmp(found, delimiter->buf, size) == 0) {
            return found;
        }
        start = found + 1;
    }
    return end;
}

static Py_ssize_t
count_lines(const Py_buffer *data, const Py_buffer *delimiter, Py_ssize_t *size)
{
    bytes_t start = data->buf, end = start + data->len;
    Py_ssize_t lines = 0;
    for (*size = 0; start < end; lines++) {
        bytes_t found = find_delimiter(start, end, delimiter);
        *size += found - start;
        start = found < end ? found + delimiter->len : end;
    }
    return lines;
}

/* (data, delimiter) -> (None, ends, lines, False, 0): a column of the parts between delimiters. */
static PyObject *
split_lines(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, delimiter;
    PyObject *ends = NULL, *lines = NULL, *column = NULL;
    if (!PyArg_ParseTuple(args, "y*y*", &data, &delimiter)) {
        return NULL;
    }
    Py_ssize_t size, count;
    if (delimiter.len == 0 || data.len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, delimiter.len ? "more than 2 GiB" : "empty separator");
        goto done;
    }
    count = count_lines(&data, &delimiter, &size);
    ends = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    lines = PyBytes_FromStringAndSize(NULL, size);
    if (ends == NULL || lines == NULL) {
        goto done;
    }
    bytes_t start = data.buf, end = start + data.len;
    char *to_ends = PyBytes_AsString(ends), *first = PyBytes_AsString(lines), *to = first;
    memset(to_ends, 0, sizeof(int32_t));
    while (start < end) {
        bytes_t found = find_delimiter(start, end, &delimiter);
        memcpy(to, start, (size_t)(found - start));
        to += found - start;
        int32_t at = (int32_t)(to - first);
        memcpy(to_ends += sizeof(at), &at, sizeof(at));
        start = found < end ? found + delimiter.len : end;
    }
    column = Py_BuildValue("(OOOOi)", Py_None, ends, lines, Py_False, 0);
done:
    Py_XDECREF(ends);
    Py_XDECREF(lines);
    PyBuffer_Release(&data);
    PyBuffer_Release(&delimiter);
    return column;
}

static PyMethodDef functions[] = {
    {"split_lines", split_lines, METH_VARARGS, "(data, delimiter) -> a column of the parts between delimiters."},
    {"all_bytes", (PyCFunction)(void (*)(void))all_bytes, METH_O, "Whether nothing but bytes and None is in a list."},
    {NULL, NULL, 0, NULL},
};

int
add_bulk(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
