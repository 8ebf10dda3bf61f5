/* Pieces as columns in Arrow's layout, without a Python object a record. See _consume.h and `_cursor.columns`. */
#include "_consume.h"

typedef struct {
    const piece *of;
    const char *topic;
    Py_ssize_t topic_size;
} part;

/* A column of byte strings in Arrow's layout: bits that say which are not null, int32 ends, all bytes. */
typedef struct {
    int64_t rows, nulls, size; /* counted first */
    PyObject *objects[3];      /* validity or None, ends, data */
    unsigned char *validity, *data;
    int32_t *ends;
    int64_t row, at; /* while it is filled */
} column;

typedef struct {
    int64_t rows, with_headers;
    column topic, key, value, name, content;
    PyObject *fixed[4]; /* partition, offset, timestamp, timestamp type */
    PyObject *lists[2]; /* of headers: validity and ends */
    int has_foreign_name; /* one that may be no UTF-8 */
} table;

static void
count_in(column *self, int64_t size)
{
    self->rows++;
    self->nulls += size < 0;
    self->size += size > 0 ? size : 0;
}

static void
count_headers(table *self, const place *where)
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
    const piece *of = from->of;
    bytes_t at = of->at;
    for (Py_ssize_t index = 0; index < of->count; index++) {
        place where;
        at = get_place(at, &of->from->from, &where);
        count_in(&self->key, where.key_size);
        count_in(&self->value, where.value_size);
        if (has_headers) {
            count_headers(self, &where);
        }
    }
    self->rows += of->count;
    self->topic.rows += of->count;
    self->topic.size += (int64_t)from->topic_size * of->count;
}

static int
is_countable(const column *self)
{
    return self->size <= INT32_MAX && self->rows < INT32_MAX;
}

static unsigned char *
new_buffer(PyObject **object, int64_t size)
{
    *object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    return *object == NULL ? NULL : (unsigned char *)PyBytes_AsString(*object);
}

static unsigned char *
new_validity(PyObject **object, int64_t rows, int64_t nulls)
{
    if (nulls == 0) {
        *object = Py_NewRef(Py_None);
        return NULL;
    }
    unsigned char *bits = new_buffer(object, (rows + 7) / 8);
    if (bits != NULL) {
        memset(bits, 0, (size_t)(rows + 7) / 8);
    }
    return bits;
}

static int
make_column(column *self)
{
    self->validity = new_validity(&self->objects[0], self->rows, self->nulls);
    self->ends = (int32_t *)(void *)new_buffer(&self->objects[1], (self->rows + 1) * (int64_t)sizeof(int32_t));
    self->data = new_buffer(&self->objects[2], self->size);
    if (self->objects[0] == NULL || self->ends == NULL || self->data == NULL) {
        return 0;
    }
    self->ends[0] = 0;
    return 1;
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
put_headers(table *self, const place *where)
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

typedef struct {
    int32_t *partitions, *types, *ends;
    int64_t *offsets, *timestamps;
    unsigned char *bits;
} targets;

static targets
targets_of(const table *self, int has_headers)
{
    return (targets){
        .partitions = (int32_t *)(void *)PyBytes_AsString(self->fixed[0]),
        .offsets = (int64_t *)(void *)PyBytes_AsString(self->fixed[1]),
        .timestamps = (int64_t *)(void *)PyBytes_AsString(self->fixed[2]),
        .types = (int32_t *)(void *)PyBytes_AsString(self->fixed[3]),
        .ends = has_headers ? (int32_t *)(void *)PyBytes_AsString(self->lists[1]) : NULL,
        .bits = has_headers && self->lists[0] != Py_None ? (unsigned char *)PyBytes_AsString(self->lists[0]) : NULL,
    };
}

/* The records of a piece, from row `row` on. */
static void
put_piece(table *self, const part *from, const targets *to, int64_t row)
{
    const piece *of = from->of;
    bytes_t at = of->at;
    for (Py_ssize_t index = 0; index < of->count; index++, row++) {
        place where;
        at = get_place(at, &of->from->from, &where);
        to->partitions[row] = of->from->partition;
        to->offsets[row] = where.offset;
        to->timestamps[row] = where.timestamp;
        to->types[row] = of->from->timestamp_type;
        put_in(&self->topic, (bytes_t)from->topic, from->topic_size);
        put_in(&self->key, where.key, where.key_size);
        put_in(&self->value, where.value, where.value_size);
        if (to->ends != NULL) {
            put_headers(self, &where);
            to->ends[row + 1] = (int32_t)self->name.row;
            if (to->bits != NULL && where.header_count > 0) {
                to->bits[row >> 3] |= (unsigned char)(1 << (row & 7));
            }
        }
    }
}

static int
make_table(table *self, int has_headers)
{
    static const int64_t WIDTHS[] = {4, 8, 8, 4};
    for (int index = 0; index < 4; index++) {
        if (new_buffer(&self->fixed[index], self->rows * WIDTHS[index]) == NULL) {
            return 0;
        }
    }
    if (!make_column(&self->topic) || !make_column(&self->key) || !make_column(&self->value)) {
        return 0;
    }
    if (!has_headers) {
        return 1;
    }
    new_validity(&self->lists[0], self->rows, self->rows - self->with_headers);
    int32_t *ends = (int32_t *)(void *)new_buffer(&self->lists[1], (self->rows + 1) * 4);
    if (self->lists[0] == NULL || ends == NULL) {
        return 0;
    }
    ends[0] = 0;
    return make_column(&self->name) && make_column(&self->content);
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

/* The parts that a tuple of pieces makes; 0 where one is of another kind, and -1 is an exception. */
static int
get_parts(PyObject *pieces, PyObject *type, part *parts)
{
    for (Py_ssize_t index = 0; index < PyTuple_Size(pieces); index++) {
        PyObject *item = PyTuple_GetItem(pieces, index);
        if ((PyObject *)Py_TYPE(item) != type) {
            return 0;
        }
        parts[index].of = (piece *)item;
        parts[index].topic = PyUnicode_AsUTF8AndSize(((piece *)item)->from->topic, &parts[index].topic_size);
        if (parts[index].topic == NULL) {
            return -1;
        }
    }
    return 1;
}

static PyObject *
columns_of(const part *parts, Py_ssize_t count, int has_headers)
{
    table found = {0};
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
        targets to = targets_of(&found, has_headers);
        int64_t first = 0;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t index = 0; index < count; index++) {
            put_piece(&found, &parts[index], &to, first);
            first += parts[index].of->count;
        }
        Py_END_ALLOW_THREADS
        value = table_value(&found, has_headers);
    }
    free_table(&found);
    return value;
}

/* (pieces: sequence of Piece, has_headers: bool) -> tuple of buffers | None; see `_cursor.columns` */
PyObject *
columns(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        Py_RETURN_NONE;
    }
    PyObject *pieces = PySequence_Tuple(args[0]); /* which cannot change while the lock is given up */
    PyObject *type = pieces == NULL ? NULL : PyObject_GetAttrString(module, "Piece");
    Py_ssize_t count = type == NULL ? 0 : PyTuple_Size(pieces);
    part *parts = type == NULL ? NULL : PyMem_Malloc((size_t)(count ? count : 1) * sizeof(part));
    PyObject *value = NULL;
    if (parts != NULL) {
        int outcome = get_parts(pieces, type, parts);
        if (outcome >= 0) {
            value = outcome == 0 ? Py_NewRef(Py_None) : columns_of(parts, count, args[1] == Py_True);
        }
    }
    else if (type != NULL) {
        PyErr_NoMemory();
    }
    PyMem_Free(parts);
    Py_XDECREF(type);
    Py_XDECREF(pieces);
    return value;
}
