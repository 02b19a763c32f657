/* The part of ONNX Runtime's C API that the library uses. The table of functions only ever grows, so a function is known
   by its position; the positions are those of API version 18 (ONNX Runtime 1.18) and of every one since. */
#ifndef LOOPLIFT_ORT_API_H
#define LOOPLIFT_ORT_API_H

#include <stddef.h>
#include <stdint.h>

#define ORT_VERSION 18

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;

typedef struct OrtApi {
    void (*function[275])(void);
} OrtApi;

typedef struct OrtApiBase {
    const OrtApi *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };                    /* OrtErrorCode */
enum { ORT_REQUIRED = 0, ORT_OPTIONAL = 1 };                        /* OrtCustomOpInputOutputCharacteristic */
enum { ORT_BOOL = 9, ORT_INT64 = 7 };                               /* ONNXTensorElementDataType; others in elements.h */

/* ORT(api, Name)(arguments) calls a function by its position. */
#define ORT(api, name) ((Ort##name)(api)->function[ORT_##name])

enum {
    ORT_CreateStatus = 0,
    ORT_CreateCustomOpDomain = 26,
    ORT_CustomOpDomain_Add = 27,
    ORT_AddCustomOpDomain = 28,
    ORT_GetTensorMutableData = 51,
    ORT_GetDimensionsCount = 61,
    ORT_GetDimensions = 62,
    ORT_GetTensorTypeAndShape = 65,
    ORT_KernelInfoGetAttribute_int64 = 86,
    ORT_KernelContext_GetInput = 90,
    ORT_KernelContext_GetOutput = 91,
    ORT_ReleaseStatus = 93,
    ORT_ReleaseTensorTypeAndShapeInfo = 99,
    ORT_KernelContext_ParallelFor = 274
};

struct OrtCustomOp;
typedef OrtStatus *(*OrtCreateStatus)(int code, const char *message);
typedef OrtStatus *(*OrtCreateCustomOpDomain)(const char *name, OrtCustomOpDomain **out);
typedef OrtStatus *(*OrtCustomOpDomain_Add)(OrtCustomOpDomain *domain, const struct OrtCustomOp *op);
typedef OrtStatus *(*OrtAddCustomOpDomain)(OrtSessionOptions *options, OrtCustomOpDomain *domain);
typedef OrtStatus *(*OrtGetTensorMutableData)(OrtValue *value, void **out);
typedef OrtStatus *(*OrtGetDimensionsCount)(const OrtTensorTypeAndShapeInfo *info, size_t *out);
typedef OrtStatus *(*OrtGetDimensions)(const OrtTensorTypeAndShapeInfo *info, int64_t *out, size_t length);
typedef OrtStatus *(*OrtGetTensorTypeAndShape)(const OrtValue *value, OrtTensorTypeAndShapeInfo **out);
typedef OrtStatus *(*OrtKernelInfoGetAttribute_int64)(const OrtKernelInfo *info, const char *name, int64_t *out);
typedef OrtStatus *(*OrtKernelContext_GetInput)(const OrtKernelContext *context, size_t index, const OrtValue **out);
typedef OrtStatus *(*OrtKernelContext_GetOutput)(OrtKernelContext *context, size_t index, const int64_t *dims,
                                                 size_t rank, OrtValue **out);
typedef void (*OrtReleaseStatus)(OrtStatus *status);
typedef void (*OrtReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *info);
typedef OrtStatus *(*OrtKernelContext_ParallelFor)(const OrtKernelContext *context, void (*work)(void *, size_t),
                                                   size_t total, size_t batches, void *data);

/* A custom op as ONNX Runtime reads it, up to what version 18 has. */
typedef struct OrtCustomOp {
    uint32_t version;
    void *(*CreateKernel)(const struct OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info);
    const char *(*GetName)(const struct OrtCustomOp *op);
    const char *(*GetExecutionProviderType)(const struct OrtCustomOp *op);
    int (*GetInputType)(const struct OrtCustomOp *op, size_t index);
    size_t (*GetInputTypeCount)(const struct OrtCustomOp *op);
    int (*GetOutputType)(const struct OrtCustomOp *op, size_t index);
    size_t (*GetOutputTypeCount)(const struct OrtCustomOp *op);
    void (*KernelCompute)(void *kernel, OrtKernelContext *context);
    void (*KernelDestroy)(void *kernel);
    int (*GetInputCharacteristic)(const struct OrtCustomOp *op, size_t index);
    int (*GetOutputCharacteristic)(const struct OrtCustomOp *op, size_t index);
    int (*GetInputMemoryType)(const struct OrtCustomOp *op, size_t index);
    int (*GetVariadicInputMinArity)(const struct OrtCustomOp *op);
    int (*GetVariadicInputHomogeneity)(const struct OrtCustomOp *op);
    int (*GetVariadicOutputMinArity)(const struct OrtCustomOp *op);
    int (*GetVariadicOutputHomogeneity)(const struct OrtCustomOp *op);
    OrtStatus *(*CreateKernelV2)(const struct OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out);
    OrtStatus *(*KernelComputeV2)(void *kernel, OrtKernelContext *context);
    OrtStatus *(*InferOutputShapeFn)(const struct OrtCustomOp *op, void *context);
    int (*GetStartVersion)(const struct OrtCustomOp *op);
    int (*GetEndVersion)(const struct OrtCustomOp *op);
    size_t (*GetMayInplace)(int **inputs, int **outputs);
    void (*ReleaseMayInplace)(int *inputs, int *outputs);
    size_t (*GetAliasMap)(int **inputs, int **outputs);
    void (*ReleaseAliasMap)(int *inputs, int *outputs);
} OrtCustomOp;

#endif
