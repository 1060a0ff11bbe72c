/* device.h -- what a plan knows of the device that it is for: sizes and rates, no code.
 *
 * One that is not there is a text file (devices/ has those that ckc knows; --device FILE takes
 * another), a number on each line, with its source in a comment:
 *
 *   device = "device" name string { key value unit }    name: as --device and schedules have it
 *   key    = kind dtype | "matrix" "tf32" | a word of `properties` in device.c
 *   kind   = "vector" | "matrix" | "attention" | "attention_grad" | "wgmma_attention" |
 *            "wgmma_attention_grad" | "convolution"
 *   unit   = B kB MB GB TB KiB MiB GiB | GB/s TB/s | GFLOP/s TFLOP/s PFLOP/s | ns us | % | none
 *
 * A '#' begins a comment.  Rates of `vector` and `matrix` are peaks as vendors state them; the efficiencies
 * say what share of them good kernels reach.  Those of other kinds are what their kernels reach; where none
 * is said it is a matrix rate, of attention in warpgroups (wgmma) attention's.  Required are memory,
 * memory_bandwidth, launch and `vector f32`. */
#ifndef CKC_DEVICE_H
#define CKC_DEVICE_H

#include "kernel.h"

/* Vector: pointwise and row kernels.  Matrix: products. */
typedef enum {
    UNIT_VECTOR,
    UNIT_MATRIX,
    UNIT_ATTENTION,
    UNIT_ATTENTION_GRAD,
    UNIT_WGMMA_ATTENTION, /* where that is the kernel's choice */
    UNIT_WGMMA_ATTENTION_GRAD,
    UNIT_CONVOLUTION,
    UNIT_COUNT
} Unit;
extern const char *const unit_name[UNIT_COUNT];

/* 0: not known, or the device has none. */
typedef struct {
    const char *name, *title;     /* for options and schedules; for people */
    int64_t memory;               /* bytes it reports */
    int64_t reserved;             /* of them: what driver, context and libraries take */
    int64_t align;                /* bytes, of all places in an arena: what libraries want */
    double flops[UNIT_COUNT][DT_COUNT]; /* operations per ns: 1 is 1 GFLOP/s */
    double tf32;                  /* of products whose f32 factors are rounded */
    double compute_efficiency;    /* share of flops, in (0, 1] */
    double memory_bandwidth;      /* bytes per ns: 1 is 1 GB/s */
    double memory_efficiency;     /* share of that, in (0, 1] */
    int64_t cache;                /* bytes of the last level */
    double cache_bandwidth;       /* bytes per ns; shown, but no cost is made of it so far */
    double host_link;             /* bytes per ns in one direction, to the host */
    double network;               /* likewise, to another device; shown only */
    double launch_ns;             /* of each kernel of a step, beside its work */
    int64_t processors, threads;  /* and threads of each */
    int64_t shared_memory;        /* bytes of it that a block of threads may have */
    int64_t capability;           /* of an NVIDIA GPU: 90 is 9.0; 0: it is none */
    int64_t epilogues;            /* products add rows and matrices, attention rounds (passes/epilogue.c) */
    int64_t panel_columns;        /* of factors that products read as they multiply them (passes/panels.c) */
    /* From which sizes on the passes split.  They decide the graph, and with it the bits. */
    int64_t head_bytes;           /* logits: in blocks of rows (passes/split_head.c) */
    int64_t head_rows;            /* at least, of a block */
    int64_t update_bytes;         /* weight gradients: by rows, with their updates (passes/split.c) */
    int64_t factor_bytes;         /* factors of weight gradients: in blocks of rows */
} DeviceInfo;

/* A CPU, roughly: what plans are for where nothing else is said.  Its memory is not known. */
extern const DeviceInfo device_cpu;

/* Roofline of a command: ns, at least launch_ns for each of its launches.  What lies in the host's memory
 * goes over the link. */
double device_ns(const DeviceInfo *d, const Command *c);
static inline int64_t device_room(const DeviceInfo *d) { return d->memory - d->reserved; }

/* From its text; name and title are allocated in a.  Errors name the line. */
bool device_parse(DeviceInfo *d, const char *text, Arena *a, Diag *diag);
/* One that ckc knows, by its name, or from a file.  Errors name the file. */
bool device_find(DeviceInfo *d, const char *name_or_path, Arena *a, Diag *diag);

/* devices/NAME.txt, in the order of names; the last has none.  Made when building. */
typedef struct {
    const char *name, *text;
} DeviceText;
extern const DeviceText device_texts[];

#endif
