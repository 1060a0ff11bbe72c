/* imported.h -- what tests of the import share: a model's graph. */
#ifndef CKC_TESTS_IMPORTED_H
#define CKC_TESTS_IMPORTED_H
#include "ir/onnx/onnx.h"

typedef struct {
    Arena arena;
    Diag d;
    Graph g;
    OnnxModel *m;
    bool ok;
} Imported;

Imported import_file(const char *path); /* opened; ok: it could be */
/* Then into a graph.  The graph points at its arena and diagnostic, which must stay where they
 * are. */
bool build_graph(Imported *r, const OnnxOptions *opt);
void release(Imported *r);
/* Has the last import such a note, whose text has this part? */
bool noted(const OnnxModel *m, OnnxNoteKind kind, const char *name, const char *part);

ValKind kind_of(const Graph *g, const char *name); /* of a value that there is */
int params_of(const Graph *g);                     /* how many */

const char *shared(Arena *a, const char *name); /* shared_path() that lasts */
#endif
