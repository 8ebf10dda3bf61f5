/* What the sources of the accelerator share: the limited API of Python 3.11, so that one build serves all versions, and
 * the functions by which each source adds what it has to the module (0, or -1 and an exception).
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef const unsigned char *bytes_t;

int add_checksums(PyObject *module);
int add_encoder(PyObject *module);
int add_decoder(PyObject *module);
int add_buffers(PyObject *module);
int add_reader(PyObject *module);
int add_builders(PyObject *module);
int add_accumulator(PyObject *module);
int add_bulk(PyObject *module);
int add_sockets(PyObject *module);

/* A class of this full name, derived from one of the module, with a part for the garbage collector only if that has
 * one.
 *
 * One that is written in Python has such a part always: each object would be looked at again and again. */
PyObject *derived_class(PyObject *module, const char *base, PyObject *full_name, size_t size, PyType_Slot *slots);

/* Of fewer bytes the CRC is made with the GIL: giving it up costs more than others gain. */
#define CRC_WITHOUT_LOCK_MIN (64 * 1024)

/* CRC-32C of all that is there; the GIL need not be held. */
uint32_t crc32c_of(bytes_t at, size_t size);

/* The same in parts, by the state of the CRC, which is its ones' complement: after more bytes; after so many zeros. The
 * state after something, and then bytes, is that after as many zeros, with the state that the bytes make of 0
 * exclusively or'ed to it. */
uint32_t crc32c_state(uint32_t state, bytes_t at, size_t size);
uint32_t crc32c_zeros(uint32_t state, size_t count);
