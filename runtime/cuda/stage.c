/* stage.c -- transfers between the host and a GPU that runs asynchronously: inputs through two pinned
 * buffers, losses after their runs. */
#include "cuda.h"
#include <string.h>

/* For functions that have s and d. */
#define CALL(name, ...) CUDA_CALL(s->on->cu, name, __VA_ARGS__)

enum { RESULT = 8, PLACE = 256 }; /* bytes of a result; alignment of inputs in a buffer */

int64_t stage_bytes(const Graph *g)
{
    int64_t sum = 0;
    for (uint32_t v = 1; v < g->nvals; v++)
        if (g->vals[v].kind == VAL_INPUT)
            sum += align_up(type_bytes(val_type(g, (Val){v})), PLACE);
    return sum;
}

bool stage_open(Staging *s, const CudaContext *on, CUstream stream, int64_t bytes, Diag *d)
{
    void *memory = NULL;
    *s = (Staging){.on = on, .stream = stream, .bytes = bytes};
    TRY(CALL(cuMemHostAlloc, &memory, (size_t)(CUDA_FLIGHT * (bytes + RESULT)), 0));
    s->memory = memory;
    for (int i = 0; i < CUDA_FLIGHT; i++)
        TRY(CALL(cuEventCreate, &s->begin[i], 0) && CALL(cuEventCreate, &s->end[i], 0) &&
            CALL(cuEventCreate, &s->taken[i], CU_EVENT_DISABLE_TIMING));
    return true;
}

void stage_close(Staging *s)
{
    for (int i = 0; i < CUDA_FLIGHT && s->on; i++) {
        cuda_event_free(s->on->cu, s->begin[i]);
        cuda_event_free(s->on->cu, s->end[i]);
        cuda_event_free(s->on->cu, s->taken[i]);
    }
    if (s->memory)
        s->on->cu->cuMemFreeHost(s->memory);
    *s = (Staging){0};
}

bool stage_write(Staging *s, CUdeviceptr to, const void *from, int64_t bytes, Diag *d)
{
    if (bytes <= s->bytes - s->used) {
        char *at = s->memory + s->half * s->bytes + s->used;
        from = memcpy(at, from, (size_t)bytes);
        s->used += align_up(bytes, PLACE);
    }
    return CALL(cuMemcpyHtoDAsync_v2, to, from, (size_t)bytes, s->stream);
}

bool stage_turn(Staging *s, Diag *d)
{
    TRY(CALL(cuEventRecord, s->taken[s->half], s->stream));
    s->half = (s->half + 1) % CUDA_FLIGHT;
    s->used = 0;
    s->turns++;
    return s->turns < CUDA_FLIGHT || CALL(cuEventSynchronize, s->taken[s->half]);
}

bool stage_begin(Staging *s, Diag *d)
{
    return CALL(cuEventRecord, s->begin[s->begun++ % CUDA_FLIGHT], s->stream);
}

bool stage_end(Staging *s, CUdeviceptr result, int64_t bytes, Diag *d)
{
    uint32_t i = s->ended++ % CUDA_FLIGHT;
    char *at = s->memory + CUDA_FLIGHT * s->bytes + i * RESULT;
    return (bytes == 0 || CALL(cuMemcpyDtoHAsync_v2, at, result, (size_t)bytes, s->stream)) &&
           CALL(cuEventRecord, s->end[i], s->stream);
}

bool stage_finish(Staging *s, void *result, int64_t bytes, double *seconds, Diag *d)
{
    float ms = 0;
    uint32_t i = s->finished++ % CUDA_FLIGHT;
    TRY(CALL(cuEventSynchronize, s->end[i]) && CALL(cuEventElapsedTime, &ms, s->begin[i], s->end[i]));
    memcpy(result, s->memory + CUDA_FLIGHT * s->bytes + i * RESULT, (size_t)bytes);
    *seconds = 1e-3 * ms;
    return true;
}
