/* The first look of canonical.py at a value, which is most of the time that a hash takes in Python.
   canonical.py has the same rules in Python, for machines without a compiler. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

/* Whether orjson writes this double as RFC 8785 does: neither whole, huge, tiny nor without a value. */
static int
is_plain_double(double number)
{
    double size = fabs(number);
    return size >= 1e-5 && size < 1e16 && number != floor(number);
}

/* No Python code runs in here: only the exact types below are looked into. `room` limits the recursion. */
static int
is_plain(PyObject *value, long room)
{
    if (PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || value == Py_None || PyBool_Check(value)) {
        return 1;
    }
    if (PyFloat_CheckExact(value)) {
        return is_plain_double(PyFloat_AsDouble(value));
    }
    if (room <= 0) {
        return 0;
    }
    if (PyDict_CheckExact(value)) {
        PyObject *key, *item;
        Py_ssize_t position = 0;
        while (PyDict_Next(value, &position, &key, &item)) {
            if (!is_plain(item, room - 1)) {
                return 0;
            }
        }
        return 1;
    }
    if (PyList_CheckExact(value)) {
        Py_ssize_t length = PyList_Size(value);
        for (Py_ssize_t at = 0; at < length; at++) {
            if (!is_plain(PyList_GetItem(value, at), room - 1)) {
                return 0;
            }
        }
        return 1;
    }
    if (PyTuple_CheckExact(value)) {
        Py_ssize_t length = PyTuple_Size(value);
        for (Py_ssize_t at = 0; at < length; at++) {
            if (!is_plain(PyTuple_GetItem(value, at), room - 1)) {
                return 0;
            }
        }
        return 1;
    }
    return 0;
}

static PyObject *
plain_is_plain(PyObject *module, PyObject *args)
{
    PyObject *value;
    long room;
    if (!PyArg_ParseTuple(args, "Ol", &value, &room)) {
        return NULL;
    }
    return PyBool_FromLong(is_plain(value, room));
}

static PyMethodDef methods[] = {
    {"is_plain", plain_is_plain, METH_VARARGS, "is_plain(value, room): see canonical.py"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_plain", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__plain(void)
{
    return PyModule_Create(&definition);
}
