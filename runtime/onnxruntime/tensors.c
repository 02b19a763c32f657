#include "tensors.h"

#include <stdarg.h>
#include <stdio.h>

OrtStatus *fail(const OrtApi *api, const char *format, ...)
{
    char message[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return ORT(api, CreateStatus)(ORT_INVALID_ARGUMENT, message);
}

static OrtStatus *read_shape(const OrtApi *api, const OrtTensorTypeAndShapeInfo *info, struct shape *out)
{
    TRY(ORT(api, GetDimensionsCount)(info, &out->rank));
    if (out->rank >= MOST_AXES)
        return fail(api, "looplift: a tensor of %d axes; %d are the most", (int)out->rank, MOST_AXES - 1);
    return ORT(api, GetDimensions)(info, out->extent, out->rank);
}

OrtStatus *read_input(const OrtApi *api, const OrtKernelContext *context, size_t index, struct tensor *out)
{
    const OrtValue *value = NULL;
    out->data = NULL;
    TRY(ORT(api, KernelContext_GetInput)(context, index, &value));
    if (!value)
        return NULL;
    OrtTensorTypeAndShapeInfo *info = NULL;
    TRY(ORT(api, GetTensorTypeAndShape)(value, &info));
    OrtStatus *status = read_shape(api, info, &out->shape);
    ORT(api, ReleaseTensorTypeAndShapeInfo)(info);
    TRY(status);
    TRY(ORT(api, GetTensorMutableData)((OrtValue *)value, &out->data));
    if (!out->data)
        out->data = out; /* without elements: given, and never read */
    return NULL;
}

OrtStatus *make_output(const OrtApi *api, OrtKernelContext *context, size_t index, const struct shape *shape, void **out)
{
    OrtValue *value = NULL;
    *out = NULL;
    TRY(ORT(api, KernelContext_GetOutput)(context, index, shape->extent, shape->rank, &value));
    return value ? ORT(api, GetTensorMutableData)(value, out) : NULL;
}

int64_t element_count(const struct shape *shape)
{
    int64_t count = 1;
    for (size_t axis = 0; axis < shape->rank; axis++)
        count *= shape->extent[axis];
    return count;
}

int same_shape(const struct shape *a, const struct shape *b)
{
    int same = a->rank == b->rank;
    for (size_t axis = 0; same && axis < a->rank; axis++)
        same = a->extent[axis] == b->extent[axis];
    return same;
}

struct shape without_first_axis(const struct shape *shape)
{
    struct shape rest = {.rank = shape->rank - 1};
    for (size_t axis = 0; axis < rest.rank; axis++)
        rest.extent[axis] = shape->extent[axis + 1];
    return rest;
}

struct shape with_first_axis(int64_t extent, const struct shape *shape)
{
    struct shape more = {.rank = shape->rank + 1};
    more.extent[0] = extent;
    for (size_t axis = 0; axis < shape->rank && axis + 1 < MOST_AXES; axis++)
        more.extent[axis + 1] = shape->extent[axis];
    return more;
}

/* The extent of an axis, counted from the last; 1 where the shape has none. */
static int64_t from_last(const struct shape *shape, size_t axis)
{
    return axis < shape->rank ? shape->extent[shape->rank - 1 - axis] : 1;
}

int broadcast(const struct shape *a, const struct shape *b, struct shape *out)
{
    out->rank = a->rank > b->rank ? a->rank : b->rank;
    int fits = 1;
    for (size_t axis = 0; axis < out->rank; axis++) {
        int64_t left = from_last(a, axis), right = from_last(b, axis);
        fits = fits && (left == right || left == 1 || right == 1);
        out->extent[out->rank - 1 - axis] = left == 1 ? right : left;
    }
    return fits;
}

struct text show(const struct shape *shape)
{
    struct text out = {"["};
    size_t length = 1;
    for (size_t axis = 0; axis < shape->rank && length + 24 < sizeof out.words; axis++)
        length += (size_t)snprintf(out.words + length, sizeof out.words - length, "%s%lld", axis ? "," : "",
                                   (long long)shape->extent[axis]);
    out.words[length] = ']';
    return out;
}

void broadcast_offsets(const struct shape *part, const struct shape *whole, ptrdiff_t *out)
{
    ptrdiff_t stride[MOST_AXES], offset = 0, size = 1;
    int64_t index[MOST_AXES] = {0}, count = element_count(whole);
    for (size_t axis = 0; axis < whole->rank; axis++) { /* from the last */
        int64_t extent = from_last(part, axis);
        stride[axis] = extent == 1 ? 0 : size;
        size *= (ptrdiff_t)extent;
    }
    for (int64_t k = 0; k < count; k++) {
        out[k] = offset;
        for (size_t axis = 0; axis < whole->rank; axis++) {
            offset += stride[axis];
            if (++index[axis] < from_last(whole, axis))
                break;
            offset -= stride[axis] * (ptrdiff_t)index[axis];
            index[axis] = 0;
        }
    }
}
