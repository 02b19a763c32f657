#include "recurrences.h"

#include <stdlib.h>
#include <string.h>

#include "rows.h"
#include "tensors.h"

static const char *const NAMES[OP_TYPES] = {"AddStep", "PrefixSum", "LinearRecurrence"};

/* Elements from which on several threads share the columns, and the columns (in bytes) that one takes at a time. */
enum { WORTH_THREADS = 1 << 16, TILE_BYTES = 8192 };

/* Steps of an AddStep between looks whether the state has come to rest: that of float does within some 2^26. */
enum { UNCHECKED = 1 << 16 };

struct kernel {
    const OrtApi *api;
    enum op_type type;
    struct element element;
    int64_t emit_previous, reverse, a_invariant, b_invariant;
};

/* A recurrence of one run: `steps` rows over `columns`. */
struct run {
    const struct kernel *kernel;
    OrtKernelContext *context;
    int64_t steps;
    ptrdiff_t columns;
    const void *state;
    struct operand factor, term;
    enum recurrence recurrence;
    void *rooms[4]; /* to be freed */
    int room_count;
};

static void *room(struct run *run, size_t count, size_t size)
{
    size_t bytes = count * size;
    void *memory = size && bytes / size != count ? NULL : malloc(bytes ? bytes : 1);
    if (memory)
        run->rooms[run->room_count++] = memory;
    return memory;
}

static OrtStatus *no_room(const struct run *run)
{
    return fail(run->kernel->api, "%s: no memory for a row of %lld elements", NAMES[run->kernel->type],
                (long long)run->columns);
}

static void copy_by_offsets(void *out, const void *data, const ptrdiff_t *offsets, ptrdiff_t count, size_t size)
{
    for (ptrdiff_t k = 0; k < count; k++)
        memcpy((char *)out + (size_t)k * size, (const char *)data + (size_t)offsets[k] * size, size);
}

/* `data`, of shape `part`, as one row of shape `whole`. */
static OrtStatus *expanded(struct run *run, const void *data, const struct shape *part, const struct shape *whole,
                           const void **out)
{
    *out = data;
    if (element_count(part) == run->columns)
        return NULL; /* all extents but ones are the same */
    size_t size = run->kernel->element.size;
    ptrdiff_t *offsets = malloc((size_t)run->columns * sizeof *offsets + 1);
    void *row = offsets ? room(run, (size_t)run->columns, size) : NULL;
    if (row) {
        broadcast_offsets(part, whole, offsets);
        copy_by_offsets(row, data, offsets, run->columns, size);
        *out = row;
    }
    free(offsets);
    return row ? NULL : no_room(run);
}

struct part {
    const struct rows *rows;
    fill_rows fill;
    ptrdiff_t width;
};

static void fill_part(void *data, size_t index)
{
    const struct part *part = data;
    ptrdiff_t begin = (ptrdiff_t)index * part->width, left = part->rows->columns - begin;
    part->fill(part->rows, begin, left < part->width ? left : part->width);
}

static OrtStatus *fill(const struct run *run, const struct rows *rows)
{
    if (rows->count == 0 || rows->columns == 0)
        return NULL;
    struct part part = {rows, rows_here()[run->recurrence][run->kernel->element.kind], rows->columns};
    ptrdiff_t tile = TILE_BYTES / (ptrdiff_t)run->kernel->element.size;
    if (rows->columns <= tile) {
        fill_part(&part, 0);
        return NULL;
    }
    part.width = tile;
    size_t parts = (size_t)((rows->columns + tile - 1) / tile);
    if (rows->columns * rows->count >= WORTH_THREADS)
        return ORT(run->kernel->api, KernelContext_ParallelFor)(run->context, fill_part, parts, 0, &part);
    for (size_t index = 0; index < parts; index++)
        fill_part(&part, index);
    return NULL;
}

static struct operand later(const struct operand *operand, int64_t step, size_t size)
{
    struct operand moved = *operand;
    moved.data = (const char *)operand->data + (ptrdiff_t)step * operand->stride * (ptrdiff_t)size;
    return moved;
}

/* Steps from `begin` on: rows from `first` on, `stride` elements apart. */
static OrtStatus *advance(const struct run *run, int64_t begin, int64_t count, const void *state, void *first,
                          ptrdiff_t stride)
{
    size_t size = run->kernel->element.size;
    struct rows rows = {first, stride, state, count, run->columns, {0}, later(&run->term, begin, size)};
    if (run->recurrence == MULTIPLY_AND_ADD)
        rows.factor = later(&run->factor, begin, size);
    return fill(run, &rows);
}

/* The last state of an AddStep of integers, which wrap: v_initial + steps * step. */
static OrtStatus *last_integers(struct run *run, void *final)
{
    size_t size = run->kernel->element.size;
    char *counts = room(run, (size_t)run->columns, size);
    if (!counts)
        return no_room(run);
    for (ptrdiff_t k = 0; k < run->columns; k++)
        memcpy(counts + (size_t)k * size, &run->steps, size); /* the low bytes: processors here are little-endian */
    struct run once = *run;
    once.recurrence = MULTIPLY_AND_ADD;
    once.factor = (struct operand){.data = counts};
    once.state = run->term.data;
    once.term = (struct operand){.data = run->state};
    return advance(&once, 0, 1, once.state, final, 0);
}

/* The last state of an AddStep of floats; once a step changes nothing, none does. */
static OrtStatus *last_floats(struct run *run, void *final)
{
    size_t row_bytes = (size_t)run->columns * run->kernel->element.size;
    char *next = run->steps > UNCHECKED ? room(run, 1, row_bytes) : NULL;
    if (run->steps > UNCHECKED && !next)
        return no_room(run);
    const void *state = run->state;
    for (int64_t begin = 0, count; begin < run->steps; begin += count, state = final) {
        count = run->steps - begin < UNCHECKED ? run->steps - begin : UNCHECKED;
        TRY(advance(run, begin, count, state, final, 0));
        if (begin + count == run->steps)
            break;
        TRY(advance(run, begin, 1, final, next, 0));
        if (!memcmp(final, next, row_bytes))
            break;
    }
    return NULL;
}

/* Both outputs, of at least one step; either may be NULL, not wanted. */
static OrtStatus *compute(struct run *run, void *final, void *stacked)
{
    size_t size = run->kernel->element.size, row_bytes = (size_t)run->columns * size;
    if (!stacked && !final)
        return NULL;
    if (!stacked && run->kernel->type == ADD_STEP)
        return run->kernel->element.kind < F16 ? last_integers(run, final) : last_floats(run, final);
    if (!stacked)
        return advance(run, 0, run->steps, run->state, final, 0);
    if (row_bytes == 0)
        return NULL;
    int reverse = run->kernel->reverse != 0, previous = run->kernel->emit_previous != 0;
    ptrdiff_t stride = reverse ? -run->columns : run->columns, step_bytes = stride * (ptrdiff_t)size;
    char *first = (char *)stacked + (reverse ? (size_t)(run->steps - 1) * row_bytes : 0);
    char *last = first + (ptrdiff_t)(run->steps - 1) * step_bytes;
    if (previous)
        memcpy(first, run->state, row_bytes);
    TRY(advance(run, 0, run->steps - previous, run->state, first + previous * step_bytes, stride));
    if (final && previous)
        return advance(run, run->steps - 1, 1, last, final, 0);
    if (final)
        memcpy(final, last, row_bytes);
    return NULL;
}

/* AddStep: M, cond, v_initial, step. */
static OrtStatus *add_step(struct run *run)
{
    const OrtApi *api = run->kernel->api;
    struct tensor limit, condition, initial, step;
    TRY(read_input(api, run->context, 0, &limit));
    TRY(read_input(api, run->context, 1, &condition));
    TRY(read_input(api, run->context, 2, &initial));
    TRY(read_input(api, run->context, 3, &step));
    if (!limit.data || !initial.data || !step.data)
        return fail(api, "AddStep: M, v_initial and step must be given");
    if (element_count(&limit.shape) != 1)
        return fail(api, "AddStep: M must be one int64, not of shape %s", show(&limit.shape).words);
    if (condition.data && element_count(&condition.shape) != 1)
        return fail(api, "AddStep: cond must be one bool, not of shape %s", show(&condition.shape).words);
    run->steps = condition.data && !*(const uint8_t *)condition.data ? 0 : *(const int64_t *)limit.data;

    struct shape shape, row;
    int fits = broadcast(&initial.shape, &step.shape, &shape);
    void *final, *stacked;
    if (run->steps <= 0) { /* what was never added is no error, and did not make the state grow */
        row = shape;
        for (size_t axis = 0; !fits && axis < initial.shape.rank; axis++) {
            int64_t own = initial.shape.extent[initial.shape.rank - 1 - axis];
            row.extent[row.rank - 1 - axis] = own == 1 ? row.extent[row.rank - 1 - axis] : own;
        }
        row = with_first_axis(0, run->kernel->emit_previous ? &initial.shape : &row);
        TRY(make_output(api, run->context, 0, &initial.shape, &final));
        TRY(make_output(api, run->context, 1, &row, &stacked));
        if (final)
            memcpy(final, initial.data, (size_t)element_count(&initial.shape) * run->kernel->element.size);
        return NULL;
    }
    if (!fits)
        return fail(api, "AddStep: v_initial %s and step %s do not broadcast", show(&initial.shape).words,
                    show(&step.shape).words);
    int grows = !same_shape(&shape, &initial.shape);
    const struct shape *stacked_shape = run->kernel->emit_previous && grows && run->steps == 1 ? &initial.shape : &shape;
    row = with_first_axis(run->steps, stacked_shape);
    TRY(make_output(api, run->context, 0, &shape, &final));
    run->columns = (ptrdiff_t)element_count(&shape);
    TRY(expanded(run, initial.data, &initial.shape, &shape, &run->state));
    TRY(expanded(run, step.data, &step.shape, &shape, &run->term.data));
    run->recurrence = ADD;
    if (run->kernel->emit_previous && grows) {
        /* Only one row can be stacked of a state that grows; whether rows are wanted, an output tells that is made. */
        struct shape one = with_first_axis(1, &initial.shape);
        TRY(make_output(api, run->context, 1, &one, &stacked));
        if (stacked && run->steps > 1)
            return fail(api,
                        "AddStep: the state grows from %s to %s in the first iteration, so its previous states can't be "
                        "stacked: expand v_initial before the loop",
                        show(&initial.shape).words, show(&shape).words);
        if (stacked)
            memcpy(stacked, initial.data, (size_t)element_count(&initial.shape) * run->kernel->element.size);
        return compute(run, final, NULL);
    }
    TRY(make_output(api, run->context, 1, &row, &stacked));
    return compute(run, final, stacked);
}

/* A series, or what is the same in every step: its element must broadcast to the state. */
static OrtStatus *read_series(struct run *run, const char *name, const struct tensor *value, int invariant,
                              const struct shape *state, struct operand *out)
{
    struct shape element = invariant ? value->shape : without_first_axis(&value->shape), whole;
    size_t most = state->rank > 1 ? state->rank : 1; /* a scalar state takes an element of shape [1], too */
    int fits = broadcast(&element, state, &whole) && element.rank <= most;
    if (!fits || element_count(&whole) != run->columns || (!same_shape(&whole, state) && state->rank > 0))
        return fail(run->kernel->api,
                    "%s: an element of %s has shape %s, which does not broadcast to the state's %s: the state may not "
                    "change its shape",
                    NAMES[run->kernel->type], name, show(&element).words, show(state).words);
    if (invariant)
        return expanded(run, value->data, &element, state, &out->data);
    ptrdiff_t size = (ptrdiff_t)element_count(&element);
    int reverse = run->kernel->reverse != 0;
    size_t skipped = reverse ? (size_t)(run->steps - 1) * (size_t)size : 0;
    out->data = (const char *)value->data + skipped * run->kernel->element.size;
    out->stride = reverse ? -size : size;
    if (size == run->columns)
        return NULL;
    ptrdiff_t *offsets = room(run, (size_t)run->columns, sizeof *offsets);
    out->row = offsets ? room(run, (size_t)run->columns, run->kernel->element.size) : NULL;
    if (!out->row)
        return no_room(run);
    broadcast_offsets(&element, state, offsets);
    out->offsets = offsets;
    return NULL;
}

/* PrefixSum: v_initial, x. LinearRecurrence: v_initial, a, b. */
static OrtStatus *over_time(struct run *run)
{
    const OrtApi *api = run->kernel->api;
    const char *op = NAMES[run->kernel->type];
    int linear = run->kernel->type == LINEAR_RECURRENCE;
    struct tensor initial, series[2];
    const char *const names[2] = {linear ? "a" : "x", "b"};
    const int invariant[2] = {linear && run->kernel->a_invariant, linear && run->kernel->b_invariant};
    TRY(read_input(api, run->context, 0, &initial));
    if (!initial.data)
        return fail(api, "%s: v_initial must be given", op);
    run->steps = -1;
    for (int k = 0; k <= linear; k++) {
        TRY(read_input(api, run->context, (size_t)k + 1, &series[k]));
        if (!series[k].data)
            return fail(api, "%s: %s must be given", op, names[k]);
        if (invariant[k])
            continue;
        if (series[k].shape.rank == 0)
            return fail(api, "%s: %s is a scalar, but time must be its first axis", op, names[k]);
        int64_t steps = series[k].shape.extent[0];
        if (run->steps >= 0 && steps != run->steps)
            return fail(api, "%s: all series must have the same length: a has %lld steps, b has %lld steps", op,
                        (long long)run->steps, (long long)steps);
        run->steps = steps;
    }
    if (run->steps < 0)
        return fail(api, "%s: all series must have the same length: no input has a time axis", op);

    run->columns = (ptrdiff_t)element_count(&initial.shape);
    run->state = initial.data;
    run->recurrence = linear ? MULTIPLY_AND_ADD : ADD;
    if (run->steps > 0) { /* elements that nothing reads may have any shape */
        TRY(read_series(run, names[0], &series[0], invariant[0], &initial.shape, linear ? &run->factor : &run->term));
        if (linear)
            TRY(read_series(run, names[1], &series[1], invariant[1], &initial.shape, &run->term));
    }
    void *final, *stacked;
    struct shape rows = with_first_axis(run->steps, &initial.shape);
    TRY(make_output(api, run->context, 0, &initial.shape, &final));
    TRY(make_output(api, run->context, 1, &rows, &stacked));
    if (run->steps > 0)
        return compute(run, final, stacked);
    if (final)
        memcpy(final, initial.data, (size_t)run->columns * run->kernel->element.size);
    return NULL;
}

static OrtStatus *run_kernel(void *given, OrtKernelContext *context)
{
    const struct kernel *kernel = given;
    struct run run = {.kernel = kernel, .context = context};
    OrtStatus *status = kernel->type == ADD_STEP ? add_step(&run) : over_time(&run);
    while (run.room_count > 0)
        free(run.rooms[--run.room_count]);
    return status;
}

static int64_t flag(const OrtApi *api, const OrtKernelInfo *info, const char *name)
{
    int64_t value = 0;
    OrtStatus *status = ORT(api, KernelInfoGetAttribute_int64)(info, name, &value);
    if (status) { /* not given */
        ORT(api, ReleaseStatus)(status);
        value = 0;
    }
    return value;
}

static OrtStatus *create_kernel(const OrtCustomOp *functions, const OrtApi *api, const OrtKernelInfo *info, void **out)
{
    const struct op *op = (const struct op *)functions;
    struct kernel *kernel = malloc(sizeof *kernel);
    if (!kernel)
        return fail(api, "%s: no memory", NAMES[op->type]);
    *kernel = (struct kernel){
        .api = api,
        .type = op->type,
        .element = op->element,
        .emit_previous = flag(api, info, "emit_previous"),
        .reverse = op->type == ADD_STEP ? 0 : flag(api, info, "reverse"),
        .a_invariant = flag(api, info, "a_invariant"),
        .b_invariant = flag(api, info, "b_invariant"),
    };
    *out = kernel;
    return NULL;
}

static const char *name_of(const OrtCustomOp *op) { return NAMES[((const struct op *)op)->type]; }
static const char *provider_of(const OrtCustomOp *op) { return (void)op, NULL; }
static size_t two(const OrtCustomOp *op) { return (void)op, 2; }
static int one(const OrtCustomOp *op) { return (void)op, 1; }
static int optional(const OrtCustomOp *op, size_t index) { return (void)op, (void)index, ORT_OPTIONAL; }
static int default_memory(const OrtCustomOp *op, size_t index) { return (void)op, (void)index, 0; }

static size_t input_count(const OrtCustomOp *op)
{
    static const size_t counts[OP_TYPES] = {4, 2, 3};
    return counts[((const struct op *)op)->type];
}

static int input_type(const OrtCustomOp *functions, size_t index)
{
    const struct op *op = (const struct op *)functions;
    if (op->type == ADD_STEP && index < 2)
        return index == 0 ? ORT_INT64 : ORT_BOOL;
    return op->element.ort;
}

static int output_type(const OrtCustomOp *op, size_t index) { return (void)index, ((const struct op *)op)->element.ort; }

static int input_characteristic(const OrtCustomOp *op, size_t index)
{
    return ((const struct op *)op)->type == ADD_STEP && index == 1 ? ORT_OPTIONAL : ORT_REQUIRED;
}

struct op make_op(enum op_type type, struct element element)
{
    return (struct op){
        .functions =
            {
                .version = ORT_VERSION,
                .GetName = name_of,
                .GetExecutionProviderType = provider_of,
                .GetInputType = input_type,
                .GetInputTypeCount = input_count,
                .GetOutputType = output_type,
                .GetOutputTypeCount = two,
                .KernelDestroy = free,
                .GetInputCharacteristic = input_characteristic,
                .GetOutputCharacteristic = optional,
                .GetInputMemoryType = default_memory,
                .GetVariadicInputMinArity = one,
                .GetVariadicInputHomogeneity = one,
                .GetVariadicOutputMinArity = one,
                .GetVariadicOutputHomogeneity = one,
                .CreateKernelV2 = create_kernel,
                .KernelComputeV2 = run_kernel,
            },
        .type = type,
        .element = element,
    };
}
