/* imported.h -- imports models for tests, and looks at their graphs. */
#ifndef CKC_TESTS_IMPORTED_H
#define CKC_TESTS_IMPORTED_H
#include "ir/onnx/onnx.h"
#include "runtime/data.h"

typedef struct {
    Arena arena;
    Diag d;
    Graph g;
    OnnxModel *m;
    bool ok;
} Imported;

/* Opens a model; ok tells whether that worked, d why not.  The caller frees the result with release(). */
Imported import_file(const char *path);
/* Imports the opened model into r->g and verifies that; returns r->ok.  The graph points at r's arena and
 * diagnostic, so *r must stay where it is. */
bool build_graph(Imported *r, const OnnxOptions *opt);
void release(Imported *r);
/* Did the last import of m leave a note of that kind about `name` whose text contains `part`? */
bool noted(const OnnxModel *m, OnnxNoteKind kind, const char *name, const char *part);

ValKind kind_of(const Graph *g, const char *name); /* fails the test if there is no such value */
int params_of(const Graph *g);                     /* the number of parameters */

/* Imports the opened model, with --untie or without, and returns the number of its parameters. */
int params_with(Imported *r, bool untie);
typedef struct {
    const char *name;
    void *data; /* as the value of that name has it */
} Fed;
/* Evaluates the graph on n values; returns its first output, in a. */
const float *output_of(Imported *r, Arena *a, int n, const Fed *in);
/* The array of that name, which must be there; it is freed with the file. */
Tensor array_of(DataFile *f, const char *name);
const char *shared(Arena *a, const char *name); /* a copy in a of what shared_path() returns */
#endif
