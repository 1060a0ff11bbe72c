/* xml.h -- checks on what browsers and viewers read: XML, PNG. */
#ifndef CKC_TESTS_XML_H
#define CKC_TESTS_XML_H
#include <stddef.h>
#include <stdint.h>

/* Ends the test unless the text is well-formed: tags nest, attributes are quoted and each there once, only
 * known entities, UTF-8 without controls.  Of <script> and <style> the text is not looked at. */
void check_xml(const char *path);
/* How many elements of that name the text has, "rect". */
int count_elements(const char *text, const char *name);

typedef struct {
    uint32_t width, height;
    uint8_t *rgb; /* free() it */
} Png;
/* Ends the test unless it is a PNG of 8-bit colours with right checksums and all its rows. */
Png read_png(const char *path);
#endif
