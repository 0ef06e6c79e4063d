/* Parents compete for children: softmaxes of scores [b i j l] over the parents of a window, or over all parents of all
   windows that see the same child. A child that nobody may take, because all its scores are minus infinity, goes to
   nobody. leaky: one more score of zero competes. */

#if REAL_BYTES == 8
#define LOWEST -708.0
#define SHIFT 6755399441055744.0 /* added and subtracted, it rounds */
#define BIAS 1023LL
#define DIGITS 52
#define LN2_HIGH 6.93147180369123816490e-01
#define LN2_LOW 1.90821492927058770002e-10
#else
#define LOWEST -87.0f
#define SHIFT 12582912.0f
#define BIAS 127
#define DIGITS 23
#define LN2_HIGH 6.93145752e-1f
#define LN2_LOW 1.42860677e-6f
#endif

INLINE vec where(mask chosen, vec a, vec b) { return (vec)(((mask)a & chosen) | ((mask)b & ~chosen)); }
INLINE vec larger(vec a, vec b) { return where(a > b, a, b); }

/* exp(x) for x <= 0; zero where it is below the smallest normal number, NaN where x is. */
INLINE vec exponential(vec x) {
    mask nothing = x <= LOWEST;
    vec rounded = x * (REAL)1.44269504088896340736 + SHIFT, times = rounded - SHIFT;
    vec rest = x - times * (REAL)LN2_HIGH - times * (REAL)LN2_LOW, total = {0};
    REAL factor[14] = {1};
    UNROLL for (int k = 1; k < 14; k++) factor[k] = factor[k - 1] / k; /* the compiler knows them */
    UNROLL for (int k = DOUBLE ? 13 : 7; k >= 0; k--) total = total * rest + factor[k];
    mask power = ((mask)rounded - (mask)((vec){0} + SHIFT) + BIAS) << DIGITS;
    return (vec)((mask)(total * (vec)power) & ~nothing);
}

/* One child, the windows of a block: how much the top score is; shares from given tops, and their sum. */
INLINE void tops(size parents, const REAL *s, REAL *top) {
    UNROLL for (int h = 0; h < VECS; h++) {
        vec most = LOAD(s + h * WIDE);
        for (size j = 1; j < parents; j++) most = larger(LOAD(s + j * LANES + h * WIDE), most);
        STORE(top + h * WIDE, most);
    }
}

INLINE void rises(size parents, const REAL *s, const REAL *top, REAL *shares, REAL *total) {
    UNROLL for (int h = 0; h < VECS; h++) {
        vec most = LOAD(top + h * WIDE), sum = {0};
        for (size j = 0; j < parents; j++) {
            vec share = exponential(LOAD(s + j * LANES + h * WIDE) - most);
            STORE(shares + j * LANES + h * WIDE, share);
            sum += share;
        }
        STORE(total + h * WIDE, sum);
    }
}

INLINE void scale(size parents, const REAL *factor, REAL *shares) {
    UNROLL for (int h = 0; h < VECS; h++) {
        vec each = LOAD(factor + h * WIDE);
        for (size j = 0; j < parents; j++) STORE(shares + j * LANES + h * WIDE, LOAD(shares + j * LANES + h * WIDE) * each);
    }
}

INLINE void products(size parents, const REAL *c, const REAL *g, REAL *total) {
    UNROLL for (int h = 0; h < VECS; h++) {
        vec sum = {0};
        for (size j = 0; j < parents; j++) sum += LOAD(c + j * LANES + h * WIDE) * LOAD(g + j * LANES + h * WIDE);
        STORE(total + h * WIDE, sum);
    }
}

INLINE void pull(size parents, const REAL *c, const REAL *g, const REAL *total, REAL *result) {
    UNROLL for (int h = 0; h < VECS; h++) {
        vec mean = LOAD(total + h * WIDE);
        for (size j = 0; j < parents; j++) {
            size at = j * LANES + h * WIDE;
            STORE(result + at, LOAD(c + at) * (LOAD(g + at) - mean));
        }
    }
}

INLINE REAL top_of(REAL found, int leaky) { return leaky ? (found > 0 ? found : 0) : found == -(REAL)__builtin_inf() ? 0 : found; }
INLINE REAL one_over(REAL total) { return total == 0 ? 0 : 1 / total; }

INLINE void inverses(int leaky, const REAL *top, REAL *total, size count) {
    for (size k = 0; k < count; k += WIDE) { /* vectors of the right length, also where there is but part of one */
        vec most = {0};
        for (int l = 0; l < WIDE && k + l < count; l++) most[l] = top[k + l] > 0 ? -top[k + l] : 0;
        if (leaky) most = exponential(most);
        for (int l = 0; l < WIDE && k + l < count; l++) total[k + l] = one_over(total[k + l] + (leaky ? most[l] : 0));
    }
}

/* Over the parents of a window; a row is a child and a block. */
void softmax(int threads, size rows, size parents, int leaky, const REAL *scores, REAL *shares) {
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (size row = 0; row < rows; row++) {
        REAL top[LANES], total[LANES];
        size at = row * parents * LANES;
        tops(parents, scores + at, top);
        for (int l = 0; l < LANES; l++) top[l] = top_of(top[l], leaky);
        rises(parents, scores + at, top, shares + at, total);
        inverses(leaky, top, total, LANES);
        scale(parents, total, shares + at);
    }
}

void softmax_back(int threads, size rows, size parents, const REAL *shares, const REAL *gradient, REAL *result) {
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (size row = 0; row < rows; row++) {
        REAL total[LANES];
        size at = row * parents * LANES;
        products(parents, shares + at, gradient + at, total);
        pull(parents, shares + at, gradient + at, total, result + at);
    }
}

/* The gradients of couplings times the weights of children [b i l], where those of the products are given; either may be
   null. A row is a child and a block. */
void weigh_back(int threads, size rows, size parents, const REAL *couplings, const REAL *weights, const REAL *gradient,
                REAL *for_couplings, REAL *for_weights) {
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (size row = 0; row < rows; row++) {
        size at = row * parents * LANES;
        if (for_weights) products(parents, couplings + at, gradient + at, for_weights + row * LANES);
        if (!for_couplings) continue;
        UNROLL for (int h = 0; h < VECS; h++) {
            vec weight = LOAD(weights + row * LANES + h * WIDE);
            for (size j = 0; j < parents; j++)
                STORE(for_couplings + at + j * LANES + h * WIDE, LOAD(gradient + at + j * LANES + h * WIDE) * weight);
        }
    }
}

/* Over all parents of all windows that see a child. An example has `places` of children, and a block several windows of
   its `batch` examples each: LANES / batch of them. seen [window, offset]: the place that is there. children are
   (offset, type); groups of blocks have nothing to do with each other. */
typedef struct { size groups, blocks, offsets, types, parents, places, batch; } grid;

INLINE void collect(grid n, const long long *seen, size block, size k, const REAL *from, REAL *to) {
    for (size w = 0; w < LANES / n.batch; w++) {
        const REAL *source = from + seen[(block * (LANES / n.batch) + w) * n.offsets + k] * n.batch;
        for (size l = 0; l < n.batch; l++) to[w * n.batch + l] = source[l];
    }
}

#define EACH_WINDOW(n)                                                                                                 \
    for (size block = 0; block < n.blocks; block++)                                                                    \
        for (size k = 0; k < n.offsets; k++)

#define ROW ((((group * n.blocks + block) * n.offsets + k) * n.types + type) * n.parents * LANES)

#define ONTO(n, seen, target, found, operation)                                                                        \
    for (size w = 0; w < LANES / n.batch; w++) {                                                                       \
        REAL *to = target + seen[(block * (LANES / n.batch) + w) * n.offsets + k] * n.batch;                           \
        for (size l = 0; l < n.batch; l++) { REAL new = found[w * n.batch + l]; operation; }                           \
    }

void grid_softmax(int threads, size groups, size blocks, size offsets, size types, size parents, size places, size batch,
                  const long long *seen, int leaky, const REAL *scores, REAL *shares) {
    grid n = {groups, blocks, offsets, types, parents, places, batch};
    size count = places * batch;
    #pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
    for (size group = 0; group < groups; group++)
        for (size type = 0; type < types; type++) {
            REAL *top = room(2 * count * sizeof *top), *total = top + count, own[LANES], found[LANES];
            for (size p = 0; p < count; p++) top[p] = -(REAL)__builtin_inf(), total[p] = 0;
            EACH_WINDOW(n) {
                tops(parents, scores + ROW, found);
                ONTO(n, seen, top, found, to[l] = new > to[l] ? new : to[l])
            }
            for (size p = 0; p < count; p++) top[p] = top_of(top[p], leaky);
            EACH_WINDOW(n) {
                collect(n, seen, block, k, top, own);
                rises(parents, scores + ROW, own, shares + ROW, found);
                ONTO(n, seen, total, found, to[l] += new)
            }
            inverses(leaky, top, total, count);
            EACH_WINDOW(n) {
                collect(n, seen, block, k, total, own);
                scale(parents, own, shares + ROW);
            }
            free(top);
        }
}

void grid_softmax_back(int threads, size groups, size blocks, size offsets, size types, size parents, size places,
                       size batch, const long long *seen, const REAL *shares, const REAL *gradient, REAL *result) {
    grid n = {groups, blocks, offsets, types, parents, places, batch};
    size count = places * batch;
    #pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
    for (size group = 0; group < groups; group++)
        for (size type = 0; type < types; type++) {
            REAL *total = room(count * sizeof *total), own[LANES];
            for (size p = 0; p < count; p++) total[p] = 0;
            EACH_WINDOW(n) {
                products(parents, shares + ROW, gradient + ROW, own);
                ONTO(n, seen, total, own, to[l] += new)
            }
            EACH_WINDOW(n) {
                collect(n, seen, block, k, total, own);
                pull(parents, shares + ROW, gradient + ROW, own, result + ROW);
            }
            free(total);
        }
}
