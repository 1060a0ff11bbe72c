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

/* Computes the results of all lanes from their operands; their op is the same. */
void warp_run(Lane lane[32], const unsigned char *shared, unsigned shared_bytes, int capability);

/* tile_set() takes the factors, 16 rows of a and up to 256 columns of b, by column, which have to stay;
 * tile_add() adds the 16 products of a row and a column to c as tensor cores of that capability do. */
void tile_set(const uint16_t (*a)[16], const uint16_t (*b)[16], int columns, bool f16);
float tile_add(float c, int row, int column, int capability);

/* Notes a fault, with printf arguments.  The first one of a launch is kept, and ends the launch (fiber.c). */
void fiber_fault(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#endif
