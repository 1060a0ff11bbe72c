/* device.h -- what a plan knows of the device that it is for: sizes and rates, no code.
 *
 * A device that is not present is described by a text file (devices/ has those that ckc knows; --device FILE
 * takes another), a number on each line, with its source in a comment:
 *
 *   device = "device" name string { key value unit }    name: as --device and schedules have it
 *   key    = kind dtype | "matrix" "tf32" | a word of `properties` in device.c
 *   kind   = "vector" | "matrix" | "attention" | "attention_grad" | "wgmma_attention" |
 *            "wgmma_attention_grad" | "convolution"
 *   unit   = B kB MB GB TB KiB MiB GiB | GB/s TB/s | GFLOP/s TFLOP/s PFLOP/s | ns us | % | none
 *
 * A '#' begins a comment.  Rates of `vector` and `matrix` are peaks as vendors state them; the efficiencies
 * say what share of them good kernels reach.  Rates of other kinds are what their kernels reach; where one is
 * missing it is the matrix rate, for attention in warpgroups (wgmma) the rate of attention.  Required are
 * memory, memory_bandwidth, launch and `vector f32`. */
#ifndef CKC_DEVICE_H
#define CKC_DEVICE_H

#include "kernel.h"

/* Kinds of work with rates of their own.  Vector: pointwise and row kernels.  Matrix: products. */
typedef enum {
    UNIT_VECTOR,
    UNIT_MATRIX,
    UNIT_ATTENTION,
    UNIT_ATTENTION_GRAD,
    UNIT_WGMMA_ATTENTION, /* attention with Kernel.wgmma */
    UNIT_WGMMA_ATTENTION_GRAD,
    UNIT_CONVOLUTION,
    UNIT_COUNT
} Unit;
extern const char *const unit_name[UNIT_COUNT];

/* 0: not known, or the device has no such thing. */
typedef struct {
    const char *name, *title;     /* the name in options and schedules; the name for people */
    int64_t memory;               /* bytes it reports */
    int64_t reserved;             /* bytes of it that driver, context and libraries take */
    int64_t align;                /* bytes, of all places in an arena, as libraries want it */
    double flops[UNIT_COUNT][DT_COUNT]; /* operations per ns: 1 is 1 GFLOP/s */
    double tf32;                  /* operations per ns of products whose f32 factors are rounded */
    double compute_efficiency;    /* share of flops, in (0, 1] */
    double memory_bandwidth;      /* bytes per ns: 1 is 1 GB/s */
    double memory_efficiency;     /* share of that, in (0, 1] */
    int64_t cache;                /* bytes of the last level */
    double cache_bandwidth;       /* bytes per ns; shown, but no cost is made of it so far */
    double host_link;             /* bytes per ns in one direction, to the host */
    double network;               /* bytes per ns in one direction, to another device; shown only */
    double launch_ns;             /* ns that each kernel of a step takes besides its work */
    int64_t processors, threads;  /* number of processors, and threads of each */
    int64_t shared_memory;        /* bytes of shared memory that a block of threads may have */
    int64_t capability;           /* of an NVIDIA GPU: 90 is 9.0; 0: it is none */
    int64_t epilogues;            /* not 0: products and attention have epilogues (passes/epilogue.c) */
    int64_t panel_columns;        /* columns of a packed factor's panels (passes/panels.c); 0: no panels */
    /* Sizes in bytes from which on the passes split.  They decide the graph, and with it the bits. */
    int64_t head_bytes;           /* logits: split in blocks of rows (passes/split_head.c) */
    int64_t head_rows;            /* least number of rows of such a block */
    int64_t update_bytes;         /* weight gradients: split by rows, with updates (passes/split.c) */
    int64_t factor_bytes;         /* factors of weight gradients: split in blocks of rows */
} DeviceInfo;

/* Roughly a CPU: the device of plans for which none is named.  Its memory is not known. */
extern const DeviceInfo device_cpu;

/* Roofline time of a command in ns, at least launch_ns for each of its launches.  Operands in the host's
 * memory go over the link. */
double device_ns(const DeviceInfo *d, const Command *c);
static inline int64_t device_room(const DeviceInfo *d) { return d->memory - d->reserved; }

/* Reads a device from its text; name and title are allocated in a.  Errors name the line. */
bool device_parse(DeviceInfo *d, const char *text, Arena *a, Diag *diag);
/* Finds a device that ckc knows by its name, or reads one from a file.  Errors name the file. */
bool device_find(DeviceInfo *d, const char *name_or_path, Arena *a, Diag *diag);

/* The files devices/NAME.txt, sorted by name; the last entry has none.  Generated when building. */
typedef struct {
    const char *name, *text;
} DeviceText;
extern const DeviceText device_texts[];

#endif
