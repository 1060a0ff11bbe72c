/* json.h -- JSON values that are whole: an allocation of jansson that fails ends in out_of_memory() (mem.h),
 * and text may have any bytes. */
#ifndef CKC_JSON_H
#define CKC_JSON_H

#include <jansson.h>

json_t *text_json(const char *text); /* a string; what is not UTF-8 is escaped (utf8.h) */
/* Add v, a reference that is taken over, as a member of an object or at the end of an array.  v NULL: it
 * could not be allocated. */
void object_put(json_t *o, const char *key, json_t *v);
void array_put(json_t *a, json_t *v);
/* The text, flags as of json_dumps(); free() it. */
char *dump_json(const json_t *v, size_t flags);

#endif
