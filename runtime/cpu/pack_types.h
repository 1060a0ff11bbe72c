/* pack_types.h -- includes pack_panels.h for each type of element; the includer defines LANES, ISA, ALL_LANES
 * and NAMED for a width of vectors. */
#define PACK(name) NAMED(name, f32)
#define ELEMENT float
#define WIDEN as_is
#define WIDEN_LANES(from) (*(const PACK(Lanes) *)(const void *)(from))
#define NARROW as_is
#include "pack_panels.h"
#undef PACK
#undef ELEMENT
#undef WIDEN
#undef WIDEN_LANES
#undef NARROW

#define PACK(name) NAMED(name, bf16)
#define ELEMENT uint16_t
#define WIDEN bf16_load
#define WIDEN_LANES(from)                                                                                    \
    (PACK(Lanes))(__builtin_convertvector(*(const PACK(Halves) *)(const void *)(from), PACK(Words)) << 16)
#define NARROW bf16_store
#include "pack_panels.h"
#undef PACK
#undef WIDEN
#undef WIDEN_LANES
#undef NARROW

#define PACK(name) NAMED(name, f16)
#define WIDEN f16_load
#define WIDEN_LANES PACK(widen)
#define NARROW f16_store
#include "pack_panels.h"
#undef PACK
#undef ELEMENT
#undef WIDEN
#undef WIDEN_LANES
#undef NARROW

#undef LANES
#undef ISA
#undef ALL_LANES
#undef NAMED
