/* import_control.c */
#include "onnx_int.h"

const OnnxOp onnx_control[] = {{0}};
