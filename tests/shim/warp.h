/* warp.h -- what the 32 lanes of a warp do together (WarpOp): shuffles, ldmatrix, mma. */
#ifndef CKC_WARP_H
#define CKC_WARP_H
#include "cuda_shim.h"
#undef FN

typedef struct {
    WarpOp op;
    union {
        WarpShuffle shuffle;
        uint32_t address;
        WarpMma mma;
        WarpWgmma wgmma;
    } in;
    union {
        uint64_t value;
        uint32_t r[4];
        float c[4];
    } out;
} Lane;

/* From the operands of all lanes, whose op is one, their results. */
void warp_run(Lane lane[32], const unsigned char *shared, unsigned shared_bytes, int capability);

/* Sums of 16 products as tensor cores of that capability make them: first the factors, 16 rows of a and up to
 * 256 columns of b, by column; then what is added to c. */
void tile_set(const uint16_t (*a)[16], const uint16_t (*b)[16], int columns, bool f16);
float tile_add(float c, int row, int column, int capability);

/* The first thing that is wrong ends the launch (fiber.c).  printf arguments. */
void fiber_fault(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#endif
