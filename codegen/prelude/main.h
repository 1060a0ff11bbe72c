/* ---- a program that trains ------------------------------------------------------------------------------
 *
 *   nvcc -x cu -gencode arch=compute_90a,code=sm_90a --fmad=false kernels.cu -lcublasLt -o step
 *   ./step weights.bin data.bin
 *
 * -arch=sm_90a is not enough: nvcc 13.0 then makes code for compute_90 as well, which has no wgmma.
 * Both files hold records: an offset in the arena and a number of bytes (two int64), then the bytes.
 * weights.bin has the values before the first step; data.bin has those that are written before each
 * micro-batch; a negative offset ends the records of a micro-batch. */
enum { CKC_WORKSPACE = 32 << 20, CKC_CHUNK = 1 << 20 };

static bool ckc_fail(Ckc *c, const char *what)
{
    if (!c->error[0])
        snprintf(c->error, sizeof c->error, "%s", what);
    return false;
}

static bool ckc_write(Ckc *c, FILE *f, int64_t at, int64_t bytes)
{
    static char chunk[CKC_CHUNK];
    if (bytes < 0 || bytes > ckc_arena_bytes || at > ckc_arena_bytes - bytes)
        return ckc_fail(c, "a file is of another step");
    while (bytes > 0) {
        size_t n = bytes < CKC_CHUNK ? (size_t)bytes : CKC_CHUNK;
        if (fread(chunk, 1, n, f) != n)
            return ckc_fail(c, "a file is too short");
        if (!ckc_check(c, cudaMemcpy(c->arena + at, chunk, n, cudaMemcpyHostToDevice), "cudaMemcpy"))
            return false;
        at += (int64_t)n;
        bytes -= (int64_t)n;
    }
    return true;
}

/* Reads records up to the end of a micro-batch or of the file; *more: there was at least one. */
static bool ckc_records(Ckc *c, FILE *f, bool *more)
{
    int64_t head[2];
    *more = false;
    while (fread(head, sizeof head, 1, f) == 1) {
        *more = true;
        if (head[0] < 0)
            break;
        if (!ckc_write(c, f, head[0], head[1]))
            return false;
    }
    return true;
}

static bool ckc_read_loss(Ckc *c, double *loss)
{
    float f = 0;
    *loss = 0;
    if (ckc_loss < 0)
        return ckc_check(c, cudaStreamSynchronize(c->stream), "cudaStreamSynchronize");
    if (!ckc_check(c, cudaStreamSynchronize(c->stream), "cudaStreamSynchronize"))
        return false;
    bool ok =
        ckc_loss_f64
            ? ckc_check(c, cudaMemcpy(loss, c->arena + ckc_loss, 8, cudaMemcpyDeviceToHost), "cudaMemcpy")
            : ckc_check(c, cudaMemcpy(&f, c->arena + ckc_loss, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    *loss = ckc_loss_f64 ? *loss : (double)f;
    return ok;
}

static bool ckc_run(Ckc *c, FILE *weights, FILE *data, void (*each)(int64_t step, double loss))
{
    bool more;
    double loss, sum = 0;
    if (!weights || !data)
        return ckc_fail(c, "weights.bin or data.bin cannot be read");
    if (!ckc_records(c, weights, &more))
        return false;
    for (int64_t batch = 1; ckc_records(c, data, &more) && more; batch++) {
        bool last = batch % ckc_accumulate == 0;
        if (!ckc_micro(c) || (last && !ckc_rest(c)) || !ckc_read_loss(c, &loss))
            return false;
        sum += loss / (double)ckc_accumulate;
        if (last) {
            each(batch / ckc_accumulate, sum);
            sum = 0;
        }
    }
    return !c->error[0];
}

/* Trains on all steps of the data; false: the reason is printed. */
CKC_API bool ckc_train(const char *weights_path, const char *data_path,
                       void (*each)(int64_t step, double loss))
{
    static Ckc c;
    void *arena = NULL, *workspace = NULL;
    cudaStream_t stream = NULL;
    FILE *weights = fopen(weights_path, "rb"), *data = fopen(data_path, "rb");
    bool ok = ckc_check(&c, cudaMalloc(&arena, (size_t)ckc_arena_bytes), "cudaMalloc") &&
              ckc_check(&c, cudaMalloc(&workspace, CKC_WORKSPACE), "cudaMalloc") &&
              ckc_check(&c, cudaStreamCreate(&stream), "cudaStreamCreate") &&
              ckc_open(&c, arena, workspace, CKC_WORKSPACE, stream) && ckc_run(&c, weights, data, each);
    if (!ok)
        fprintf(stderr, "%s\n", c.error);
    ckc_close(&c);
    cudaFree(workspace);
    cudaFree(arena);
    if (data)
        fclose(data);
    if (weights)
        fclose(weights);
    return ok;
}

#ifndef CKC_LIBRARY
static void ckc_print(int64_t step, double loss) { printf("step %-6lld loss %.9g\n", (long long)step, loss); }

int main(int argc, char **argv)
{
    if (argc == 3)
        return ckc_train(argv[1], argv[2], ckc_print) ? 0 : 1;
    fprintf(stderr, "usage: %s weights.bin data.bin\n", argv[0]);
    return 1;
}
#endif
#endif
