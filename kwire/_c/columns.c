/* Consumed records as columns in Arrow's layout, without a Python object per record: see `columns` in reader.py. */
#include "reader.h"

typedef struct {
    const slice *of;
    const char *topic;
    Py_ssize_t topic_size;
} part;

/* A column of byte strings in Arrow's layout: bits that say which are not null, int32 ends, all bytes. */
typedef struct {
    int64_t rows, nulls, size; /* counted before filling */
    PyObject *objects[3];      /* validity or None, ends, data */
    unsigned char *validity, *data;
    int32_t *ends;
    int64_t row, at; /* position while filling */
} column;

/* Bits of the columns that are wanted: those of COLUMN_BITS in reader.py. Others are neither counted nor made. */
enum { TOPIC = 1, PARTITION = 2, OFFSET = 4, TIMESTAMP = 8, TIMESTAMP_TYPE = 16, KEY = 32, VALUE = 64, EVERY = 127 };

typedef struct {
    PyTypeObject *pooled_type;
    long wanted;
    int64_t rows, with_headers;
    column topic, key, value, name, content;
    PyObject *fixed[4]; /* partition, offset, timestamp, timestamp type */
    PyObject *lists[2]; /* of headers: validity and ends */
    int32_t *partitions, *types, *list_ends;
    int64_t *offsets, *timestamps;
    unsigned char *list_bits;
    int has_foreign_name; /* a header name that may be invalid UTF-8 */
} table;

static void
count_in(column *self, int64_t size)
{
    self->rows++;
    self->nulls += size < 0;
    self->size += size > 0 ? size : 0;
}

static void
count_headers(table *self, const layout *where)
{
    bytes_t at = where->headers;
    int64_t size;
    for (int32_t index = 0; index < where->header_count; index++) {
        at = known_varint(at, &size);
        count_in(&self->name, size);
        for (bytes_t end = at + size; at < end; at++) {
            self->has_foreign_name |= *at > 0x7F;
        }
        at = known_varint(at, &size);
        count_in(&self->content, size);
        at += size > 0 ? size : 0;
    }
    self->with_headers += where->header_count > 0;
}

static void
count_piece(table *self, const part *from, int has_headers)
{
    const slice *of = from->of;
    const int has_key = (self->wanted & KEY) != 0, has_value = (self->wanted & VALUE) != 0;
    self->rows += of->count;
    if (self->wanted & TOPIC) {
        self->topic.rows += of->count;
        self->topic.size += (int64_t)from->topic_size * of->count;
    }
    if (!has_headers && !has_key && !has_value) {
        return;
    }
    if (of->all != NULL && !has_headers) {
        if (has_key) {
            self->key.rows += of->count;
            self->key.nulls += of->all->null_keys;
            self->key.size += of->all->key_bytes;
        }
        if (has_value) {
            self->value.rows += of->count;
            self->value.nulls += of->all->null_values;
            self->value.size += of->all->value_bytes;
        }
        return;
    }
    walk on = of->on;
    for (Py_ssize_t index = 0; index < of->count; index++) {
        layout where;
        next_layout(&on, &where);
        if (has_key) {
            count_in(&self->key, where.key_size);
        }
        if (has_value) {
            count_in(&self->value, where.value_size);
        }
        if (has_headers) {
            count_headers(self, &where);
        }
    }
}

static int
is_countable(const column *self)
{
    return self->size <= INT32_MAX && self->rows < INT32_MAX;
}

static void *
new_buffer(const table *self, PyObject **object, int64_t size)
{
    return new_pooled(self->pooled_type, (Py_ssize_t)size, object);
}

static unsigned char *
new_validity(const table *self, PyObject **object, int64_t rows, int64_t nulls)
{
    if (nulls == 0) {
        *object = Py_NewRef(Py_None);
        return NULL;
    }
    unsigned char *bits = new_buffer(self, object, (rows + 7) / 8);
    if (bits != NULL) {
        memset(bits, 0, (size_t)(rows + 7) / 8);
    }
    return bits;
}

static int
make_column(const table *self, column *made)
{
    made->validity = new_validity(self, &made->objects[0], made->rows, made->nulls);
    made->ends = new_buffer(self, &made->objects[1], (made->rows + 1) * (int64_t)sizeof(int32_t));
    made->data = new_buffer(self, &made->objects[2], made->size);
    if (made->objects[0] == NULL || made->ends == NULL || made->data == NULL) {
        return 0;
    }
    made->ends[0] = 0;
    return 1;
}

/* Make a column that is wanted; one that is not is None, and its `ends` stay NULL. */
static int
make_wanted(const table *self, long bit, column *made)
{
    if (self->wanted & bit) {
        return make_column(self, made);
    }
    made->objects[0] = Py_NewRef(Py_None);
    return 1;
}

static void *
new_numbers(const table *self, long bit, PyObject **object, int64_t size)
{
    if (self->wanted & bit) {
        return new_buffer(self, object, self->rows * size);
    }
    *object = Py_NewRef(Py_None);
    return NULL;
}

static inline void
put_in(column *self, bytes_t from, int64_t size)
{
    if (size >= 0) {
        memcpy(self->data + self->at, from, (size_t)size);
        self->at += size;
        if (self->validity != NULL) {
            self->validity[self->row >> 3] |= (unsigned char)(1 << (self->row & 7));
        }
    }
    self->ends[++self->row] = (int32_t)self->at;
}

static void
put_headers(table *self, const layout *where)
{
    bytes_t at = where->headers;
    int64_t size;
    for (int32_t index = 0; index < where->header_count; index++) {
        at = known_varint(at, &size);
        put_in(&self->name, at, size);
        at = known_varint(at + size, &size);
        put_in(&self->content, at, size);
        at += size > 0 ? size : 0;
    }
}

/* Write the same bytes for each of `rows` rows. */
static void
put_constant(column *self, const char *bytes, int64_t size, int64_t count)
{
    unsigned char *begin = self->data + self->at;
    int64_t whole = size * count, done = size < whole ? size : whole;
    memcpy(begin, bytes, (size_t)done);
    while (done < whole) { /* copy what is already written */
        int64_t more = done < whole - done ? done : whole - done;
        memcpy(begin + done, begin, (size_t)more);
        done += more;
    }
    int32_t *ends = self->ends + self->row + 1, at = (int32_t)self->at, step = (int32_t)size;
    for (int64_t index = 0; index < count; index++) {
        ends[index] = at += step;
    }
    self->row += count;
    self->at += whole;
}

/* Write a number into rows `row` to `end`, if the column is wanted. */
static void
put_number(int32_t *column, int32_t number, int64_t row, int64_t end)
{
    for (; column != NULL && row < end; row++) {
        column[row] = number;
    }
}

/* Write the records of a slice, from row `row` on. */
static void
put_piece(table *self, const part *from, int64_t row)
{
    const reader *of = from->of->from;
    const int64_t end = row + from->of->count;
    if (self->topic.ends != NULL) {
        put_constant(&self->topic, from->topic, from->topic_size, end - row);
    }
    put_number(self->partitions, of->partition, row, end);
    put_number(self->types, of->timestamp_type, row, end);
    if (!(self->wanted & (OFFSET | TIMESTAMP | KEY | VALUE)) && self->list_ends == NULL) {
        return; /* no record needs to be looked at */
    }
    /* Local copies: otherwise the compiler must reload the struct after each byte written. */
    walk on = from->of->on;
    column key = self->key, value = self->value;
    int64_t *offsets = self->offsets, *timestamps = self->timestamps;
    for (; row < end; row++) {
        layout where;
        next_layout(&on, &where);
        if (offsets != NULL) {
            offsets[row] = where.offset;
        }
        if (timestamps != NULL) {
            timestamps[row] = where.timestamp;
        }
        if (key.ends != NULL) {
            put_in(&key, where.key, where.key_size);
        }
        if (value.ends != NULL) {
            put_in(&value, where.value, where.value_size);
        }
        if (self->list_ends != NULL) {
            put_headers(self, &where);
            self->list_ends[row + 1] = (int32_t)self->name.row;
            if (self->list_bits != NULL && where.header_count > 0) {
                self->list_bits[row >> 3] |= (unsigned char)(1 << (row & 7));
            }
        }
    }
    self->key = key;
    self->value = value;
}

static int
make_table(table *self, int has_headers)
{
    self->partitions = new_numbers(self, PARTITION, &self->fixed[0], 4);
    self->offsets = new_numbers(self, OFFSET, &self->fixed[1], 8);
    self->timestamps = new_numbers(self, TIMESTAMP, &self->fixed[2], 8);
    self->types = new_numbers(self, TIMESTAMP_TYPE, &self->fixed[3], 4);
    if (self->fixed[0] == NULL || self->fixed[1] == NULL || self->fixed[2] == NULL || self->fixed[3] == NULL ||
        !make_wanted(self, TOPIC, &self->topic) || !make_wanted(self, KEY, &self->key) ||
        !make_wanted(self, VALUE, &self->value)) {
        return 0;
    }
    if (!has_headers) {
        return 1;
    }
    self->list_bits = new_validity(self, &self->lists[0], self->rows, self->rows - self->with_headers);
    self->list_ends = new_buffer(self, &self->lists[1], (self->rows + 1) * 4);
    if (self->lists[0] == NULL || self->list_ends == NULL) {
        return 0;
    }
    self->list_ends[0] = 0;
    return make_column(self, &self->name) && make_column(self, &self->content);
}

static void
free_table(table *self)
{
    column *columns[] = {&self->topic, &self->key, &self->value, &self->name, &self->content};
    for (int index = 0; index < 5; index++) {
        for (int part = 0; part < 3; part++) {
            Py_XDECREF(columns[index]->objects[part]);
        }
    }
    for (int index = 0; index < 4; index++) {
        Py_XDECREF(self->fixed[index]);
    }
    Py_XDECREF(self->lists[0]);
    Py_XDECREF(self->lists[1]);
}

static PyObject *
column_value(const column *self)
{
    if (self->ends == NULL) {
        return Py_NewRef(Py_None);
    }
    return Py_BuildValue("(OOO)", self->objects[0], self->objects[1], self->objects[2]);
}

static PyObject *
table_value(const table *self, int has_headers)
{
    PyObject *headers = !has_headers ? Py_NewRef(Py_None)
                                     : Py_BuildValue("(OONN)", self->lists[0], self->lists[1],
                                                     column_value(&self->name), column_value(&self->content));
    return Py_BuildValue("(LNOOOONNN)", (long long)self->rows, column_value(&self->topic), self->fixed[0],
                         self->fixed[1], self->fixed[2], self->fixed[3], column_value(&self->key),
                         column_value(&self->value), headers);
}

/* Set the parts of a tuple of slices; return 0 if one has another type, -1 with an exception. */
static int
get_parts(PyObject *slices, PyObject *type, part *parts)
{
    for (Py_ssize_t index = 0; index < PyTuple_Size(slices); index++) {
        PyObject *item = PyTuple_GetItem(slices, index);
        if ((PyObject *)Py_TYPE(item) != type) {
            return 0;
        }
        parts[index].of = (slice *)item;
        parts[index].topic = PyUnicode_AsUTF8AndSize(((slice *)item)->from->topic, &parts[index].topic_size);
        if (parts[index].topic == NULL) {
            return -1;
        }
    }
    return 1;
}

static PyObject *
columns_of(PyTypeObject *pooled_type, const part *parts, Py_ssize_t count, int has_headers, long wanted)
{
    table found = {.pooled_type = pooled_type, .wanted = wanted};
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t index = 0; index < count; index++) {
        count_piece(&found, &parts[index], has_headers);
    }
    Py_END_ALLOW_THREADS
    if (found.has_foreign_name || !is_countable(&found.topic) || !is_countable(&found.key) ||
        !is_countable(&found.value) || !is_countable(&found.name) || !is_countable(&found.content)) {
        Py_RETURN_NONE;
    }
    PyObject *value = NULL;
    if (make_table(&found, has_headers)) {
        int64_t first = 0;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t index = 0; index < count; index++) {
            put_piece(&found, &parts[index], first);
            first += parts[index].of->count;
        }
        Py_END_ALLOW_THREADS
        value = table_value(&found, has_headers);
    }
    free_table(&found);
    return value;
}

/* (slices: sequence of RecordSlice, has_headers: bool, wanted: int = EVERY) -> tuple of buffers | None; see `columns`
 * and `some_columns` in reader.py */
PyObject *
columns(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 && nargs != 3) {
        Py_RETURN_NONE;
    }
    long wanted = nargs == 2 ? EVERY : PyLong_AsLong(args[2]);
    if (wanted == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *slices = PySequence_Tuple(args[0]); /* a tuple cannot change while the GIL is released */
    PyObject *type = slices == NULL ? NULL : PyObject_GetAttrString(module, "RecordSlice");
    PyObject *pooled_type = type == NULL ? NULL : PyObject_GetAttrString(module, "PooledBuffer");
    Py_ssize_t count = pooled_type == NULL ? 0 : PyTuple_Size(slices);
    part *parts = pooled_type == NULL ? NULL : PyMem_Malloc((size_t)(count ? count : 1) * sizeof(part));
    PyObject *value = NULL;
    if (parts != NULL) {
        int outcome = get_parts(slices, type, parts);
        if (outcome >= 0) {
            value = outcome == 0 ? Py_NewRef(Py_None)
                                 : columns_of((PyTypeObject *)pooled_type, parts, count, args[1] == Py_True,
                                              wanted);
        }
    }
    else if (pooled_type != NULL) {
        PyErr_NoMemory();
    }
    PyMem_Free(parts);
    Py_XDECREF(pooled_type);
    Py_XDECREF(type);
    Py_XDECREF(slices);
    return value;
}
