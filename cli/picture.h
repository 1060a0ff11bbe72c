/* picture.h -- drawings: shapes in a plane, written as SVG or as PNG. */
#ifndef CKC_PICTURE_H
#define CKC_PICTURE_H

#include "ir/plan.h"

/* Colours by their purpose: SVG has them for light and dark surroundings, PNG for light ones only. */
typedef enum {
    PAINT_SURFACE,
    PAINT_INK,
    PAINT_SOFT, /* text beside the drawing */
    PAINT_GRID,
    PAINT_LIMIT,
    PAINT_FORWARD,
    PAINT_BACKWARD,
    PAINT_UPDATE,
    PAINT_AGAIN, /* recomputation */
    PAINT_COPY,
    PAINT_KIND, /* the first of MEM_KINDS colours, one for each kind of memory */
    PAINTS = PAINT_KIND + MEM_KINDS
} Paint;

typedef struct {
    const char *name;     /* name of its CSS variable */
    uint32_t light, dark; /* 0xRRGGBB */
} PaintColor;
extern const PaintColor paint_color[PAINTS];

typedef struct {
    double x, y; /* pixels, from the upper left corner */
} PlotPoint;

typedef enum { ALIGN_LEFT, ALIGN_CENTER, ALIGN_RIGHT } Align;

typedef enum { SHAPE_AREA, SHAPE_LINE, SHAPE_TEXT } ShapeKind;
typedef struct {
    ShapeKind kind;
    Paint paint;
    const PlotPoint *at; /* its points; for a text, where its base line is aligned */
    uint32_t n;
    double width; /* width of a line; size of a text */
    bool dashed;
    Align align;
    const char *text; /* any bytes: escaped where it is written */
} Shape;

typedef struct {
    Arena *a;
    double width, height;
    const char *title; /* text alternative of the picture */
    Shape *shape;      /* in drawing order: later ones cover earlier ones */
    uint32_t n, cap;
} Picture;

/* Points are copied. */
void picture_area(Picture *p, Paint paint, const PlotPoint *at, uint32_t n);
void picture_rect(Picture *p, Paint paint, double x, double y, double width, double height);
void picture_line(Picture *p, Paint paint, double width, bool dashed, const PlotPoint *at, uint32_t n);
void picture_dot(Picture *p, Paint paint, double x, double y, double radius);
/* Letters have an outline in the surface's colour, so that they can be read on other shapes. */
void picture_text(Picture *p, Paint paint, double x, double y, Align align, double size, const char *text);
double text_width(double size, const char *text); /* an estimate, in pixels */

/* Prints text escaped for XML and HTML, in elements and in quoted attributes. */
void print_xml(FILE *f, const char *text);
/* Writes SVG, alone or as part of a page that has the style. */
void picture_svg(const Picture *p, FILE *f, bool alone);
void picture_style(FILE *f); /* writes the colours as CSS variables and classes */
/* Writes PNG with two pixels for each of the picture's, along both sides. */
void picture_png(const Picture *p, FILE *f);
/* Writes a file in the format that the suffix names, .svg or .png. */
bool picture_write(const Picture *p, const char *path, Diag *d);
bool picture_suffix(const char *path); /* is it .svg or .png? */

#endif
