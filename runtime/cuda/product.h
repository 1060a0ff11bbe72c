/* product.h -- matrix products of cuBLASLt: descriptors, algorithms, and the text that pins them in a plan.
 *
 * A plan that is made on a machine with the library has an algorithm for every product: a run uses these, or
 * refuses.  All executions of a description share one algorithm, so that recomputing gives the same bits. */
#ifndef CKC_CUDA_PRODUCT_H
#define CKC_CUDA_PRODUCT_H

#include "driver.h"
#include "ir/gemm.h"
#include "ir/program.h"

/* A product as the library is asked for it.  Compared with memcmp. */
typedef struct {
    Gemm g;
    int align[GEMM_OPERANDS]; /* alignment in bytes that all addresses of the operand have */
} AlignedGemm;

typedef struct {
    AlignedGemm *of;
    uint32_t n;
} Products;

/* The distinct products of launches, in order of first use.  Allocated in a. */
Products products_of(const Launch *l, uint32_t n, Arena *a);
/* Index of the product of a call; p->n: it is not there. */
uint32_t product_index(const Products *p, const Gemm *g);

typedef struct {
    cublasLtMatmulAlgo_t algo;
    int64_t workspace; /* bytes; < 0: there is no algorithm, and the product runs as text */
} ProductAlgo;

enum { PRODUCT_ALGOS = 16 };

/* The library on a device.  The context that it was opened in must be current whenever it is used. */
typedef struct {
    const CublasLt *lt;
    cublasLtHandle_t handle;
    char pin[32]; /* what algorithms are pinned to: library version, capability, multiprocessors */
} ProductLibrary;

/* If the library is not here, this succeeds with l->lt NULL. */
bool products_open(ProductLibrary *l, const CudaDriver *cu, CUdevice device, Diag *d);
void products_close(ProductLibrary *l);
/* Has it algorithms for products with the epilogues of passes/epilogue.c?  One of each kind is tried. */
bool products_have_epilogues(const ProductLibrary *l);

/* A product with its algorithm, ready to run. */
typedef struct {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t layout[GEMM_C]; /* of A, B and Y; C has that of Y */
    ProductAlgo algo;
    DType sum; /* type of alpha and beta */
    bool adds, bias;
    GeluOf gelu;
} Routine;

bool routine_make(Routine *r, const ProductLibrary *l, const AlignedGemm *p, Diag *d);
void routine_free(Routine *r, const ProductLibrary *l); /* to be called even if routine_make failed */
/* Finds up to `most` algorithms with at most that workspace, in the library's order, and returns their
 * number; only deterministic ones that the library's own check takes, too. */
int routine_algos(const Routine *r, const ProductLibrary *l, const AlignedGemm *p, int64_t workspace,
                  ProductAlgo *out, int most);
/* Does the library take the algorithm, within the workspace that this has? */
bool routine_takes(const Routine *r, const ProductLibrary *l, const ProductAlgo *algo);
/* at: addresses by GemmOperand; those of absent operands are not read. */
bool routine_run(const Routine *r, const ProductLibrary *l, const CUdeviceptr at[GEMM_OPERANDS],
                 CUdeviceptr workspace, CUstream stream, Diag *d);

/* The text of Step.choice: "cublaslt" for a device that is not here; else "cublaslt:PIN:ALGO,ALGO,...", with
 * an algorithm for each of a command's products, "-" for one that runs as text; NULL if all run as text. */
extern const char product_unpinned[]; /* "cublaslt" */
const char *product_choice(const ProductLibrary *l, const ProductAlgo *algo, uint32_t n, Arena *a);
/* Print and parse ALGO of one product: hexadecimal words and the workspace, or "-" if it runs as text.
 * Parsing moves *s behind it. */
const char *product_algo_text(const ProductAlgo *algo, Arena *a);
bool product_algo_parse(const char **s, ProductAlgo *out);
/* Parses the algorithms of n products from a choice (NULL: all run as text).  False: the choice is not pinned
 * to this library. */
bool product_parse(const ProductLibrary *l, const char *choice, uint32_t n, ProductAlgo *out);

#endif
