/* import_image.c */
#include "onnx_int.h"

const OnnxOp onnx_image[] = {{0}};
