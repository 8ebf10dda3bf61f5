/* Reads and writes on non-blocking sockets with the GIL held: kwire/net/channel.py is the specification and has the
 * reason. From WITHOUT_LOCK_MIN bytes on the GIL is released, as copying takes longer than getting it back.
 *
 * Systems without sendmsg do not have these functions and use the Python ones.
 */
#include "module.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef _WIN32

#define WITHOUT_LOCK_MIN (64 * 1024)
/* The maximum of pieces per call: UIO_MAXIOV of Linux; no system has a lower limit. */
#define PIECES_MAX 1024
#define PIECES_FEW 16

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE */
#endif

/* Return the socket's descriptor; a closed one raises OSError, as the socket's own methods do. */
static int
descriptor_of(PyObject *sock)
{
    int fd = PyObject_AsFileDescriptor(sock);
    if (fd < 0 && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        errno = EBADF;
        PyErr_SetFromErrno(PyExc_OSError);
    }
    return fd;
}

static PyObject *
byte_count(Py_ssize_t count)
{
    return count < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t(count);
}

static Py_ssize_t
sent(int fd, struct iovec *pieces, size_t count)
{
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    Py_ssize_t done;
    do {
        done = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (done < 0 && errno == EINTR);
    return done;
}

static Py_ssize_t
received(int fd, char *target, size_t size)
{
    Py_ssize_t done;
    do {
        done = recv(fd, target, size, 0);
    } while (done < 0 && errno == EINTR);
    return done;
}

/* Send `count` pieces of a list or tuple; `views` and `vectors` have space for them. */
static PyObject *
send_from(int fd, PyObject *pieces, Py_ssize_t count, Py_buffer *views, struct iovec *vectors)
{
    PyObject *result = NULL;
    Py_ssize_t held = 0, size = 0, done;
    for (; held < count; held++) {
        PyObject *piece = PySequence_GetItem(pieces, held);
        int failed = piece == NULL || PyObject_GetBuffer(piece, &views[held], PyBUF_SIMPLE) < 0;
        Py_XDECREF(piece);
        if (failed) {
            goto end;
        }
        vectors[held].iov_base = views[held].buf;
        vectors[held].iov_len = (size_t)views[held].len;
        size += views[held].len;
    }
    if (size < WITHOUT_LOCK_MIN) {
        done = sent(fd, vectors, (size_t)count);
    }
    else {
        Py_BEGIN_ALLOW_THREADS
        done = sent(fd, vectors, (size_t)count);
        Py_END_ALLOW_THREADS
    }
    result = byte_count(done);
end:
    while (held > 0) {
        PyBuffer_Release(&views[--held]);
    }
    return result;
}

/* (sock, pieces, /) -> int */
static PyObject *
send_pieces(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer few_views[PIECES_FEW], *views = few_views;
    struct iovec few_vectors[PIECES_FEW], *vectors = few_vectors;
    if (nargs != 2) {
        return PyErr_Format(PyExc_TypeError, "send_pieces takes a socket and pieces");
    }
    Py_ssize_t count = PySequence_Size(args[1]);
    int fd = count < 0 ? -1 : descriptor_of(args[0]);
    if (fd < 0) {
        return NULL;
    }
    count = count > PIECES_MAX ? PIECES_MAX : count;
    if (count > PIECES_FEW) {
        views = PyMem_Malloc((size_t)count * sizeof *views);
        vectors = PyMem_Malloc((size_t)count * sizeof *vectors);
    }
    PyObject *result = views && vectors ? send_from(fd, args[1], count, views, vectors) : PyErr_NoMemory();
    if (count > PIECES_FEW) {
        PyMem_Free(views);
        PyMem_Free(vectors);
    }
    return result;
}

/* (sock, target, /) -> int */
static PyObject *
receive_into(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        return PyErr_Format(PyExc_TypeError, "receive_into takes a socket and a buffer");
    }
    int fd = descriptor_of(args[0]);
    Py_buffer target;
    if (fd < 0 || PyObject_GetBuffer(args[1], &target, PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    size_t size = (size_t)target.len, first = size < WITHOUT_LOCK_MIN ? size : WITHOUT_LOCK_MIN;
    Py_ssize_t done = received(fd, target.buf, first);
    if (done == WITHOUT_LOCK_MIN && size > first) { /* more data may be available */
        Py_ssize_t more;
        Py_BEGIN_ALLOW_THREADS
        more = received(fd, (char *)target.buf + first, size - first);
        Py_END_ALLOW_THREADS
        done += more > 0 ? more : 0; /* the next call reports an end or an error */
    }
    PyObject *result = byte_count(done);
    PyBuffer_Release(&target);
    return result;
}

static PyMethodDef methods[] = {
    {"send_pieces", (PyCFunction)(void (*)(void))send_pieces, METH_FASTCALL, "(sock, pieces, /) -> int"},
    {"receive_into", (PyCFunction)(void (*)(void))receive_into, METH_FASTCALL, "(sock, target, /) -> int"},
    {NULL, NULL, 0, NULL},
};

int
add_channel(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}

#else

int
add_channel(PyObject *Py_UNUSED(module))
{
    return 0;
}

#endif
