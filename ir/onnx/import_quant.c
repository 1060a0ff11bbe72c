/* import_quant.c */
#include "onnx_int.h"

const OnnxOp onnx_quant[] = {{0}};
