/* conv_samples.c -- convolutions that together take every way of codegen/cuda_conv.c. */
#include "conv_samples.h"
#include "op_samples_int.h"

/* Three spatial dimensions, right-aligned; an extent of 0 means that there is no such dimension. */
typedef struct {
    int images, channels, out, group; /* channels and out: of all groups; group: the number of groups */
    int in[3], kernel[3], stride[3], pad[3], dilation[3];
} Shape;

#define FLAT(size, k, s, p, d)                                                                               \
    {0, size, size + 1}, {0, k, k}, {0, s, s}, {0, p, p}, { 0, d, d }
#define LINE(size, k, s, p, d)                                                                               \
    {0, 0, size}, {0, 0, k}, {0, 0, s}, {0, 0, p}, { 0, 0, d }
static const Shape shapes[] = {
    {2, 20, 33, 1, FLAT(9, 3, 1, 1, 1)},  /* several tiles, odd sizes */
    {1, 64, 130, 1, FLAT(7, 1, 1, 0, 1)}, /* more channels made than the 128 rows of a tile */
    {3, 16, 16, 1, FLAT(8, 3, 2, 1, 1)},  /* gradients of data by residues of the stride */
    {2, 8, 70, 1, FLAT(9, 1, 2, 0, 1)},   /* residues of which some meet no tap */
    {1, 3, 16, 1, FLAT(17, 7, 2, 3, 1)},  /* channels are read one by one */
    {1, 4, 16, 1, FLAT(17, 7, 2, 3, 1)},  /* channels are read four at a time */
    {1, 1, 6, 1, FLAT(11, 5, 1, 2, 1)},   /* a single channel */
    {1, 10, 12, 1, FLAT(10, 3, 1, 2, 2)}, /* dilations */
    {1, 9, 5, 1, FLAT(9, 3, 2, 2, 2)},    /* stride and dilation have a factor in common */
    {1, 6, 4, 1, FLAT(8, 2, 3, 0, 1)},    /* places of the data that no window reads */
    {2, 12, 24, 3, FLAT(6, 3, 1, 1, 1)},  /* groups */
    {1, 32, 32, 4, FLAT(8, 3, 2, 1, 1)},
    {2, 5, 5, 5, FLAT(9, 3, 1, 1, 1)}, /* depthwise */
    {1, 4, 8, 4, FLAT(9, 5, 2, 2, 1)},
    {1, 6, 10, 1, LINE(200, 3, 1, 1, 1)}, /* one dimension */
    {2, 3, 3, 3, LINE(50, 40, 1, 20, 1)}, /* one dimension with many taps */
    {1, 24, 8, 1, {4, 5, 6}, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}},
    {2, 16, 16, 16, FLAT(9, 3, 2, 1, 1)}, /* depthwise, channels in vectors */
    {1, 48, 48, 48, FLAT(6, 5, 1, 2, 1)}, /* depthwise in several rounds of taps */
    {1, 64, 64, 1, FLAT(16, 3, 1, 1, 1)}, /* the channels of a tap are whole steps */
    {5, 4, 4, 1, FLAT(60, 1, 1, 0, 1)},   /* sums over so many places that parts are flushed */
    {2, 16, 16, 16, FLAT(13, 7, 1, 3, 1)}, /* depthwise strips of places that are inside or at the edges */
    {1, 8, 8, 8, FLAT(17, 3, 3, 1, 1)},    /* here and below: strips, all kinds of strides and dilations */
    {1, 8, 8, 8, FLAT(21, 4, 5, 1, 1)},
    {1, 8, 8, 8, FLAT(14, 3, 1, 2, 2)},
    {1, 8, 8, 8, FLAT(15, 3, 2, 2, 3)},
    {1, 8, 8, 8, FLAT(13, 9, 2, 4, 1)}, /* more taps in a row than there are registers for */
    {1, 8, 8, 8, LINE(10, 5000, 1, 2500, 1)}, /* so many taps that fewer channels fit shared memory */
    {1, 4, 4, 2, LINE(4, 13000, 1, 6500, 1)}, /* so many taps that no channel fits shared memory */
    /* The rest: products of warpgroups, with tiles of 64 rows and of 128. */
    {1, 64, 48, 1, FLAT(11, 3, 2, 1, 1)}, /* residues */
    {2, 40, 200, 1, FLAT(9, 1, 2, 0, 1)}, /* a window of one position */
    {1, 128, 256, 2, FLAT(6, 3, 1, 2, 2)}, /* groups */
    {3, 72, 136, 1, FLAT(7, 2, 1, 1, 1)}, /* steps that reach into the next tap; the last tile is not full */
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

int conv_samples(void) { return SHAPES; }

static void operands(Sample *s, const Shape *c)
{
    int sp = c->in[0] ? 3 : c->in[1] ? 2 : 1;
    ConvAttrs at = {
        .strides.n = sp, .pads.n = 2 * sp, .dilations.n = sp, .group = c->group, .channels_last = 1};
    Type x = {s->dt, sp + 2, {c->images, c->channels}}, y = {s->dt, sp + 2, {c->images, c->out}};
    Type w = {s->dt, sp + 2, {c->out, c->channels / c->group}};
    for (int i = 0; i < sp; i++) {
        int d = 3 - sp + i, reach = c->dilation[d] * (c->kernel[d] - 1) + 1;
        at.strides.v[i] = c->stride[d];
        at.pads.v[i] = at.pads.v[sp + i] = c->pad[d];
        at.dilations.v[i] = c->dilation[d];
        x.dim[2 + i] = c->in[d];
        w.dim[2 + i] = c->kernel[d];
        y.dim[2 + i] = (c->in[d] + 2 * c->pad[d] - reach) / c->stride[d] + 1;
    }
    x = sample_channels_last(x);
    y = sample_channels_last(y);
    sample_reals(s, s->op == OP_conv_bwd_data ? y : x, -1, 1);
    sample_reals(s, s->op == OP_conv_bwd_weights ? y : w, -1, 1);
    if (s->op == OP_conv && c->out % 2 == 0)
        sample_reals(s, type_make(s->dt, 1, w.dim), -1, 1);
    at.shape = sample_all_dims(s->op == OP_conv_bwd_data ? &x : &w);
    at.out = s->op == OP_conv_bwd_weights && s->dt != DT_F32 ? DT_F32 : DT_NONE;
    sample_build(s, &at);
}

void conv_sample(Sample *s, Op op, DType dt, int which)
{
    *s = (Sample){.seed = (uint64_t)op << 32 ^ (uint64_t)dt << 16 ^ (uint64_t)which, .dt = dt, .op = op};
    graph_init(&s->g, &s->arena, &s->diag);
    operands(s, &shapes[which]);
    graph_add_out(&s->g, s->out[0]);
}
