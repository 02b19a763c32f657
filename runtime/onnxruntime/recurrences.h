/* The recurrences of domain ai.looplift: their kernels, and the op objects that ONNX Runtime takes. */
#ifndef LOOPLIFT_RECURRENCES_H
#define LOOPLIFT_RECURRENCES_H

#include "elements.h"
#include "ort_api.h"

enum op_type { ADD_STEP, PREFIX_SUM, LINEAR_RECURRENCE, OP_TYPES };

/* An op of one element type. ONNX Runtime gets the address of the first member. */
struct op {
    OrtCustomOp functions;
    enum op_type type;
    struct element element;
};

struct op make_op(enum op_type type, struct element element);

/* NULL, or what this build computes otherwise than IEEE 754 has it. */
const char *find_fault(void);

#endif
