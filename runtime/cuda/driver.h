/* driver.h -- NVIDIA's driver API, NVRTC and cuBLASLt, which are loaded at run time. */
#ifndef CKC_CUDA_DRIVER_H
#define CKC_CUDA_DRIVER_H

#include "ir/device.h"

typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUmemorytype,
    CUstreamCaptureMode, nvrtcResult;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct _nvrtcProgram *nvrtcProgram;
typedef int cublasStatus_t, cublasComputeType_t, cublasOperation_t, cudaDataType, cudaDataType_t,
    libraryPropertyType, cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtEpilogue_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct LtMatmulDesc *cublasLtMatmulDesc_t;
typedef struct LtMatrixLayout *cublasLtMatrixLayout_t;
typedef struct LtMatmulPreference *cublasLtMatmulPreference_t;
typedef CUstream cudaStream_t;

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

typedef struct {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

#define CONSTANT(name, value) name = value,
enum {
#include "symbols.def"
    CUDA_CONSTANTS_END
};

typedef struct {
#define CU(name, ...) CUresult (*name)(__VA_ARGS__);
#include "symbols.def"
    int version; /* newest CUDA that the driver runs: 12040 is 12.4 */
} CudaDriver;

typedef struct {
#define RTC(name, ...) nvrtcResult (*name)(__VA_ARGS__);
#include "symbols.def"
    int major, minor;
    uint64_t hash; /* differs from installation to installation */
} Nvrtc;

typedef struct {
#define LT(name, ...) cublasStatus_t (*name)(__VA_ARGS__);
#include "symbols.def"
    int version; /* 130200 is 13.2.0 */
} CublasLt;

/* The libraries are loaded once; any thread may call these.  If CKC_CUDA_PATH is set, only that folder is
 * searched ("": none); else the loader's folders, /usr/local/cuda, and the packages of Python.  NULL: a
 * message of one line (EXIT_DEVICE) says what is missing, where it was searched and what works without it. */
const CudaDriver *cuda_driver(Diag *d);
/* A version that is not newer than the driver. */
const Nvrtc *cuda_nvrtc(const CudaDriver *cu, Diag *d);
const CublasLt *cuda_cublaslt(const CudaDriver *cu, Diag *d);

/* Is r a success?  If not, the message names the function that was called. */
bool cuda_ok(const CudaDriver *cu, CUresult r, const char *call, Diag *d);
#define CUDA_CALL(cu, name, ...) cuda_ok(cu, (cu)->name(__VA_ARGS__), #name, d)
/* NULL is fine. */
static inline void cuda_event_free(const CudaDriver *cu, CUevent e)
{
    if (e)
        cu->cuEventDestroy_v2(e);
}

#endif
