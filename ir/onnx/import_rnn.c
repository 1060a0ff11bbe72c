/* import_rnn.c */
#include "onnx_int.h"

const OnnxOp onnx_rnn[] = {{0}};
