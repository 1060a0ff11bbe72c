/* cuda_int.h -- what the files of the CUDA printer share. */
#ifndef CKC_CUDA_INT_H
#define CKC_CUDA_INT_H
#include "text.h"
#include <inttypes.h>
#include <string.h>

/* BLOCKS: the number of blocks launches aim at on any device, two for each of an H200's 132 processors. */
enum { WARP = 32, FLAT_THREADS = 256, MAX_THREADS = 1024, BLOCKS = 264 };

/* How threads take the innermost dimension: in chunks of `width` elements, whose contiguous operands are
 * accessed 16 bytes at a time and whose random draws are made four at a time. */
typedef struct {
    int width;  /* 1: element by element */
    bool flat;  /* the whole space is cut into chunks as if it were one row (SCHED_POINT) */
    bool edges; /* some chunks are not whole */
    int phase;  /* load or store whose address modulo width is the number of elements that a row's first chunk
                 * begins before the row; -1: rows begin with a chunk */
    bool *wide; /* per instruction: it loads or stores whole chunks, or makes four draws at a time */
} Vector;
/* Arrays live in a. */
void vector_make(Vector *v, const Sched *s, Arena *a);

/* Numbers of loads and stores along whole contiguous rows: those of 16 bytes, and narrower ones. */
typedef struct {
    int wide, narrow;
} Accesses;
Accesses vector_accesses(const Vector *v, const Sched *s);

/* Threads and blocks of a row kernel. */
typedef struct {
    int lanes;       /* threads of a row: a power of 2 */
    int chunks;      /* chunks of a thread, in registers from pass to pass; 0: too many, read in every pass */
    int64_t along;   /* chunks along the innermost dimension */
    int64_t all;     /* chunks of a row, along all reduced dimensions */
    bool *held;      /* per instruction: a load whose chunks stay in registers */
    bool *kept;      /* per instruction: a load whose chunks stay in shared memory from its first pass on */
    int64_t *at;     /* per instruction: byte offset of what is kept in shared memory */
    int sums;        /* number of column sums in the kernel; if any, a block takes rows one after the other */
    int64_t turns;   /* number of rows (or groups of rows) a block takes one after the other; else 1 */
} Rows;

typedef struct {
    int lanes; /* threads along the columns of a block: a power of 2 */
} Columns;

/* Parts into which the reduced points are cut, one per block: partial results go through the workspace, and
 * every pass is a phase. */
typedef struct {
    int64_t n, per; /* number of parts (1: not cut); points, or chunks of a row, in a part */
    int64_t *at;    /* per instruction that reduces: byte offset of its partial results in the workspace */
} Parts;

typedef struct {
    Writer w;
    const char *name;
    const Sched *s;
    Vector v;
    bool counted;   /* the number of elements is an argument, n: one text serves all sizes */
    char limit[24]; /* end of the index range of a chunk's elements: a number or "n" */
    Rows rows;
    Columns columns;
    Parts parts;
    bool *need;       /* per instruction: this phase computes it, or joins it */
    CudaLaunch launches;
    CudaPhase launch; /* the phase that is being printed */
    int phase;        /* its number */
    bool *mark;       /* per instruction: scratch */
    int pass;         /* the pass over the reduced dimensions that is being printed */
} Printer;

static inline CudaLaunch one_phase(unsigned grid, unsigned block)
{
    return (CudaLaunch){.phase = {{grid, block, 0}}, .n = 1};
}
static inline unsigned blocks_for(int64_t work, int64_t per_block)
{
    int64_t n = ceil_div(work, per_block);
    return (unsigned)(n < 1 ? 1 : n);
}

static inline bool cuda_is_body(const Kernel *k, const char *name)
{
    return k->body && strcmp(k->body->name, name) == 0;
}

/* ---- cuda.c ------------------------------------------------------------------------------------- */

NameFn cuda_name_of; /* ctx: a Printer */
/* Is instruction i a marked value that changes along the reduced dimensions? */
static inline bool cuda_walks(const Printer *pr, uint32_t i)
{
    return pr->mark[i] && sched_is_plain(&pr->s->ins[i]) && (pr->s->dep[i] & pr->s->red);
}
const char *cuda_reduction(const KInst *in);     /* "sum", "max", "min", "prod" */
void cuda_shared_parts(Printer *pr, unsigned n); /* declares shared memory for n partial results */

/* ---- cuda_vector.c: a chunk, whose first element has index j ------------------------------------- */

/* Declares the array for a wide load, "float u3[4]"; copies > 0: an array of so many chunks. */
void chunk_declare(Printer *pr, uint32_t i, int copies);
/* Fills that array; at: "[c]" or "". */
void chunk_load(Printer *pr, uint32_t i, const char *at);
/* Opens the loop over a chunk's elements, in which i<vec> is the index. */
void chunk_open(Printer *pr);
/* chunk_begin prints draws and arrays for wide stores before the loop, chunk_value and chunk_store one value
 * and one store in it, chunk_end the wide stores behind it. */
void chunk_begin(Printer *pr, const bool *mark);
void chunk_value(Printer *pr, uint32_t i);
void chunk_store(Printer *pr, uint32_t i);
void chunk_end(Printer *pr, const bool *mark);

/* ---- cuda_parts.c ------------------------------------------------------------------------------- */

/* The launches of a kernel with so many blocks.  Where blocks are few and there is much to read, each is cut
 * into parts of its `points`, at least `least` in a part. */
CudaLaunch parts_launch(Printer *pr, int64_t blocks, unsigned threads, int64_t points, int64_t least);
/* Would such launches leave processors without work while smaller parts would not? */
bool parts_are_few(const Printer *pr, int64_t blocks, int64_t points, int64_t least);
int64_t parts_of_phase(const Printer *pr); /* 1: a block has all points, or only joins */
int64_t parts_bytes(const Printer *pr, uint32_t i); /* bytes of a reduction's partial results */
void parts_need(Printer *pr); /* sets Printer.need for the phase */
/* Are the results of the pass just printed partial ones, which another phase joins? */
bool parts_wait(const Printer *pr);

/* ---- kinds -------------------------------------------------------------------------------------- */

CudaLaunch point_launch(const Sched *s, const Vector *v);
bool cuda_is_staged(const Sched *s, uint32_t i); /* a transposed load that goes through shared memory */
int staged_width(const Sched *s, uint32_t i);    /* elements per access to its operand */
void point_kernel(Printer *pr);
void rows_make(Rows *r, const Sched *s, const Vector *v, Arena *a); /* arrays live in a */
CudaLaunch row_launch(Printer *pr); /* also sets pr->parts */
void row_kernel(Printer *pr);
/* cuda_sums.c.  sums_launch: the launch over the rows and the one that joins their sums.  The others print
 * text: before the rows, for an element of a chunk, behind the rows, and the second launch. */
CudaLaunch sums_launch(Printer *pr);
void sums_start(Printer *pr);
void sums_add(Printer *pr);
void sums_store(Printer *pr);
void sums_kernel(Printer *pr);
CudaLaunch column_launch(Printer *pr);
void column_kernel(Printer *pr);

/* ---- cuda_gather.c: bodies that have a CUDA text of their own ------------------------------------ */

bool cuda_is_gather(const Kernel *k);
CudaLaunch gather_launch(const Kernel *k);
void gather_kernel(Printer *pr, const Kernel *k);
bool cuda_is_gather_sum(const Kernel *k); /* its text calls functions of prelude/gather.h */
CudaLaunch gather_sum_launch(const Kernel *k);
double gather_sum_flops(const Kernel *k);
void gather_sum_prelude(Printer *pr, const Kernel *k);
void gather_sum_kernel(Printer *pr, const Kernel *k);

/* Defines macro, such as "JOIN(a, b)": elements of a type joined as SCATTER_ADD and so on say. */
void cuda_define_join(const Writer *w, const char *macro, int64_t how, DType type);

/* ---- cuda_pool.c: pools and copies into zeros ----------------------------------------------------- */

bool cuda_is_pool(const Kernel *k);
CudaLaunch pool_launch(const Kernel *k);
void pool_prelude(Printer *pr, const Kernel *k); /* prints the functions that its kernel calls */
void pool_kernel(Printer *pr, const Kernel *k);
int pool_results(const Kernel *k); /* how many of the last operands it writes */
bool cuda_is_pad(const Kernel *k);
CudaLaunch pad_launch(const Kernel *k);
void pad_kernel(Printer *pr, const Kernel *k);

/* Prints the body of a kernel in which each of so many items has a thread. */
void item_kernel(Printer *pr, const Kernel *k, int64_t items, int threads);

/* ---- cuda_scan.c: cumulative sums ----------------------------------------------------------------- */

bool cuda_is_scan(const Kernel *k);
CudaLaunch scan_launch(const Kernel *k);
void scan_prelude(Printer *pr, const Kernel *k);
void scan_kernel(Printer *pr, const Kernel *k);

/* ---- cuda_topk.c: the first elements of rows in order ---------------------------------------------- */

bool cuda_is_topk(const Kernel *k);
CudaLaunch topk_launch(const Kernel *k);
double topk_flops(const Kernel *k);
void topk_prelude(Printer *pr, const Kernel *k);
void topk_kernel(Printer *pr, const Kernel *k);

/* ---- cuda_sample.c: grid_sample and its gradient -------------------------------------------------- */

bool cuda_is_sample(const Kernel *k);
CudaLaunch sample_launch(const Kernel *k);
void sample_prelude(Printer *pr, const Kernel *k);
void sample_kernel(Printer *pr, const Kernel *k);

/* ---- cuda_elements.c: gather_elements and scatter_elements ---------------------------------------- */

/* The same kernel with a column as an item where it has a chunk of neighbouring ones, so that the neighbours
 * are a warp's; other kernels as they are. */
Kernel cuda_by_columns(const Kernel *k);

bool cuda_is_elements(const Kernel *k);
CudaLaunch elements_launch(const Kernel *k);
void elements_prelude(Printer *pr, const Kernel *k);
void elements_kernel(Printer *pr, const Kernel *k);
bool cuda_is_scatter(const Kernel *k); /* its text calls functions of prelude/gather.h */
CudaLaunch scatter_launch(const Kernel *k);
double scatter_flops(const Kernel *k);
void scatter_prelude(Printer *pr, const Kernel *k);
void scatter_kernel(Printer *pr, const Kernel *k);
#endif
