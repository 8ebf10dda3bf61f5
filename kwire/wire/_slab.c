/* Memory for large columns, which is used again instead of being given back to the system and asked for anew: of a poll's
 * ten megabytes the system would clear every page first, which takes as long as all else that is done to them.
 *
 * A slab is an object that exports bytes, for reading only; whoever made it writes them before anybody else sees it.
 * The memory of those that are no more is kept, up to IDLE_BYTES_MAX in all, the latest of it. The interpreter's lock is
 * held wherever a slab begins and ends.
 */
#include "_consume.h"

#include <stdlib.h>

/* Smaller ones are bytes: the allocator keeps their memory by itself. */
#define SLAB_BYTES_MIN (64 * 1024)
#define IDLE_BYTES_MAX (32 * 1024 * 1024)
#define IDLE_MAX 32

typedef struct {
    PyObject_HEAD
    unsigned char *bytes;
    Py_ssize_t size, room;
} slab;

typedef struct {
    unsigned char *bytes;
    Py_ssize_t room;
} block;

static struct {
    block blocks[IDLE_MAX]; /* the oldest first */
    int count;
    Py_ssize_t bytes;
} idle;

static block
remove_idle(int index)
{
    block found = idle.blocks[index];
    idle.count--;
    idle.bytes -= found.room;
    memmove(&idle.blocks[index], &idle.blocks[index + 1], (size_t)(idle.count - index) * sizeof(block));
    return found;
}

static void
keep(block one)
{
    while (idle.count > 0 && (idle.count == IDLE_MAX || idle.bytes + one.room > IDLE_BYTES_MAX)) {
        free(remove_idle(0).bytes);
    }
    if (one.room > IDLE_BYTES_MAX) {
        free(one.bytes);
        return;
    }
    idle.blocks[idle.count++] = one;
    idle.bytes += one.room;
}

/* The smallest idle block that is large enough, and not as large that most of it would be of no use; or a new one, with
 * up to an eighth to spare, so that the next that is nearly as large can have it. */
static block
block_of(Py_ssize_t size)
{
    int best = -1;
    for (int index = 0; index < idle.count; index++) {
        Py_ssize_t room = idle.blocks[index].room;
        if (room >= size && room / 2 <= size && (best < 0 || room < idle.blocks[best].room)) {
            best = index;
        }
    }
    if (best >= 0) {
        return remove_idle(best);
    }
    Py_ssize_t step = SLAB_BYTES_MIN / 8;
    while (step < size / 16) {
        step *= 2;
    }
    Py_ssize_t room = (size / step + 1) * step;
    return (block){malloc((size_t)room), room};
}

static void
free_slab(PyObject *object)
{
    slab *self = (slab *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->bytes != NULL) {
        keep((block){self->bytes, self->room});
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int
export_slab(PyObject *object, Py_buffer *view, int flags)
{
    slab *self = (slab *)object;
    return PyBuffer_FillInfo(view, object, self->bytes, self->size, 1, flags);
}

static Py_ssize_t
slab_length(PyObject *object)
{
    return ((slab *)object)->size;
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, free_slab},
    {Py_bf_getbuffer, export_slab},
    {Py_sq_length, slab_length},
    {Py_tp_doc, "Bytes in memory that is used again."},
    {0, NULL},
};

PyType_Spec slab_spec = {
    "kwire.wire._speedups.Slab", sizeof(slab), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots,
};

unsigned char *
new_room(PyTypeObject *slab_type, Py_ssize_t size, PyObject **object)
{
    if (size < SLAB_BYTES_MIN) {
        *object = PyBytes_FromStringAndSize(NULL, size);
        return *object == NULL ? NULL : (unsigned char *)PyBytes_AsString(*object);
    }
    slab *made = (slab *)((allocfunc)PyType_GetSlot(slab_type, Py_tp_alloc))(slab_type, 0);
    if (made == NULL) {
        return NULL;
    }
    block memory = block_of(size);
    if (memory.bytes == NULL) {
        Py_DECREF((PyObject *)made);
        PyErr_NoMemory();
        return NULL;
    }
    made->bytes = memory.bytes;
    made->room = memory.room;
    made->size = size;
    *object = (PyObject *)made;
    return made->bytes;
}
