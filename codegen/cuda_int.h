/* cuda_int.h -- what the files of the CUDA printer share. */
#ifndef CKC_CUDA_INT_H
#define CKC_CUDA_INT_H
#include "text.h"
#include <inttypes.h>
#include <string.h>

/* BLOCKS: two for each of the 132 processors of an H200: what launches aim at, on any device. */
enum { WARP = 32, FLAT_THREADS = 256, MAX_THREADS = 1024, BLOCKS = 264 };

/* How threads take the innermost dimension: in chunks of `width` elements, whose contiguous operands are
 * accessed 16 bytes at a time and whose random draws are made four at a time. */
typedef struct {
    int width;  /* 1: element by element */
    bool flat;  /* chunks of the whole space, across its rows (SCHED_POINT) */
    bool edges; /* some chunks are not whole */
    int phase;  /* load or store whose address modulo width says how far before a row its first chunk begins;
                 * -1: rows begin with a chunk */
    bool *wide; /* per instruction: a load or store of whole chunks, a draw of four */
} Vector;
/* Arrays live in a. */
void vector_make(Vector *v, const Sched *s, Arena *a);

/* Loads and stores along whole contiguous rows: of 16 bytes, and narrower ones. */
typedef struct {
    int wide, narrow;
} Accesses;
Accesses vector_accesses(const Vector *v, const Sched *s);

/* Threads and blocks of a row kernel. */
typedef struct {
    int lanes;       /* threads of a row: a power of 2 */
    int chunks;      /* of a thread, held in registers from pass to pass; 0: too many, read in every pass */
    int64_t along;   /* chunks along the innermost dimension */
    int64_t all;     /* of a row */
    bool *held;      /* per instruction: a load that several passes need */
    bool *kept;      /* one that is in shared memory from its first pass on */
    int64_t *at;     /* where */
    int sums;        /* sums of columns beside it: blocks have several rows, one behind the other */
    int64_t turns;   /* so many; else 1 */
} Rows;

typedef struct {
    int lanes; /* threads along the columns of a block: a power of 2 */
} Columns;

/* Parts of the reduced points, of which a block has one: its partial results go through the workspace, and
 * passes are phases. */
typedef struct {
    int64_t n, per; /* 1: a block has all of them; points, or chunks of a row, of a part */
    int64_t *at;    /* per instruction that reduces: its partial results in the workspace */
} Parts;

typedef struct {
    Writer w;
    const char *name;
    const Sched *s;
    Vector v;
    bool counted;   /* how many elements there are is an argument, n: a text for all sizes */
    char limit[24]; /* of the index of a chunk's elements: a number or n */
    Rows rows;
    Columns columns;
    Parts parts;
    bool *need;       /* per instruction: this phase computes it, or joins it */
    CudaLaunch launches;
    CudaPhase launch; /* what is being printed: of the phases */
    int phase;
    bool *mark;       /* per instruction: scratch */
    int pass;         /* over the reduced dimensions, likewise */
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
/* Is it a marked value that changes along the reduced dimensions? */
static inline bool cuda_walks(const Printer *pr, uint32_t i)
{
    return pr->mark[i] && sched_is_plain(&pr->s->ins[i]) && (pr->s->dep[i] & pr->s->red);
}
const char *cuda_reduction(const KInst *in);     /* "sum" */
void cuda_shared_parts(Printer *pr, unsigned n); /* memory for n partial results */

/* ---- cuda_vector.c: a chunk, whose first element has index j ------------------------------------- */

/* Arrays for wide loads: "float u3[4]"; copies > 0: of so many chunks. */
void chunk_declare(Printer *pr, uint32_t i, int copies);
/* Fill it; at: "[c]" or "". */
void chunk_load(Printer *pr, uint32_t i, const char *at);
/* Open the loop over a chunk's elements, in which i<vec> is the index. */
void chunk_open(Printer *pr);
/* Before the loop: draws, and arrays for what is stored; in it: one value, one store; behind it: stores. */
void chunk_begin(Printer *pr, const bool *mark);
void chunk_value(Printer *pr, uint32_t i);
void chunk_store(Printer *pr, uint32_t i);
void chunk_end(Printer *pr, const bool *mark);

/* ---- cuda_parts.c ------------------------------------------------------------------------------- */

/* Launches of so many blocks, or of parts where they are few and there is much to do: of `points`, at least
 * `least` each. */
CudaLaunch parts_launch(Printer *pr, int64_t blocks, unsigned threads, int64_t points, int64_t least);
/* Would those leave processors without work, and do smaller parts not? */
bool parts_are_few(const Printer *pr, int64_t blocks, int64_t points, int64_t least);
int64_t parts_of_phase(const Printer *pr); /* 1: a block has everything, or only joins */
int64_t parts_bytes(const Printer *pr, uint32_t i); /* of a reduction's partial results in the workspace */
void parts_need(Printer *pr);
/* Is what the pass that was printed reduces for another phase to join? */
bool parts_wait(const Printer *pr);

/* ---- kinds -------------------------------------------------------------------------------------- */

CudaLaunch point_launch(const Sched *s, const Vector *v);
bool cuda_is_staged(const Sched *s, uint32_t i); /* a load crosses shared memory, as it is transposed */
int staged_width(const Sched *s, uint32_t i);    /* elements of an access to it */
void point_kernel(Printer *pr);
void rows_make(Rows *r, const Sched *s, const Vector *v, Arena *a); /* arrays live in a */
CudaLaunch row_launch(Printer *pr); /* and its parts */
void row_kernel(Printer *pr);
/* cuda_sums.c: launches of rows and of what joins their sums; text in front of the rows, of an element of a
 * chunk, behind the rows, of the second launch. */
CudaLaunch sums_launch(Printer *pr);
void sums_start(Printer *pr);
void sums_add(Printer *pr);
void sums_store(Printer *pr);
void sums_kernel(Printer *pr);
CudaLaunch column_launch(Printer *pr);
void column_kernel(Printer *pr);

/* ---- cuda_gather.c: bodies that have a text of their own here ------------------------------------ */

bool cuda_is_gather(const Kernel *k);
CudaLaunch gather_launch(const Kernel *k);
void gather_kernel(Printer *pr, const Kernel *k);
bool cuda_is_gather_sum(const Kernel *k); /* it calls functions of prelude/gather.h */
CudaLaunch gather_sum_launch(const Kernel *k);
void gather_sum_kernel(Printer *pr, const Kernel *k);

/* ---- cuda_pool.c: likewise ------------------------------------------------------------------------ */

bool cuda_is_pool(const Kernel *k);
CudaLaunch pool_launch(const Kernel *k);
void pool_prelude(Printer *pr, const Kernel *k); /* functions that its kernel calls */
void pool_kernel(Printer *pr, const Kernel *k);
int pool_results(const Kernel *k);
bool cuda_is_pad(const Kernel *k);
CudaLaunch pad_launch(const Kernel *k);
void pad_kernel(Printer *pr, const Kernel *k);

/* Body: a thread for each of so many items. */
void item_kernel(Printer *pr, const Kernel *k, int64_t items, int threads);

/* ---- cuda_sample.c: likewise ---------------------------------------------------------------------- */

bool cuda_is_sample(const Kernel *k);
CudaLaunch sample_launch(const Kernel *k);
void sample_prelude(Printer *pr, const Kernel *k);
void sample_kernel(Printer *pr, const Kernel *k);

/* ---- cuda_elements.c: likewise -------------------------------------------------------------------- */

bool cuda_is_elements(const Kernel *k);
CudaLaunch elements_launch(const Kernel *k);
void elements_prelude(Printer *pr, const Kernel *k);
void elements_kernel(Printer *pr, const Kernel *k);
bool cuda_is_scatter_sum(const Kernel *k); /* likewise */
CudaLaunch scatter_sum_launch(const Kernel *k);
void scatter_sum_kernel(Printer *pr, const Kernel *k);
#endif
