/* save.h -- writing trained values back into an ONNX file. */
#ifndef CKC_ONNX_SAVE_H
#define CKC_ONNX_SAVE_H

#include "onnx.h"

typedef struct {
    const char *name; /* name in the file */
    Tensor tensor;
    bool alias; /* replaced only where it is an initializer: what a node makes of another value
                 * follows that one */
    bool same;  /* the file has this value: it may stay where it is */
} SaveValue;

/* Write the model m to `path`, atomically, with these values as its initializers.  Everything
 * else in the file stays byte for byte, fields we do not know included.
 *   - an initializer keeps its place, element type and documentation; its elements are replaced
 *   - a graph input without data becomes an initializer, as does what a node (Constant,
 *     ConstantOfShape) made; models older than IR 4 list it among the inputs, too
 *   - initializers in external files stay external: all of them go to one new file, PATH.data
 *     beside PATH; so do the replaced ones if the model would exceed the 2 GB of protobuf
 * inference: nodes become what they are when nothing trains: dropout drops nothing, batch norms use
 * the statistics they are given; in the bodies of control flow and in functions, too.  What only such
 * nodes have read of the main graph, such as the rate of a dropout, is left out.
 * Float values are rounded to the element type that the file has.  `path` may be the model
 * itself.  Tensors inside of subgraphs cannot be replaced: those that are not the same are refused
 * by name. */
bool onnx_save(OnnxModel *m, const char *path, int n, const SaveValue *v, bool inference,
               Diag *d);
/* Has the model a place for values of these names? */
bool onnx_save_check(OnnxModel *m, int n, const char *const *name, Diag *d);

#endif
