/* product.h -- matrix products of cuBLASLt: descriptors, algorithms, and the text that pins them in a plan.
 *
 * A plan that is made where the library is holds an algorithm for every product: a run takes those, or
 * refuses.  All executions of a description share one, so that recomputing gives the same bits. */
#ifndef CKC_CUDA_PRODUCT_H
#define CKC_CUDA_PRODUCT_H

#include "driver.h"
#include "ir/gemm.h"
#include "ir/program.h"

/* A description as this library asks for it.  Compares as memory. */
typedef struct {
    Gemm g;
    int align[GEMM_OPERANDS]; /* bytes, of all places that it works on */
} AlignedGemm;

typedef struct {
    AlignedGemm *of;
    uint32_t n;
} Products;

/* Those of launches, each once, in the order in which they come; allocated in a. */
Products products_of(const Launch *l, uint32_t n, Arena *a);
/* Which of them a call of a launch is. */
uint32_t product_index(const Products *p, const Gemm *g);

typedef struct {
    cublasLtMatmulAlgo_t algo;
    int64_t workspace; /* bytes; < 0: there is no algorithm, it runs as text */
} ProductAlgo;

enum { PRODUCT_ALGOS = 16 };

/* The library on a device.  The context it was opened in is current wherever it is used. */
typedef struct {
    const CublasLt *lt;
    cublasLtHandle_t handle;
    char pin[32]; /* what algorithms are pinned to: versions and the GPU's kind */
} ProductLibrary;

/* NULL lt: it is not here. */
bool products_open(ProductLibrary *l, const CudaDriver *cu, CUdevice device, Diag *d);
void products_close(ProductLibrary *l);
/* Has it algorithms for products with the epilogues of passes/epilogue.c?  One of each kind is asked for. */
bool products_have_epilogues(const ProductLibrary *l);

/* What a product runs through. */
typedef struct {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t layout[GEMM_C]; /* of A, B, Y; C has Y's */
    ProductAlgo algo;
    DType sum; /* what alpha and beta are */
    bool adds, bias;
    GeluOf gelu;
} Routine;

bool routine_make(Routine *r, const ProductLibrary *l, const AlignedGemm *p, Diag *d);
void routine_free(Routine *r, const ProductLibrary *l); /* also of one that failed */
/* Up to `most` algorithms within that workspace, in the library's order; deterministic ones alone, and those
 * that its own check takes as well. */
int routine_algos(const Routine *r, const ProductLibrary *l, const AlignedGemm *p, int64_t workspace,
                  ProductAlgo *out, int most);
/* Does the library take it, within its workspace? */
bool routine_takes(const Routine *r, const ProductLibrary *l, const ProductAlgo *algo);
/* at: by GemmOperand; only those that there are. */
bool routine_run(const Routine *r, const ProductLibrary *l, const CUdeviceptr at[GEMM_OPERANDS],
                 CUdeviceptr workspace, CUstream stream, Diag *d);

/* As Step.choice has them: "cublaslt" of a device that is not here; else "cublaslt:PIN:ALGO,ALGO,...", an
 * algorithm for each of a command's products, "-" for one that runs as text.  NULL if all do. */
extern const char product_unpinned[]; /* "cublaslt" */
const char *product_choice(const ProductLibrary *l, const ProductAlgo *algo, uint32_t n, Arena *a);
/* The part of one product: text in hexadecimal, "-" for one that runs as text; *s moves behind it. */
const char *product_algo_text(const ProductAlgo *algo, Arena *a);
bool product_algo_parse(const char **s, ProductAlgo *out);
/* The algorithms of n products from a choice, NULL: all run as text.  False: it is none that is pinned to
 * this library. */
bool product_parse(const ProductLibrary *l, const char *choice, uint32_t n, ProductAlgo *out);

#endif
