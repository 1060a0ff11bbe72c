/* replay.c -- predicts which operands a kernel finds in the caches when its schedule runs.
 *
 * The schedule is replayed on a clock of bytes touched.  An operand is in the caches if fewer bytes than they
 * hold have been touched since its last use.  A result takes over the memory of an operand that dies, as the
 * planner will have it; otherwise it counts as cached if it dies within as many bytes, as the planner then
 * gives it memory that died as recently.  The loop is replayed twice, so that the second round sees the
 * caches as the first left them. */
#include "profile_int.h"

/* The last use of a value, by its root. */
typedef struct {
    int64_t last; /* time, in bytes touched since the step began */
    uint32_t item;
    bool lasts; /* the value outlives the step */
} Touch;

/* Bytes of all operands of an item. */
static int64_t item_bytes(const Item *it)
{
    int64_t sum = 0;
    for (int i = 0; i < it->n; i++)
        sum += it->o[i].bytes;
    return sum;
}

int64_t computed_bytes(const Item *it)
{
    int64_t sum = 0;
    for (int i = 0; i < it->n; i++)
        if (it->of->vals[i].i && it->of->g->vals[it->of->vals[i].i].kind == VAL_TEMP && it->o[i].alias < 0)
            sum += it->o[i].bytes;
    return sum;
}

/* Operand whose memory result w will take: one that dies here, or the state it updates. */
static int find_alias(const Item *it, const Touch *touch, uint32_t self, int w)
{
    for (int r = 0; r < it->of->nread; r++) {
        uint32_t v = graph_root(it->of->g, it->of->vals[r]).i;
        if (v && it->o[r].bytes == it->o[w].bytes && command_inplace(it->of, r, w) &&
            touch[v].item == self &&
            (!touch[v].lasts || it->of->g->vals[v].kind == VAL_PARAM ||
             it->of->g->vals[v].kind == VAL_STATE))
            return r;
    }
    return -1;
}

static void mark_item(const Item *it, uint32_t self, const Touch *touch,
                      const int64_t *since, int64_t now, int64_t cache)
{
    for (int i = 0; i < it->n; i++) {
        uint32_t v = graph_root(it->of->g, it->of->vals[i]).i;
        MeasureOperand *o = &it->o[i];
        if (i < it->of->nread) {
            o->hot = now - since[v] + o->bytes <= cache;
        } else {
            o->alias = find_alias(it, touch, self, i);
            o->hot = o->alias < 0 && !touch[v].lasts && touch[v].last - now <= cache;
        }
    }
}

/* The second round of the loop sees the caches as the first left them. */
void replay(Item *item, uint32_t n)
{
    const Graph *g = n ? item[0].of->g : NULL;
    int64_t now = 0, cache = cache_bytes() / 2;
    Arena tmp = {0};
    Touch *touch = g ? NEW(&tmp, Touch, g->nvals) : NULL;
    int64_t *since = g ? NEW(&tmp, int64_t, g->nvals) : NULL;
    for (uint32_t v = 0; g && v < g->nvals; v++) {
        touch[v].lasts = g->vals[v].kind != VAL_TEMP;
        since[v] = -cache;
    }
    for (uint32_t i = 0; g && i < g->nout; i++)
        touch[graph_root(g, g->out[i]).i].lasts = true;
    for (int round = 0; round < 2; round++) {
        int64_t start = now;
        for (uint32_t s = 0; s < n; s++) {
            const Item *it = &item[s];
            if (round == 1)
                mark_item(it, s, touch, since, now, cache);
            now += item_bytes(it);
            for (int i = 0; i < it->n; i++) {
                uint32_t v = graph_root(g, it->of->vals[i]).i;
                since[v] = now;
                if (round == 0)
                    touch[v] = (Touch){now - start, s, touch[v].lasts};
            }
        }
        for (uint32_t v = 0; g && round == 0 && v < g->nvals; v++)
            touch[v].last += now; /* in the clock of the second round */
    }
    arena_free(&tmp);
}
