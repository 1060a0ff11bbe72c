/* torch.c -- what a plan keeps, as a selective-checkpoint policy for the PyTorch model (--emit torch).
 *
 * A block (the modules under a numbered path, "h.3") in which the plan recomputes something becomes a region
 * of torch.utils.checkpoint.  The region saves the results of those operators that the plan keeps until the
 * backward pass, told apart by module path and kind, as PyTorch knows no finer name.  Parts of the plan that
 * have no counterpart are comments in the file. */
#include "ir/module.h"
#include "ir/uses.h"
#include "codegen.h"
#include "text.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *block, *path, *kind;
    int64_t kept, again; /* bytes of the results that are kept, and recomputed */
    int nkept, nagain;
} Group;

typedef struct {
    const Plan *p;
    uint32_t results; /* outputs that are no gradients */
    Arena *a;
    Group *group;
    uint32_t n, cap;
    int64_t moved, elsewhere; /* bytes moved to the host; bytes recomputed outside of any block */
} Policy;

/* The kind of an operator, as far as the policy can tell by the names of PyTorch's operators. */
static const char *kind_of(Op op)
{
    switch (op) {
    case OP_matmul:
    case OP_matmul_add:
    case OP_matmul_bias:
    case OP_matmul_gelu:
    case OP_matmul_panels:
    case OP_matmul_gelu_bwd:
        return "matmul";
    case OP_conv:
    case OP_conv_bwd_data:
        return "conv";
    case OP_attention:
        return "attention";
    case OP_layer_norm:
    case OP_rms_norm:
    case OP_batch_norm:
        return "norm";
    default:
        return "other";
    }
}

static Group *group_of(Policy *y, const Node *n)
{
    const char *path = n->name ? module_path(n->name, false, y->a) : "";
    Group g = {module_block(path, y->a), path, kind_of(n->op), 0, 0, 0, 0};
    for (uint32_t i = 0; i < y->n; i++)
        if (strcmp(y->group[i].path, g.path) == 0 && strcmp(y->group[i].kind, g.kind) == 0)
            return &y->group[i];
    y->group = arena_grow(y->a, y->group, y->n, &y->cap, sizeof *y->group);
    y->group[y->n] = g;
    return &y->group[y->n++];
}

static void count(Policy *y, const Node *n, bool again)
{
    Group *g = group_of(y, n);
    int64_t bytes = type_bytes(val_type(y->p->g, n->out[0]));
    *(again ? &g->again : &g->kept) += bytes;
    *(again ? &g->nagain : &g->nkept) += 1;
    if (again && !*g->block)
        y->elsewhere += bytes;
}

static void gather(Policy *y)
{
    const Graph *g = y->p->g;
    PlanUses u = plan_uses(y->p, y->results, y->a);
    for (uint32_t k = 0; k < g->norder; k++) {
        const Node *n = &g->nodes[g->order[k].i];
        bool view = (node_def(n)->traits & OPT_VIEW) != 0, forward = u.phase[g->order[k].i] == PHASE_FORWARD;
        if (n->op == OP_offload)
            y->moved += type_bytes(val_type(g, n->out[0]));
        else if (u.before[k] != NEVER && !view)
            count(y, n, true);
        else if (forward && !view && u.behind[n->out[0].i] != NEVER && y->p->offset[n->out[0].i] >= 0)
            count(y, n, false);
    }
}

static int by_path(const void *a, const void *b)
{
    const Group *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    return order ? order : strcmp(x->kind, y->kind);
}

/* ---- Python -------------------------------------------------------------------------------------------- */

static const char head[] = "# What ckc's plan keeps and computes again, for torch.utils.checkpoint: "
                           "apply(model), then train as before.\n"
                           "#\n"
                           "# A block of which something is computed again is a checkpoint; in it SAVE lists "
                           "what is kept, by module and\n"
                           "# kind of operator.  Not carried over:\n"
                           "#   - the order of recomputations, and which of several results of one kind in a "
                           "module: the first decides\n"
                           "#   - the inputs of a block are always kept, and a block is computed again as a "
                           "whole up to its last need\n"
                           "#   - batch norms in a block update their running statistics twice a step\n";

static const char tail[] =
    "\n\n"
    "def kind_of(op):\n"
    "    name = str(op)\n"
    "    if op._schema.is_mutable or any(word in name for word in ('empty', 'view')):\n"
    "        return 'cheap'  # made again: what it made may be written over in place\n"
    "    for kind, words in (('conv', ('convolution',)), ('attention', ('attention',)), ('norm', "
    "('norm',)),\n"
    "                        ('matmul', ('mm', 'matmul', 'linear'))):\n"
    "        if any(word in name for word in words):\n"
    "            return kind\n"
    "    return 'other'\n"
    "\n\n"
    "def apply(model):\n"
    "    \"\"\"Make checkpoints of the blocks of BLOCKS that model has; returns those it lacks.\n"
    "\n"
    "    model is what was exported, or a module in it, as a wrapper's model.\"\"\"\n"
    "    modules, stack, missing = dict(model.named_modules()), [''], []\n"
    "    parts = BLOCKS[0].split('.') if BLOCKS else []\n"
    "    outside = next((k for k in range(len(parts)) if '.'.join(parts[k:]) in modules), 0)\n"
    "    prefix = ''.join(part + '.' for part in parts[:outside])\n"
    "\n"
    "    def policy(ctx, op, *args, **kwargs):\n"
    "        saved = kind_of(op) in SAVE.get(stack[-1], ())\n"
    "        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE\n"
    "\n"
    "    def inside(path, forward):\n"
    "        def run(*args, **kwargs):\n"
    "            stack.append(path)\n"
    "            try:\n"
    "                return forward(*args, **kwargs)\n"
    "            finally:\n"
    "                stack.pop()\n"
    "        return run\n"
    "\n"
    "    for path, module in modules.items():\n"
    "        module.forward = inside(prefix + path, module.forward)\n"
    "    for path in BLOCKS:\n"
    "        block = modules.get(path.removeprefix(prefix))\n"
    "        if block is None:\n"
    "            missing.append(path)\n"
    "            continue\n"
    "        block.forward = functools.partial(\n"
    "            checkpoint, block.forward, use_reentrant=False,\n"
    "            context_fn=functools.partial(create_selective_checkpoint_contexts, policy))\n"
    "    return missing\n";

static bool recomputes(const Policy *y, const char *block)
{
    bool some = false;
    for (uint32_t i = 0; i < y->n && *block; i++)
        some |= y->group[i].nagain > 0 && strcmp(y->group[i].block, block) == 0;
    return some;
}

static void print_blocks(FILE *f, const Policy *y)
{
    const char *last = "";
    fprintf(f, "BLOCKS = [\n");
    for (uint32_t i = 0; i < y->n; i++) {
        const char *block = y->group[i].block;
        if (strcmp(block, last) != 0 && recomputes(y, block)) {
            fprintf(f, "    ");
            text_string(f, block);
            fprintf(f, ",\n");
        }
        last = block;
    }
    fprintf(f, "]\n");
}

static void print_saved(FILE *f, const Policy *y)
{
    const char *open = NULL;
    fprintf(f, "\nSAVE = {\n");
    for (uint32_t i = 0; i < y->n; i++) {
        const Group *g = &y->group[i];
        if (!recomputes(y, g->block))
            continue;
        if (g->nkept && g->kept >= g->again) {
            bool more = open && strcmp(open, g->path) == 0;
            fprintf(f, more ? ", " : open ? "},\n    " : "    ");
            if (!more) {
                text_string(f, g->path);
                fprintf(f, ": {");
            }
            text_string(f, g->kind);
            open = g->path;
        }
    }
    fprintf(f, open ? "},\n}\n" : "}\n");
}

/* Prints comments on what the policy leaves out, then the imports. */
static void print_comments(FILE *f, const Policy *y)
{
    if (y->moved)
        fprintf(f, "#   - %" PRId64 " bytes that the plan moves to the host's memory\n", y->moved);
    if (y->elsewhere)
        fprintf(f, "#   - %" PRId64 " bytes computed again that are part of no numbered block\n",
                y->elsewhere);
    if (y->p->accumulate > 1)
        fprintf(f, "#   - the %" PRId64 " micro-batches of a step\n", y->p->accumulate);
    fprintf(f, "import functools\n\n"
               "from torch.utils.checkpoint import (CheckpointPolicy, checkpoint,\n"
               "                                    create_selective_checkpoint_contexts)\n\n");
}

void codegen_torch(FILE *f, const Plan *p, uint32_t results)
{
    Arena a = {0};
    Policy y = {.p = p, .results = results, .a = &a};
    gather(&y);
    if (y.n)
        qsort(y.group, y.n, sizeof *y.group, by_path);
    fputs(head, f);
    print_comments(f, &y);
    print_blocks(f, &y);
    print_saved(f, &y);
    fputs(tail, f);
    arena_free(&a);
}
