/* Many records at once, in C: `all_bytes`, `Door.append_many`, `Run.outcomes`; `_door.py` and `_bulk.py` are their specification.
 *
 * Keys and values go from a list of bytes, or from Arrow's buffers, straight into runs. Objects are made only after the
 * last record is in, so that nothing else runs in between but what the door itself asks (`may_share`).
 */
#include "_speedups.h"

#include "_run.h"

#include "_door.h"

/* ---- columns ----------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *list;
    Py_buffer validity, ends, data; /* `obj` NULL: not there */
    int is_wide;
    Py_ssize_t first;
} cells_t;

typedef struct {
    int64_t all; /* where there is no buffer */
    Py_buffer each;
} numbers_t;

typedef struct {
    cells_t values, keys;
    PyObject *headers; /* NULL or a list of tuples */
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
    PyBuffer_Release(&columns->timestamps.each);
    PyBuffer_Release(&columns->partitions.each);
}

static int
outside(void)
{
    PyErr_SetString(PyExc_ValueError, "a column ends before its last record, or an item or a number is outside of its bounds");
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
open_columns(PyObject *given, columns_t *columns)
{
    if (PyTuple_Size(given) != 5) {
        PyErr_SetString(PyExc_TypeError, "columns are values, keys, headers, timestamps and partitions");
        return -1;
    }
    PyObject *headers = PyTuple_GetItem(given, 2);
    if (headers != Py_None && !PyList_CheckExact(headers)) {
        PyErr_SetString(PyExc_TypeError, "headers are a list with a tuple for each record");
        return -1;
    }
    columns->headers = headers == Py_None ? NULL : headers;
    if (open_cells(PyTuple_GetItem(given, 0), &columns->values) < 0 ||
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
        *found = (span){PyBytes_AsString(item), PyBytes_Size(item)};
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
    /* An empty buffer may have no address, which would be null's. */
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

/* A record, what it counts as, and its slot. */
static int
get_record(const columns_t *columns, Py_ssize_t index, entry_t *entry, Py_ssize_t *size, int64_t *slot)
{
    if (get_cell(&columns->values, index, &entry->value) < 0 || get_cell(&columns->keys, index, &entry->key) < 0 ||
        get_number(&columns->timestamps, index, 8, &entry->timestamp) < 0 ||
        get_number(&columns->partitions, index, 4, slot) < 0) {
        return -1;
    }
    int64_t total = RECORD_OVERHEAD_MAX + (entry->value.size > 0 ? entry->value.size : 0) +
                    (entry->key.size > 0 ? entry->key.size : 0);
    if (columns->headers != NULL) {
        entry->headers = PyList_GetItem(columns->headers, index);
        if (entry->headers == NULL || !PyTuple_CheckExact(entry->headers)) {
            PyErr_SetString(PyExc_TypeError, "headers are a list with a tuple for each record");
            return -1;
        }
        for (Py_ssize_t at = 0; at < PyTuple_Size(entry->headers); at++) {
            span name = {NULL, -1}, value = {NULL, -1};
            if (!is_header(entry->headers, at, &name, &value)) {
                PyErr_SetString(PyExc_TypeError, "headers are a tuple of (str, bytes or None)");
                return -1;
            }
            total += HEADER_OVERHEAD_MAX + name.size + (value.size > 0 ? value.size : 0);
        }
    }
    *size = (Py_ssize_t)total;
    return 0;
}

/* ---- where they are ---------------------------------------------------------------------------------------------- */

typedef struct {
    run_t *run; /* owned */
    uint32_t first, count;
} stretch_t;

typedef struct {
    stretch_t *stretches;
    uint32_t used, room;
    uint32_t *order;   /* the stretch of each record */
    uint32_t *by_slot; /* the last stretch of a slot and 1, from UNROUTED on; NULL before the first */
    int is_mixed;
} placed_t;

/* Room for one more, before anything is changed. */
static int
make_room(placed_t *placed)
{
    if (placed->used && placed->by_slot == NULL) {
        placed->by_slot = PyMem_Calloc(PARTITIONS_MAX - UNROUTED, sizeof(uint32_t));
        if (placed->by_slot == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        int slot = placed->stretches[0].run->partition; /* there is one as yet */
        if (slot < PARTITIONS_MAX) {
            placed->by_slot[slot - UNROUTED] = 1;
        }
    }
    if (placed->used < placed->room) {
        return 0;
    }
    uint32_t room = placed->room ? placed->room * 2 : 8;
    stretch_t *grown = PyMem_Realloc(placed->stretches, room * sizeof(stretch_t));
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    placed->stretches = grown;
    placed->room = room;
    return 0;
}

static int
continues(const placed_t *placed, uint32_t at, const run_t *run)
{
    const stretch_t *stretch = &placed->stretches[at];
    return stretch->run == run && stretch->first + stretch->count == run->count - 1;
}

/* Notes the last record of a run as the next one; there is room. */
static void
note(placed_t *placed, run_t *run, Py_ssize_t number)
{
    uint32_t at = placed->used;
    uint32_t *known = NULL;
    if (at && continues(placed, at - 1, run)) {
        at--;
    }
    else if (placed->by_slot != NULL && run->partition < PARTITIONS_MAX) {
        known = &placed->by_slot[run->partition - UNROUTED];
        at = *known && continues(placed, *known - 1, run) ? *known - 1 : at;
    }
    if (at == placed->used) {
        Py_INCREF(OBJECT(run));
        placed->stretches[placed->used++] = (stretch_t){run, run->count - 1, 0};
    }
    placed->stretches[at].count++;
    placed->is_mixed |= at + 1 != placed->used;
    placed->order[number] = at;
    if (known != NULL) {
        *known = at + 1;
    }
}

static void
free_placed(placed_t *placed)
{
    for (uint32_t at = 0; at < placed->used; at++) {
        Py_DECREF(OBJECT(placed->stretches[at].run));
    }
    PyMem_Free(placed->stretches);
    PyMem_Free(placed->order);
    PyMem_Free(placed->by_slot);
}

static PyObject *
answer_of(const placed_t *placed, Py_ssize_t start, Py_ssize_t count, Py_ssize_t too_large)
{
    PyObject *stretches = PyList_New(0);
    for (uint32_t at = 0; stretches != NULL && at < placed->used; at++) {
        const stretch_t *one = &placed->stretches[at];
        PyObject *item = Py_BuildValue("(OII)", one->run, one->first, one->count);
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

/* (topic, columns, start, end) -> (after, too large, [(run, first, count)], order | None) */
PyObject *
door_append_many(door_t *door, PyObject *args)
{
    PyObject *name, *given, *answer = NULL;
    Py_ssize_t start, end, index, size = 0, too_large = 0;
    if (!PyArg_ParseTuple(args, "UO!nn", &name, &PyTuple_Type, &given, &start, &end)) {
        return NULL;
    }
    if (start < 0 || end < start || end - start > INT32_MAX / 4 || end > PY_SSIZE_T_MAX / 4) {
        PyErr_SetString(PyExc_ValueError, "not a range of records");
        return NULL;
    }
    columns_t columns = {0};
    placed_t placed = {0};
    news_t news = {0};
    topic_t *topic = NULL;
    placed.order = PyMem_Malloc((size_t)(end - start) * sizeof(uint32_t));
    if (placed.order == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (open_columns(given, &columns) < 0 || (topic = door_topic(door, name)) == NULL) {
        goto done;
    }
    int outcome = 1;
    for (index = start; index < end; index++) {
        entry_t entry = {0};
        int64_t slot;
        run_t *run;
        outcome = get_record(&columns, index, &entry, &size, &slot);
        if (outcome < 0) {
            break;
        }
        if (size > door_record_bytes_max(door)) {
            too_large = size;
            break;
        }
        outcome = make_room(&placed) < 0 ? -1 : door_admit(door, name, topic, (int)slot, &entry, size, &run, &news);
        if (outcome < 1) {
            break;
        }
        note(&placed, run, index - start);
    }
    if (outcome < 0 && index > start) {
        PyErr_Clear(); /* those before it are in: it is found again when it comes first */
        outcome = 0;
    }
    if (outcome >= 0 && door_tell(door, &news) == 0) {
        answer = answer_of(&placed, start, index - start, too_large);
    }
done:
    free_placed(&placed);
    close_columns(&columns);
    return answer;
}

/* ---- what became of them ----------------------------------------------------------------------------------------- */

/* Adds what is known of start .. end - 1, which are told as `told` and on. Making an object may run code that resolves
 * more: so each part is looked for anew. */
static int
add_parts(const run_t *run, uint32_t start, uint32_t end, uint32_t told, PyObject *found)
{
    for (uint32_t at = start; at < end;) {
        const part_t *next = NULL;
        for (uint32_t index = 0; index < run->parts_used; index++) {
            const part_t *part = &run->parts[index];
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
        PyObject *item = Py_BuildValue("(IIiLLO)", first - start + told, last - start + told, run->partition, offset,
                                       (long long)part.append_time, part.error == NULL ? Py_None : part.error);
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
run_outcomes(run_t *run, PyObject *args)
{
    unsigned int start, end;
    if (!PyArg_ParseTuple(args, "II", &start, &end)) {
        return NULL;
    }
    if (end > run->count) {
        PyErr_SetString(PyExc_IndexError, "the run has no such record");
        return NULL;
    }
    PyObject *found = PyList_New(0);
    if (found == NULL) {
        return NULL;
    }
    int failed = 0;
    if (run->children == NULL) {
        failed = add_parts(run, start, end, start, found) < 0;
    }
    while (run->children != NULL && !failed && start < end) {
        child_t child = run->children[start];
        uint32_t after = start + 1;
        while (after < end && run->children[after].run == child.run &&
               run->children[after].number == child.number + (after - start)) {
            after++;
        }
        failed = add_parts(child.run, child.number, child.number + (after - start), start, found) < 0;
        start = after;
    }
    if (failed) {
        Py_DECREF(found);
        return NULL;
    }
    return found;
}

/* ---- before they go in ------------------------------------------------------------------------------------------- */

static PyObject *
all_bytes(PyObject *Py_UNUSED(module), PyObject *items)
{
    if (!PyList_CheckExact(items)) {
        PyErr_SetString(PyExc_TypeError, "items are a list");
        return NULL;
    }
    for (Py_ssize_t index = 0; index < PyList_Size(items); index++) {
        PyObject *item = PyList_GetItem(items, index);
        if (item != Py_None && !PyBytes_CheckExact(item)) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

static PyMethodDef functions[] = {
    {"all_bytes", (PyCFunction)(void (*)(void))all_bytes, METH_O, "Whether nothing but bytes and None is in a list."},
    {NULL, NULL, 0, NULL},
};

int
add_bulk(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
