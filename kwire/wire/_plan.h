/* What a message is in one version, for `_messages.c` to read by: made of a plan, which is what the compiler of
 * kwire.protocol knows of it, as tuples.
 *
 *     plan    (is_flexible, shape)                   is_flexible: lengths are varints of one more, 0 being null
 *     shape   (class, fields, tagged, unknown)       an instance of a class with slots
 *     fields  ((slot, step), ...)                    in the order of the wire
 *     tagged  ((tag, slot, step), ...) or None       None: no section of tagged fields follows
 *     unknown slot                                   gets {tag: bytes}, or None if there are none
 *     step    (kind, is_nullable, detail, number)    where a value comes from:
 *
 *     b h i q H I d ?   a number or boolean, big-endian, by the letters of Python's struct
 *     u                 a UUID: `detail` is a dict, which keeps up to `number` of them by their 16 bytes, their class, and
 *                       what else than their number an instance has: (dict, class, is_safe)
 *     s y r             a string, bytes, and a view of the bytes, with their length before them
 *     [                 a list: a count and as many values of the step `detail`, each of at least `number` bytes
 *     {                 the shape `detail`; if nullable, after a byte that is 1, or `number` for None
 *     = e               no bytes: `detail` itself, and a fresh empty list
 *
 * An instance is filled through the addresses of its slots. The limited API does not tell where they are, so each is
 * looked for once for each plan: a value is put into it by name, and is then seen at one place of the instance. Where
 * it is not, there is no reader (ValueError), and messages are read in Python.
 *
 * Include _speedups.h before.
 */

#ifndef KWIRE_PLAN_H
#define KWIRE_PLAN_H

#ifdef __GNUC__
#pragma GCC visibility push(hidden)
#endif

#define TAGGED_MAX 64 /* fields of a shape */

typedef struct step step;
typedef struct shape shape;

struct step {
    int kind, is_nullable;
    PyObject *detail; /* borrowed from the plan */
    Py_ssize_t number;
    step *element; /* of a list */
    shape *inner;  /* of a struct */
};

typedef struct {
    Py_ssize_t offset; /* of the slot, in bytes from the start of the instance */
    uint32_t tag;
    step from;
} field;

struct shape {
    PyTypeObject *class;
    Py_ssize_t unknown;
    Py_ssize_t field_count, tagged_count; /* tagged_count is -1 where no section follows */
    field *fields, *tagged;
};

static inline PyObject **
slot(PyObject *instance, Py_ssize_t offset)
{
    return (PyObject **)((char *)instance + offset);
}

/* What `_plan.c` makes of (class, fields, tagged, unknown); NULL with an exception. It borrows from the plan. */
shape *make_shape(PyObject *plan);
void free_shape(shape *of);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#endif
