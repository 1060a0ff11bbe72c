/* import_attention.c */
#include "onnx_int.h"

const OnnxOp onnx_attention[] = {{0}};
