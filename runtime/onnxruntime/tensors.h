/* Tensors of ONNX Runtime, their shapes, and how one broadcasts to another. */
#ifndef LOOPLIFT_TENSORS_H
#define LOOPLIFT_TENSORS_H

#include "ort_api.h"

enum { MOST_AXES = 64 }; /* as in numpy; of an output with its time axis */

struct shape {
    size_t rank;
    int64_t extent[MOST_AXES];
};

struct tensor {
    void *data; /* NULL: not given, or not wanted */
    struct shape shape;
};

#define TRY(expression)                                                                                               \
    do {                                                                                                              \
        OrtStatus *status_ = (expression);                                                                            \
        if (status_)                                                                                                  \
            return status_;                                                                                           \
    } while (0)

/* An error with a message, as printf writes it. */
OrtStatus *fail(const OrtApi *api, const char *format, ...);

OrtStatus *read_input(const OrtApi *api, const OrtKernelContext *context, size_t index, struct tensor *out);
OrtStatus *make_output(const OrtApi *api, OrtKernelContext *context, size_t index, const struct shape *shape, void **out);

int64_t element_count(const struct shape *shape);
int same_shape(const struct shape *a, const struct shape *b);
struct shape without_first_axis(const struct shape *shape);
struct shape with_first_axis(int64_t extent, const struct shape *shape);

/* What the two broadcast to; 0 if they do not. */
int broadcast(const struct shape *a, const struct shape *b, struct shape *out);

/* The shape as [2,3]. */
struct text {
    char words[200];
};
struct text show(const struct shape *shape);

/* Of each element of `whole`, where in an array of shape `part` it is; `part` broadcasts to `whole`. */
void broadcast_offsets(const struct shape *part, const struct shape *whole, ptrdiff_t *out);

#endif
