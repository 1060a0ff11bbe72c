/* c_int.h -- what the parts of the C printer share: loop shapes (c_shape.c), the loops of one item
 * (c_item.c), whole kernels (c.c, which describes the loops). */
#ifndef CKC_C_INT_H
#define CKC_C_INT_H

#include "text.h"

enum { ROW_BUFFER = 4096 }; /* elements of the longest row whose heavy values are kept between passes */
enum { TILE = 64 };         /* indices of the tile dimension in an item */
enum { PARALLEL_WORK = 100000 }; /* simple operations below which one thread is faster */

typedef struct {
    Writer w;
    const char *name;
    const Sched *s;
    int64_t items, blocks, width; /* items in all; blocks of the vector dimension; elements of a block */
    int64_t tiles;                /* blocks of the tile dimension; 1 if there is none */
    int64_t chunks, chunk;        /* chunks of the reduced range (0: not cut); reduced indices per chunk */
    int lanes, cut;               /* accumulators along a row; the dimension that is cut into chunks */
    int summed;                   /* the loop that is cut into blocks, each summed for itself; -1: none */
    int64_t step;                 /* iterations of a block */
    bool parallel;
    bool *mark;
    Scope here;                   /* scope being printed */
    int column_level;             /* in a column loop: the level whose values are in variables v<i> */
} Printer;

/* ---- c_shape.c ---- */

void c_choose_loops(Printer *pr);

/* ---- c_item.c ---- */

void c_item_indices(Printer *pr);
/* Prints the item scope values that become known at a level; the column values, kept in t<i>. */
void c_item_values(Printer *pr, int level);
void c_column_values(Printer *pr, int level);
/* Prints the tile copies and the random draws that are made for a whole item before its loops. */
void c_stage_tiles(Printer *pr);
void c_draw_bulk(Printer *pr);
/* Prints all loops of one pass for the current item; the results are in a<i>. */
void c_run_pass(Printer *pr, int pass);
/* Prints the stores of reduced values, at the very end of an item. */
void c_item_stores(Printer *pr);

#endif
