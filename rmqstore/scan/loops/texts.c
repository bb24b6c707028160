/* Check the syntax of property texts, find values in them, and hash values. */
#include "bytes.h"

/* Compute String.hashCode of every span, unsigned; plain[i] is 0 if the span is not ASCII and its hash invalid. */
void rmqstore_hashes(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *length,
                     int64_t *codes, uint8_t *plain) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t code = 0;
        uint8_t seen = 0;
        if (inside(start[i], length[i], have)) {
            const uint8_t *at = buf + start[i];
            int64_t k = 0;
            for (; k + 4 <= length[i]; k += 4) { /* four bytes wait only once for the code before them */
                code = code * 923521 + at[k] * 29791u + at[k + 1] * 961u + at[k + 2] * 31u + at[k + 3];
                seen |= at[k] | at[k + 1] | at[k + 2] | at[k + 3];
            }
            for (; k < length[i]; k++) {
                code = code * 31 + at[k];
                seen |= at[k];
            }
        }
        codes[i] = code;
        plain[i] = seen < 0x80;
    }
}

/* Return whether any of the spans contains a byte. */
int64_t rmqstore_holds(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *length,
                       int64_t byte) {
    for (int64_t i = 0; i < n; i++)
        if (length[i] > 0 && inside(start[i], length[i], have) &&
            memchr(buf + start[i], (int)byte, (size_t)length[i]))
            return 1;
    return 0;
}

/* Mark the spans that contain a word of 8 bytes: out[i]. Returns how many spans do. */
int64_t rmqstore_mentions(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *length,
                          uint64_t word, uint8_t *out) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        if (length[i] < 8 || !inside(start[i], length[i], have)) continue;
        const uint8_t *at = buf + start[i], *last = at + length[i] - 8;
#ifdef __SSE2__
        const uint8_t *end = buf + have;
        const __m128i first = _mm_set1_epi8((char)word), final = _mm_set1_epi8((char)(word >> 56));
        for (; !out[i] && at <= last && end - at >= 23; at += 16) {
            __m128i begins = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)at), first);
            __m128i ends = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(at + 7)), final);
            unsigned marks = (unsigned)_mm_movemask_epi8(_mm_and_si128(begins, ends));
            for (; marks && !out[i]; marks &= marks - 1) {
                const uint8_t *here = at + __builtin_ctz(marks);
                out[i] = here <= last && little64(here) == word;
            }
        }
#endif
        for (; !out[i] && at <= last && (at = memchr(at, (int)(word & 0xFF), (size_t)(last - at) + 1)); at++)
            out[i] = little64(at) == word;
        count += out[i];
    }
    return count;
}

enum { ODD = 1, WIDE = 2, ENDS_LIKE = 4, CONTROL = 8 };

/* Positions of the values of requested names: those of name k are at [k * room, k * room + count[k]) of the arrays. */
struct hits {
    int64_t room;
    int64_t *count, *row, *start, *length;
};

static int hit(struct hits *hits, int64_t name, int64_t row, int64_t start, int64_t length) {
    if (hits->count[name] == hits->room) return 0;
    int64_t at = name * hits->room + hits->count[name]++;
    hits->row[at] = row, hits->start[at] = start, hits->length[at] = length;
    return 1;
}

/* Bit masks of 64 bytes: returns the control characters; `wide` gets the bytes that are not ASCII. */
static uint64_t marks_of(const uint8_t *at, uint64_t *wide) {
    uint64_t marks = 0, high = 0;
#ifdef __SSE2__
    const __m128i last = _mm_set1_epi8(0x1F);
    for (int k = 0; k < 64; k += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(at + k));
        marks |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(bytes, last), bytes)) << k;
        high |= (uint64_t)_mm_movemask_epi8(bytes) << k;
    }
#else
    for (int k = 0; k < 64; k += 8) {
        uint64_t word = little64(at + k);
        /* sets the top bit of every byte below a space; no byte borrows from the next, because all top bits are set */
        uint64_t below = ~((word | HIGH) - BLANKS) & ~word & HIGH;
        marks |= (below >> 7) * GATHER >> 56 << k;
        high |= ((word & HIGH) >> 7) * GATHER >> 56 << k;
    }
#endif
    *wide = high;
    return marks;
}

/* Return the flags of one property text and store the values of the requested names; -1 if there is no room for them.
 * `have` bytes are readable from `text` on. */
static int read_text(const uint8_t *text, int64_t length, int64_t have, const struct names *names,
                     const uint32_t *ends, int64_t ends_count, int64_t row, int64_t base, struct hits *hits) {
    int64_t begin = 0; /* start of the current name or value */
    int64_t name = -1; /* index of the current name among the requested ones */
    int in_value = 0, any = 0, flags = 0;
    for (int64_t at = 0; at < length; at += 64) {
        uint8_t copy[64];
        const uint8_t *block = text + at;
        if (at + 64 > have) {
            memset(copy, ' ', sizeof copy);
            memcpy(copy, block, (size_t)(length - at));
            block = copy;
        }
        uint64_t wide, marks = marks_of(block, &wide);
        if (length - at < 64) {
            uint64_t ours = ((uint64_t)1 << (length - at)) - 1;
            marks &= ours;
            wide &= ours;
        }
        if (wide) flags |= WIDE;
        for (; marks; marks &= marks - 1) {
            int64_t here = at + __builtin_ctzll(marks);
            if (text[here] > 2) { /* tab, LF and CR are ordinary text */
                if (text[here] != '\t' && text[here] != '\n' && text[here] != '\r') flags |= CONTROL;
                continue;
            }
            any = 1;
            if (text[here] != 1 + in_value) return flags | ODD; /* a zero byte, or separators that do not alternate */
            if (in_value) {
                if (name >= 0 && !hit(hits, name, row, base + begin, here - begin)) return -1;
            } else {
                name = which(names, text + begin, here - begin);
                if (here - begin >= 4) {
                    uint32_t last = little32(text + here - 4);
                    for (int64_t k = 0; k < ends_count; k++)
                        if (last == ends[k]) flags |= ENDS_LIKE;
                }
            }
            in_value = !in_value;
            begin = here + 1;
        }
    }
    if (length > 0 && !any) return flags | ODD;
    if (in_value && name >= 0 && !hit(hits, name, row, base + begin, length - begin)) return -1;
    return flags;
}

/* Store the flags of every property text, and the positions of the values of requested names except in odd texts.
 * ODD: malformed or with a zero byte; WIDE: not ASCII; ENDS_LIKE: a name has the same last four bytes as one of `ends`;
 * CONTROL: control characters other than separators, tab, LF and CR. Returns 0 if the arrays are too small. */
int64_t rmqstore_texts(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *length,
                       uint8_t *out, int64_t names_count, const uint64_t *names_word, const int64_t *names_length,
                       int64_t ends_count, const uint32_t *ends, int64_t room, int64_t *count, int64_t *row,
                       int64_t *value_start, int64_t *value_length) {
    struct names names = {names_count, names_word, names_length};
    struct hits hits = {room, count, row, value_start, value_length};
    int64_t before[8];
    if (names_count > 8) return 0;
    for (int64_t k = 0; k < names_count; k++) count[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!inside(start[i], length[i], have)) {
            out[i] = ODD;
            continue;
        }
        memcpy(before, count, (size_t)names_count * sizeof *before);
        int flags = read_text(buf + start[i], length[i], have - start[i], &names, ends, ends_count, i, start[i], &hits);
        if (flags < 0) return 0;
        if (flags & ODD) memcpy(count, before, (size_t)names_count * sizeof *before);
        out[i] = (uint8_t)flags;
    }
    return 1;
}
