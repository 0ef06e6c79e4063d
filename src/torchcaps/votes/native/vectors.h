/* Vectors of examples: LANES numbers of type REAL, as one or more vectors of the processor. */

#include <stddef.h>
#include <stdlib.h>

#if defined(MOST) /* bytes of a vector; the compiler was told: any will do, at another speed */
#elif defined(__AVX512F__)
#define MOST 64
#elif defined(__AVX__)
#define MOST 32
#else
#define MOST 16
#endif

#define DOUBLE (sizeof(REAL) == 8)
#define BYTES (LANES * REAL_BYTES < MOST ? LANES * REAL_BYTES : MOST)

typedef REAL vec __attribute__((vector_size(BYTES), aligned(REAL_BYTES), may_alias));
typedef ptrdiff_t size;
typedef const REAL *restrict in;

#define WIDE (BYTES / REAL_BYTES)
#define VECS (LANES / WIDE)
#define LOAD(place) (*(const vec *)(place))
#define STORE(place, value) (*(vec *)(place) = (value))
#define ADD(place, value) STORE(place, LOAD(place) + (value))
#define FETCH(place) UNROLL for (int h = 0; h < VECS; h++) __builtin_prefetch((place) + h * WIDE)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 64")
#define TINY (DOUBLE ? 2.2250738585072014e-308 : 1.17549435e-38f)

/* How many numbers are kept in registers at a time: a divisor of the whole. */
#define PART(whole) ((whole) % 4 == 0 ? 4 : (whole) % 5 == 0 ? 5 : (whole) % 6 == 0 ? 6 : (whole) % 3 == 0 ? 3 : (whole) % 2 == 0 ? 2 : 1)

static void *room(size bytes) {
    void *place = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!place) abort(); /* some kilobytes: there is nothing left to tell it with */
    return place;
}

INLINE void clear(REAL *place, size count) { /* place may be null */
    for (size k = 0; place && k < count; k++) place[k] = 0;
}

typedef __typeof__((vec){0} < (vec){0}) mask; /* integers of the same width */

/* Neighbors added: in each 16 bytes, those of a and then those of b. */
INLINE vec neighbors(vec a, vec b) {
    enum { LANE = 16 / REAL_BYTES };
    mask even;
    UNROLL for (int l = 0; l < WIDE; l++) {
        int at = l % LANE, half = LANE / 2;
        even[l] = l - at + 2 * (at % half) + at / half * WIDE;
    }
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, even + 1);
}

/* Halves added: of each `length` numbers of a, and then of b. */
INLINE vec halves(vec a, vec b, int length) {
    mask low;
    UNROLL for (int l = 0; l < WIDE; l++) low[l] = l / (length / 2) * length + l % (length / 2);
    return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, low + length / 2);
}

/* The sums of as many vectors as a vector has numbers, as one vector. */
INLINE vec totals(vec v[WIDE]) {
    enum { LANE = 16 / REAL_BYTES, LEFT = WIDE / LANE };
    UNROLL for (int q = 0; q < WIDE / 2; q++) v[q] = neighbors(v[2 * q], v[2 * q + 1]);
    if (LANE == 4)
        UNROLL for (int q = 0; q < WIDE / 4; q++) v[q] = neighbors(v[2 * q], v[2 * q + 1]);
    if (LEFT > 1)
        UNROLL for (int q = 0; q < LEFT / 2; q++) v[q] = halves(v[2 * q], v[2 * q + 1], WIDE);
    if (LEFT > 2) v[0] = halves(v[0], v[1], WIDE / 2);
    return v[0];
}
