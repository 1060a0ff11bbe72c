/* data_type.h -- ONNX's element types, by TensorProto.DataType. */
#ifndef CKC_ONNX_DATA_TYPE_H
#define CKC_ONNX_DATA_TYPE_H

#include "../ir.h"

typedef struct {
    const char *name;
    DType dt;      /* native type that holds its values; DT_NONE: not supported */
    uint8_t bits;  /* per element in raw data, the first in a byte's lowest bits; 0: not supported */
    char kind;     /* 'f' float, 'B' bfloat16, 'i' signed, 'u' unsigned, 'b' bool */
    uint8_t field; /* number of the field of TensorProto with elements that are not raw */
} DataType;

const DataType *data_type_info(int32_t data_type); /* an unknown type is one that is not supported */

DType onnx_dtype(int32_t data_type); /* native type that holds it; DT_NONE: none does */
const char *onnx_dtype_name(int32_t data_type);
int32_t onnx_data_type(DType dt); /* the ONNX type that dt is the same as; 0: none */
int data_type_bits(int32_t data_type);
/* Element i of raw little-endian data of integers or bools. */
int64_t data_type_integer(const DataType *t, const uint8_t *raw, int64_t i);
bool data_type_is_signed(int32_t data_type);
bool data_type_is_widened(int32_t data_type);

#endif
