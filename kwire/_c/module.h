/* Shared by all sources of the accelerator: the limited API of Python 3.11, and the functions with which each source
 * adds its objects to the module (they return 0, or -1 with an exception).
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
int add_channel(PyObject *module);
int add_markers(PyObject *module);
int add_backend(PyObject *module);

/* Return a subclass with this full name that has a garbage collector header only if its base class has one.
 *
 * A subclass written in Python always has one, so every collection would visit each object. */
PyObject *derived_class(PyObject *module, const char *base, PyObject *full_name, size_t size, PyType_Slot *slots);

/* For fewer bytes the CRC is computed with the GIL: releasing it costs more than other threads gain. */
#define CRC_WITHOUT_LOCK_MIN (64 * 1024)

/* Return the CRC-32C of the data; does not need the GIL. */
uint32_t crc32c_of(bytes_t at, size_t size);

/* Update the state of a CRC (its ones' complement) with bytes, or with a number of zeros. The state after more bytes is
 * the state after as many zeros, XOR the state of those bytes from 0. */
uint32_t crc32c_state(uint32_t state, bytes_t at, size_t size);
uint32_t crc32c_zeros(uint32_t state, size_t count);
