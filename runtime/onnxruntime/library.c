/* The library's door: ONNX Runtime calls RegisterCustomOps when a user registers the library with session options. */

#include "ort_api.h"
#include "recurrences.h"
#include "tensors.h"

#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

static struct op ops[OP_TYPES * ELEMENT_COUNT];

EXPORTED OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base)
{
    const OrtApi *api = base->GetApi(ORT_VERSION);
    if (!api)
        return fail(base->GetApi(1), "looplift: the kernels need ONNX Runtime 1.18 or later, and this is %s",
                    base->GetVersionString());
    const char *fault = find_fault();
    if (fault)
        return fail(api, "looplift: the kernels are refused, since this build of them is not exact: %s", fault);
    /* A domain lives as long as the process, as sessions may: there is no moment at which none reads it. */
    OrtCustomOpDomain *domain = NULL;
    TRY(ORT(api, CreateCustomOpDomain)("ai.looplift", &domain));
    static const struct element elements[ELEMENT_COUNT] = ELEMENTS;
    for (int type = 0; type < OP_TYPES; type++)
        for (int k = 0; k < ELEMENT_COUNT; k++) {
            struct op *op = &ops[type * ELEMENT_COUNT + k];
            *op = make_op((enum op_type)type, elements[k]);
            TRY(ORT(api, CustomOpDomain_Add)(domain, &op->functions));
        }
    return ORT(api, AddCustomOpDomain)(options, domain);
}
