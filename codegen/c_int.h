/* c_int.h -- what the parts of the C printer share: loop shapes (c_shape.c), the loops of one item
 * (c_item.c), whole kernels (c.c, which describes the loops). */
#ifndef CKC_C_INT_H
#define CKC_C_INT_H

#include "text.h"

enum { ROW_BUFFER = 4096 }; /* longest row of which heavy values are kept between passes */
enum { TILE = 64 };         /* indices of the tile dimension in an item */
enum { PARALLEL_WORK = 100000 }; /* simple operations below which one thread is faster */

typedef struct {
    Writer w;
    const char *name;
    const Sched *s;
    int64_t items, blocks, width; /* items in all; blocks of the vector dimension per item */
    int64_t tiles;                /* blocks of the tile dimension per item, 1 if there is none */
    int64_t chunks, chunk;        /* 0: not cut; reduced indices per chunk */
    int lanes, cut;               /* cut: the dimension that is cut */
    bool parallel;
    bool *mark;
    Scope here;                   /* scope being printed */
    int column_level;             /* in a column loop: the level whose values are at hand */
} Printer;

/* ---- c_shape.c ---- */

void c_choose_loops(Printer *pr);

/* ---- c_item.c ---- */

void c_item_indices(Printer *pr);
/* Item scope values that become known at a level; column values likewise, kept in t<i>. */
void c_item_values(Printer *pr, int level);
void c_column_values(Printer *pr, int level);
/* Copies and draws made for a whole item before its loops. */
void c_stage_tiles(Printer *pr);
void c_draw_bulk(Printer *pr);
/* All loops of one pass for the current item; results are in a<i>. */
void c_run_pass(Printer *pr, int pass);
/* Stores of reduced values, at the very end of an item. */
void c_item_stores(Printer *pr);

#endif
