/* integer.h -- small functions of integers. */
#ifndef CKC_INTEGER_H
#define CKC_INTEGER_H

#include <stdint.h>

/* The greatest common divisor of two numbers >= 0; that of 0 and n is n. */
static inline int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* a / b, rounded up; a >= 0. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The least multiple of unit that is >= n; n >= 0. */
static inline int64_t round_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

/* The least power of two that is >= n, or else >= most. */
static inline int64_t next_power_of_2(int64_t n, int64_t most)
{
    int64_t power = 1;
    while (power < n && power < most)
        power *= 2;
    return power;
}

#endif
