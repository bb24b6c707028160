/* Helpers shared by the compiled loops. native.py, their only caller, documents the loops.
 *
 * The input is untrusted: every function gets the number of valid bytes (`have`) and never reads past them, whatever
 * lengths the data contains. Positions and lengths in the arguments are checked against `have` too. The functions keep
 * no state, allocate nothing and report no errors; their caller handles the cases that they leave out in Python.
 */
#ifndef RMQSTORE_BYTES_H
#define RMQSTORE_BYTES_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "little-endian machines only"
#endif
_Static_assert(sizeof(void *) == 8, "64-bit machines only");

#define ABI 8
#define HIGH 0x8080808080808080ULL
#define BLANKS 0x2020202020202020ULL
#define GATHER 0x0102040810204080ULL /* multiply by it to move the lowest bits of eight bytes into the top byte */

typedef uint32_t (*crc32_function)(uint32_t crc, const uint8_t *bytes, size_t size);

static inline uint32_t big32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static inline uint16_t big16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline uint64_t big64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

static inline uint64_t little64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static inline uint32_t little32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static inline void put64(uint8_t *at, int64_t value) {
    uint64_t big = __builtin_bswap64((uint64_t)value);
    memcpy(at, &big, 8);
}

static inline void put32(uint8_t *at, int64_t value) {
    uint32_t big = __builtin_bswap32((uint32_t)value);
    memcpy(at, &big, 4);
}

/* The first `length` bytes, at most eight, as a little-endian number; reads no further bytes. */
static inline uint64_t few(const uint8_t *at, int64_t length) {
    if (length >= 8) return little64(at);
    if (length >= 4) return little32(at) | (uint64_t)little32(at + length - 4) << 8 * (length - 4);
    uint64_t value = 0;
    for (int64_t k = 0; k < length; k++) value |= (uint64_t)at[k] << 8 * k;
    return value;
}

static inline int same(const uint8_t *a, const uint8_t *b, int64_t length) {
    for (; length >= 8; a += 8, b += 8, length -= 8)
        if (little64(a) != little64(b)) return 0;
    return few(a, length) == few(b, length);
}

/* Whether the span [start, start + length) lies within `have` bytes; negative lengths count as empty. */
static inline int inside(int64_t start, int64_t length, int64_t have) {
    return start >= 0 && start <= have && length <= have - start;
}

/* `count` property names of at most eight bytes, each as a little-endian number with its length. */
struct names {
    int64_t count;
    const uint64_t *word;
    const int64_t *length;
};

/* The index of the name that equals a span of `length` bytes; -1 for none. */
static inline int64_t which(const struct names *names, const uint8_t *at, int64_t length) {
    if (length > 8) return -1;
    uint64_t word = few(at, length);
    for (int64_t k = 0; k < names->count; k++)
        if (names->word[k] == word && names->length[k] == length) return k;
    return -1;
}

/* A hash of a topic and a queue id. */
static inline uint64_t hash_of(const uint8_t *topic, int64_t length, int64_t id) {
    uint64_t hash = (uint64_t)id * 0x9E3779B97F4A7C15ULL + (uint64_t)length;
    for (; length >= 8; topic += 8, length -= 8) {
        hash = (hash ^ little64(topic)) * 0xC2B2AE3D27D4EB4FULL;
        hash ^= hash >> 29;
    }
    hash = (hash ^ few(topic, length)) * 0x165667B19E3779F9ULL;
    return hash ^ (hash >> 32);
}

#endif
