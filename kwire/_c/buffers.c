/* Memory for frames and for the bytes of batches: see kwire/wire/buffers.py.
 *
 * `alloc` returns uninitialized bytes. Large blocks are pooled while a producer or consumer may need them again: the
 * system clears each page of fresh memory, which costs more than filling it.
 */
#include "module.h"
#include "buffers.h"
#include "reader.h"

#define BLOCK_MIN (64 * 1024) /* smaller blocks are kept by the C library */
#define KEPT_FOR_RUNS (8 * 1024 * 1024)
#define KEPT_FOR_RECORDS (32 * 1024 * 1024) /* the columns of two polls */
#define BLOCKS_MAX ((KEPT_FOR_RUNS + KEPT_FOR_RECORDS) / BLOCK_MIN)

typedef struct {
    unsigned char *data;
    size_t capacity;
} block_t;

static block_t blocks[BLOCKS_MAX];
static size_t blocks_used, kept_bytes, users[POOL_USES];

static size_t
kept_max(void)
{
    return (users[POOL_OF_BUILDERS] ? KEPT_FOR_RUNS : 0) + (users[POOL_OF_RECORDS] ? KEPT_FOR_RECORDS : 0);
}

void
pool_add_user(pool_use use)
{
    users[use]++;
}

void
pool_remove_user(pool_use use)
{
    users[use]--;
    while (kept_bytes > kept_max()) {
        block_t block = blocks[--blocks_used];
        kept_bytes -= block.capacity;
        PyMem_Free(block.data);
    }
}

/* Return the last freed block with at least the size and less than twice of it; NULL if there is none. */
static unsigned char *
kept_block(size_t *capacity)
{
    for (size_t index = blocks_used; index-- > 0;) {
        block_t block = blocks[index];
        if (block.capacity >= *capacity && block.capacity / 2 < *capacity) {
            memmove(&blocks[index], &blocks[index + 1], (--blocks_used - index) * sizeof(block_t));
            kept_bytes -= block.capacity;
            *capacity = block.capacity;
            return block.data;
        }
    }
    return NULL;
}

unsigned char *
pool_grow(unsigned char *data, size_t before, size_t used, size_t *capacity)
{
    unsigned char *grown = *capacity < BLOCK_MIN ? NULL : kept_block(capacity);
    if (grown == NULL) {
        return PyMem_Realloc(data, *capacity);
    }
    if (data != NULL) {
        memcpy(grown, data, used);
        pool_give_back(data, before);
    }
    return grown;
}

/* Return the kept block with the highest address: once freed, the C library may release the memory above it. */
static size_t
highest(void)
{
    size_t found = 0;
    for (size_t index = 1; index < blocks_used; index++) {
        found = blocks[index].data > blocks[found].data ? index : found;
    }
    return found;
}

void
pool_give_back(unsigned char *data, size_t capacity)
{
    if (capacity < BLOCK_MIN || capacity > kept_max()) {
        PyMem_Free(data);
        return;
    }
    while (blocks_used == BLOCKS_MAX || (blocks_used && kept_bytes + capacity > kept_max())) {
        block_t *other = &blocks[highest()];
        if (data > other->data) {
            PyMem_Free(data);
            return;
        }
        PyMem_Free(other->data);
        kept_bytes -= other->capacity;
        *other = blocks[--blocks_used];
    }
    blocks[blocks_used++] = (block_t){data, capacity};
    kept_bytes += capacity;
}

/* Smaller ones are bytes objects: the allocator pools their memory. */
#define SLAB_BYTES_MIN (64 * 1024)

typedef struct {
    PyObject_HEAD unsigned char *bytes;
    Py_ssize_t size;
    size_t capacity;
} pooled;

static void
free_pooled(PyObject *object)
{
    pooled *self = (pooled *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->bytes != NULL) {
        pool_give_back(self->bytes, self->capacity);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int
export_pooled(PyObject *object, Py_buffer *view, int flags)
{
    pooled *self = (pooled *)object;
    return PyBuffer_FillInfo(view, object, self->bytes, self->size, 1, flags);
}

static Py_ssize_t
pooled_length(PyObject *object)
{
    return ((pooled *)object)->size;
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, free_pooled},
    {Py_bf_getbuffer, export_pooled},
    {Py_sq_length, pooled_length},
    {Py_tp_doc, "Bytes in memory that is used again."},
    {0, NULL},
};

PyType_Spec pooled_spec = {
    "kwire.wire._speedups.PooledBuffer", sizeof(pooled), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    slots,
};

unsigned char *
new_pooled(PyTypeObject *pooled_type, Py_ssize_t size, PyObject **object)
{
    if (size < SLAB_BYTES_MIN) {
        *object = PyBytes_FromStringAndSize(NULL, size);
        return *object == NULL ? NULL : (unsigned char *)PyBytes_AsString(*object);
    }
    pooled *made = (pooled *)((allocfunc)PyType_GetSlot(pooled_type, Py_tp_alloc))(pooled_type, 0);
    if (made == NULL) {
        return NULL;
    }
    /* Add up to an eighth, so that a slightly larger request can reuse the block. */
    size_t step = SLAB_BYTES_MIN / 8;
    while (step < (size_t)size / 16) {
        step *= 2;
    }
    made->capacity = ((size_t)size / step + 1) * step;
    made->bytes = pool_grow(NULL, 0, 0, &made->capacity);
    if (made->bytes == NULL) {
        Py_DECREF((PyObject *)made);
        PyErr_NoMemory();
        return NULL;
    }
    made->size = size;
    *object = (PyObject *)made;
    return made->bytes;
}

/* (size) -> (an object of so many bytes, a writable view); see `alloc_pooled` in kwire/wire/buffers.py. */
static PyObject *
alloc_pooled(PyObject *module, PyObject *wanted)
{
    Py_ssize_t size = PyLong_AsSsize_t(wanted);
    if (size < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a negative size");
        }
        return NULL;
    }
    PyObject *type = PyObject_GetAttrString(module, "PooledBuffer"), *whole = NULL;
    unsigned char *bytes = type == NULL ? NULL : new_pooled((PyTypeObject *)type, size, &whole);
    Py_XDECREF(type);
    PyObject *view = bytes == NULL ? NULL : PyMemoryView_FromMemory((char *)bytes, size, PyBUF_WRITE);
    PyObject *pair = view == NULL ? NULL : PyTuple_Pack(2, whole, view);
    Py_XDECREF(whole);
    Py_XDECREF(view);
    return pair;
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

/* (size) -> (uninitialized bytes, a writable view). The view must not outlive the bytes, and the bytes must not be read
 * before the view is gone: see `alloc` in kwire/wire/buffers.py. */
static PyObject *
alloc(PyObject *Py_UNUSED(module), PyObject *wanted)
{
    Py_ssize_t size = PyLong_AsSsize_t(wanted);
    if (size < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "a negative size");
        }
        return NULL;
    }
    PyObject *whole = PyBytes_FromStringAndSize(NULL, size);
    PyObject *view = whole == NULL ? NULL : PyMemoryView_FromMemory(PyBytes_AsString(whole), size, PyBUF_WRITE);
    PyObject *pair = view == NULL ? NULL : PyTuple_Pack(2, whole, view);
    Py_XDECREF(whole);
    Py_XDECREF(view);
    return pair;
}

static PyMethodDef functions[] = {
    {"alloc", alloc, METH_O, "alloc(size, /) -> (bytes, memoryview)"},
    {"alloc_pooled", alloc_pooled, METH_O, "alloc_pooled(size, /) -> (bytes or PooledBuffer, memoryview)"},
    {NULL, NULL, 0, NULL},
};

int
add_buffers(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&pooled_spec);
    int failed = type == NULL ? -1 : PyModule_AddObjectRef(module, "PooledBuffer", type);
    Py_XDECREF(type);
    return failed < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
