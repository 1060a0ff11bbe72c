/* import_vendor.c */
#include "onnx_int.h"

const OnnxOp onnx_vendor[] = {{0}};
