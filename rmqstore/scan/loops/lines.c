/* Text output for a chunk of records: property texts as objects, and lines assembled from parts. */
#include "bytes.h"

/* Bit masks of 64 bytes: returns the bytes below 0x20, quotes, backslashes and DEL; `wide` gets those not ASCII. */
static uint64_t odd_bytes(const uint8_t *at, uint64_t *wide) {
    uint64_t odd = 0, high = 0;
#ifdef __SSE2__
    const __m128i control = _mm_set1_epi8(0x1F), quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8(0x5C),
                  del = _mm_set1_epi8(0x7F);
    for (int k = 0; k < 64; k += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(at + k));
        __m128i found = _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes);
        found = _mm_or_si128(found, _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(bytes, del));
        odd |= (uint64_t)_mm_movemask_epi8(found) << k;
        high |= (uint64_t)_mm_movemask_epi8(bytes) << k;
    }
#else
    for (int k = 0; k < 64; k++) {
        odd |= (uint64_t)(at[k] < 0x20 || at[k] == '"' || at[k] == 0x5C || at[k] == 0x7F) << k;
        high |= (uint64_t)(at[k] >> 7) << k;
    }
#endif
    *wide = high;
    return odd;
}

/* How property texts are written as objects: `open` and `close` enclose an object, `equals` replaces 0x01 and `comma`
 * replaces 0x02, each with its size. `quotes` is the number of bytes on either side of a value that belong to it.
 * A value of a requested name that contains the byte `bad` is left to Python (-1: no such byte). */
struct style {
    int64_t open_size, close_size, equals_size, comma_size, quotes, bad;
    uint8_t open[8], close[8], equals[8], comma[8];
};

/* Copy bytes and return the position after them; fast for short pieces, which are the most frequent. */
static inline uint8_t *put(uint8_t *to, const uint8_t *bytes, int64_t size) {
    if (size > 16) {
        memcpy(to, bytes, (size_t)size);
    } else if (size >= 8) { /* two overlapping copies */
        memcpy(to + size - 8, bytes + size - 8, 8);
        memcpy(to, bytes, 8);
    } else if (size >= 4) {
        memcpy(to + size - 4, bytes + size - 4, 4);
        memcpy(to, bytes, 4);
    } else {
        for (int64_t k = 0; k < size; k++) to[k] = bytes[k];
    }
    return to + size;
}

enum { MOST_NAMES = 32 };

/* Write one property text as an object to out[at..room) and return its end; -1 if it is left to Python, because it
 * needs escapes, is malformed, has a duplicate name, or does not fit. The position of the value of name k goes to
 * first[k * n] and stop[k * n]. */
static int64_t write_object(const uint8_t *text, int64_t length, const struct style *style, const struct names *names,
                            uint8_t *out, int64_t at, int64_t room, int64_t *first, int64_t *stop, int64_t n,
                            int *wide) {
    uint64_t met[MOST_NAMES];
    int64_t met_count = 0, begin = 0, name = -1, value_at = 0;
    int in_value = 0;
    uint64_t high = 0;
    if (length + style->open_size + style->close_size > room - at) return -1;
    uint8_t *to = put(out + at, style->open, style->open_size);
    for (int64_t block = 0; block <= length; block += 64) {
        uint8_t copy[64];
        const uint8_t *bytes = text + block;
        int64_t left = length - block;
        if (left < 64) { /* append a separator, which ends the last value */
            memset(copy, ' ', sizeof copy);
            memcpy(copy, bytes, (size_t)left);
            copy[left] = 2;
            bytes = copy;
        }
        uint64_t wide_bytes, odd = odd_bytes(bytes, &wide_bytes);
        high |= wide_bytes;
        for (; odd; odd &= odd - 1) {
            int64_t here = __builtin_ctzll(odd), i = block + here, size = i - begin;
            if (bytes[here] != 1 + in_value || size == 0) return -1;
            if (to - out + size + style->equals_size + style->comma_size + style->close_size > room) return -1;
            if (in_value) {
                if (name >= 0 && style->bad >= 0 && memchr(text + begin, (int)style->bad, (size_t)size)) return -1;
                to = put(to, text + begin, size);
                if (name >= 0) {
                    first[name * n] = value_at - style->quotes;
                    stop[name * n] = to - out + style->quotes;
                }
                if (i < length) to = put(to, style->comma, style->comma_size);
            } else {
                uint64_t mixed = hash_of(text + begin, size, size);
                if (met_count == MOST_NAMES) return -1;
                for (int64_t k = 0; k < met_count; k++)
                    if (met[k] == mixed) return -1;
                met[met_count++] = mixed;
                name = which(names, text + begin, size);
                to = put(to, text + begin, size);
                to = put(to, style->equals, style->equals_size);
                value_at = to - out;
            }
            in_value = !in_value;
            begin = i + 1;
        }
    }
    *wide = high != 0;
    return put(to, style->close, style->close_size) - out;
}

/* Write property texts [start, stop) as consecutive objects from out[at] on and return the end of the last one. Row 0
 * of `first` and `last` gets the position of each object, rows 1 and up the positions of the values of `names`; they
 * are left unchanged for missing values and for empty texts. Marks: left to Python (1), not ASCII (2). */
int64_t rmqstore_objects(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *stop,
                         const struct style *style, int64_t names_count, const uint64_t *names_word,
                         const int64_t *names_length, uint8_t *out, int64_t at, int64_t room, int64_t *first,
                         int64_t *last, uint8_t *marks) {
    struct names names = {names_count, names_word, names_length};
    for (int64_t i = 0; i < n; i++) {
        marks[i] = 0;
        if (start[i] == stop[i]) continue;
        int64_t end = -1;
        int wide = 0;
        if (start[i] >= 0 && start[i] < stop[i] && stop[i] <= have)
            end = write_object(buf + start[i], stop[i] - start[i], style, &names, out, at, room, first + n + i,
                               last + n + i, n, &wide);
        if (end < 0) {
            marks[i] = 1;
            continue;
        }
        marks[i] = wide ? 2 : 0;
        first[i] = at;
        last[i] = end;
        at = end;
    }
    return at;
}

/* Split property texts [start, stop) into pairs as the broker does: parts are separated by 0x02 and split at their
 * first 0x01; a part with an empty name or value is skipped. Names and values are concatenated in `names_out` and
 * `values_out`, and their ends stored in `name_ends` and `value_ends`; ends[i] is the number of pairs up to and
 * including text i. `first` and `last` are the positions of the values of `names` in `buf`. Marks: a name may occur
 * twice (1), not ASCII (2), a part was skipped (4), the text ends with 0x02 (8). Returns the number of pairs. */
int64_t rmqstore_pairs(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *stop,
                       int64_t names_count, const uint64_t *names_word, const int64_t *names_length,
                       uint8_t *names_out, uint8_t *values_out, int32_t *name_ends, int32_t *value_ends, int32_t *ends,
                       int64_t *first, int64_t *last, uint8_t *marks) {
    struct names names = {names_count, names_word, names_length};
    int64_t count = 0;
    int32_t name_end = 0, value_end = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t met[MOST_NAMES], high = 0;
        int64_t met_count = 0, length = stop[i] - start[i];
        marks[i] = 0;
        ends[i] = (int32_t)count;
        if (length <= 0 || !inside(start[i], length, have)) continue;
        const uint8_t *text = buf + start[i], *end = text + length;
        for (const uint8_t *at = text; at < end;) {
            const uint8_t *middle = memchr(at, 1, (size_t)(end - at)), *next;
            next = memchr(at, 2, (size_t)((middle ? middle : end) - at));
            if (!next && middle) next = memchr(middle, 2, (size_t)(end - middle));
            if (!next) next = end;
            for (const uint8_t *k = at; k < next; k++) high |= *k;
            if (!middle || middle > next || middle == at || middle + 1 == next) {
                marks[i] |= 4;
            } else {
                int64_t name_size = middle - at, value_size = next - middle - 1;
                uint64_t mixed = hash_of(at, name_size, name_size);
                for (int64_t k = 0; k < met_count; k++)
                    if (met[k] == mixed) marks[i] |= 1;
                if (met_count == MOST_NAMES)
                    marks[i] |= 1;
                else
                    met[met_count++] = mixed;
                int64_t name = which(&names, at, name_size);
                if (name >= 0) {
                    first[name * n + i] = middle + 1 - buf;
                    last[name * n + i] = next - buf;
                }
                put(names_out + name_end, at, name_size);
                put(values_out + value_end, middle + 1, value_size);
                name_ends[count] = name_end += (int32_t)name_size;
                value_ends[count] = value_end += (int32_t)value_size;
                count++;
            }
            at = next + 1;
        }
        if (end[-1] == 2) marks[i] |= 8;
        if (high & 0x80) marks[i] |= 2;
        ends[i] = (int32_t)count;
    }
    return count;
}

/* Mark what every text [start, stop) contains: control characters other than tab, LF and CR (1), bytes that are not
 * ASCII (2), DEL (4). */
void rmqstore_contents(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *stop,
                       uint8_t *marks) {
    for (int64_t i = 0; i < n; i++) {
        int64_t length = stop[i] - start[i];
        uint8_t found = 0;
        marks[i] = 0;
        if (length <= 0 || !inside(start[i], length, have)) continue;
        for (int64_t block = 0; block < length; block += 64) {
            uint8_t copy[64];
            const uint8_t *bytes = buf + start[i] + block;
            if (length - block < 64) {
                memset(copy, ' ', sizeof copy);
                memcpy(copy, bytes, (size_t)(length - block));
                bytes = copy;
            }
            uint64_t wide, odd = odd_bytes(bytes, &wide);
            if (wide) found |= 2;
            for (; odd; odd &= odd - 1) {
                uint8_t byte = bytes[__builtin_ctzll(odd)];
                if (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') found |= 1;
                if (byte == 0x7F) found |= 4;
            }
        }
        marks[i] = found;
    }
}

/* How a part is written: unchanged (SAME, ROWS, SPANS: see `struct part`), in base64 or hex, with JSON escapes (without
 * the quotes around it), or as a CSV cell. */
enum { SAME, ROWS, SPANS, BASE64, HEX, ESCAPED, CELL };

static const char DIGITS[] = "0123456789abcdef";

static inline int is_short_escape(uint8_t byte) {
    return byte == '"' || byte == 0x5C || (byte >= 8 && byte <= 13 && byte != 11);
}

/* Length of the C1 or invisible character at `at`, of which `left` bytes remain; 0 for every other one.
 * formats/text.py has the table. */
static inline int hidden_length(const uint8_t *at, int64_t left) {
    if (left < 2) return 0;
    if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0) return 2;
    if (at[0] == 0xD8 && at[1] == 0x9C) return 2;
    if (left < 3) return 0;
    if (at[0] == 0xEF && at[1] == 0xBB && at[2] == 0xBF) return 3;
    if (at[0] != 0xE2) return 0;
    if (at[1] == 0x80) return (at[2] >= 0x8B && at[2] <= 0x8F) || (at[2] >= 0xAA && at[2] <= 0xAE) ? 3 : 0;
    return at[1] == 0x81 && (at[2] == 0xA0 || (at[2] >= 0xA6 && at[2] <= 0xA9)) ? 3 : 0;
}

/* Bit mask of the first bytes of such characters among the 64 bytes at `at`; `left` bytes of text remain from `at` on. */
static uint64_t hidden_bytes(const uint8_t *at, int64_t left) {
    uint64_t found = 0, leads = 0;
    for (int64_t k = 0; k < 64 && k + 1 < left; k++)
        leads |= (uint64_t)(at[k] == 0xC2 || at[k] == 0xD8 || at[k] == 0xE2 || at[k] == 0xEF) << k;
    for (; leads; leads &= leads - 1) {
        int k = __builtin_ctzll(leads);
        if (hidden_length(at + k, left - k)) found |= (uint64_t)1 << k;
    }
    return found;
}

/* Return 64 readable bytes for the text: `text` itself, or `copy` with the `left` bytes of text padded with spaces. */
static const uint8_t *block_of(const uint8_t *text, int64_t left, uint8_t copy[64]) {
    if (left >= 64) return text;
    memset(copy, ' ', 64);
    memcpy(copy, text, (size_t)left);
    return copy;
}

static int64_t escaped_size(const uint8_t *text, int64_t length) {
    int64_t size = length;
    for (int64_t block = 0; block < length; block += 64) {
        uint8_t copy[64];
        const uint8_t *bytes = block_of(text + block, length - block, copy);
        uint64_t wide, odd = odd_bytes(bytes, &wide);
        for (; odd; odd &= odd - 1) size += is_short_escape(bytes[__builtin_ctzll(odd)]) ? 1 : 5;
        uint64_t hidden = wide ? hidden_bytes(text + block, length - block) : 0;
        for (; hidden; hidden &= hidden - 1) {
            int64_t here = block + __builtin_ctzll(hidden);
            size += 6 - hidden_length(text + here, length - here);
        }
    }
    return size;
}

static uint8_t *put_escaped(uint8_t *to, const uint8_t *text, int64_t length) {
    int64_t begin = 0;
    for (int64_t block = 0; block < length; block += 64) {
        uint8_t copy[64];
        const uint8_t *bytes = block_of(text + block, length - block, copy);
        uint64_t wide, odd = odd_bytes(bytes, &wide);
        if (wide) odd |= hidden_bytes(text + block, length - block);
        for (; odd; odd &= odd - 1) {
            int64_t here = block + __builtin_ctzll(odd);
            int code = text[here], bytes_of = 1;
            if (code >= 0x80) {
                bytes_of = hidden_length(text + here, length - here);
                code &= bytes_of == 2 ? 0x1F : 0x0F;
                for (int k = 1; k < bytes_of; k++) code = code << 6 | (text[here + k] & 0x3F);
            }
            to = put(to, text + begin, here - begin);
            begin = here + bytes_of;
            *to++ = 0x5C;
            if (is_short_escape((uint8_t)code) && code < 0x80) {
                *to++ = code == '"' || code == 0x5C ? (uint8_t)code : (uint8_t)"btn0fr"[code - 8];
            } else {
                *to++ = 'u';
                for (int shift = 12; shift >= 0; shift -= 4) *to++ = (uint8_t)DIGITS[code >> shift & 15];
            }
        }
    }
    return put(to, text + begin, length - begin);
}

/* Filled when the library is loaded. */
static uint16_t base64_pairs[4096]; /* two characters for each 12-bit value */
static uint8_t base64_value[256];   /* of each character; 0x80 for one that is not in the alphabet */

__attribute__((constructor)) static void fill_base64(void) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int k = 0; k < 4096; k++) base64_pairs[k] = (uint16_t)(letters[k >> 6] | letters[k & 63] << 8);
    memset(base64_value, 0x80, sizeof base64_value);
    for (int k = 0; k < 64; k++) base64_value[(uint8_t)letters[k]] = (uint8_t)k;
}

static uint8_t *put_base64(uint8_t *to, const uint8_t *from, int64_t length) {
    for (; length >= 8; from += 6, to += 8, length -= 6) {
        uint64_t word = big64(from);
        uint64_t four = base64_pairs[word >> 52] | (uint64_t)base64_pairs[word >> 40 & 4095] << 16 |
                        (uint64_t)base64_pairs[word >> 28 & 4095] << 32 |
                        (uint64_t)base64_pairs[word >> 16 & 4095] << 48;
        memcpy(to, &four, 8);
    }
    for (; length > 0; from += 3, to += 4, length -= 3) {
        uint32_t word = (uint32_t)from[0] << 16 | (length > 1 ? (uint32_t)from[1] << 8 : 0) | (length > 2 ? from[2] : 0);
        memcpy(to, &base64_pairs[word >> 12], 2);
        memcpy(to + 2, &base64_pairs[word & 4095], 2);
        if (length < 3) to[3] = '=';
        if (length < 2) to[2] = '=';
    }
    return to;
}

/* Write the bytes of one text in base64; returns the position after them, or null if the text is not canonical. */
static uint8_t *put_decoded(uint8_t *to, const uint8_t *from, int64_t length) {
    int64_t pads = 0;
    if (length % 4) return 0;
    if (length) pads = from[length - 1] != '=' ? 0 : from[length - 2] != '=' ? 1 : 2;
    for (int64_t k = 0; k < length; k += 4, from += 4) {
        int last = pads && k + 4 == length;
        uint32_t a = base64_value[from[0]], b = base64_value[from[1]];
        uint32_t c = last && pads == 2 ? 0 : base64_value[from[2]], d = last ? 0 : base64_value[from[3]];
        uint32_t word = a << 18 | b << 12 | c << 6 | d;
        if ((a | b | c | d) & 0x80) return 0;
        if (last && word & (pads == 2 ? 0xFFFF : 0xFF)) return 0; /* bits that no encoder sets */
        *to++ = (uint8_t)(word >> 16);
        if (!last || pads < 2) *to++ = (uint8_t)(word >> 8);
        if (!last) *to++ = (uint8_t)word;
    }
    return to;
}

/* Decode n texts in base64 that follow each other in `text` and end at `stop`. The bytes of text i end at ends[i] in
 * `out`, which has room for 3/4 of the text. Returns 0 if a text is not canonical. */
int64_t rmqstore_decode_base64(const uint8_t *text, int64_t have, int64_t n, const int64_t *stop, uint8_t *out,
                               int64_t *ends) {
    uint8_t *to = out;
    int64_t start = 0;
    for (int64_t i = 0; i < n; start = stop[i++]) {
        if (stop[i] < start || stop[i] > have) return 0;
        to = put_decoded(to, text + start, stop[i] - start);
        if (!to) return 0;
        ends[i] = to - out;
    }
    return 1;
}

static uint8_t *put_hex(uint8_t *to, const uint8_t *from, int64_t length) {
    for (int64_t k = 0; k < length; k++) {
        *to++ = (uint8_t)DIGITS[from[k] >> 4];
        *to++ = (uint8_t)DIGITS[from[k] & 15];
    }
    return to;
}

/* Count the quotes in a text; `quoted` gets whether its CSV cell needs quotes. */
static int64_t quotes_in(const uint8_t *text, int64_t length, int *quoted) {
    int64_t quotes = 0;
    *quoted = 0;
    for (int64_t k = 0; k < length; k++) {
        quotes += text[k] == '"';
        *quoted |= text[k] == '"' || text[k] == ',' || text[k] == '\n' || text[k] == '\r';
    }
    return quotes;
}

static uint8_t *put_cell(uint8_t *to, const uint8_t *text, int64_t length) {
    int quoted;
    int64_t quotes = quotes_in(text, length, &quoted);
    if (!quoted) return put(to, text, length);
    *to++ = '"';
    if (!quotes) {
        to = put(to, text, length);
    } else {
        for (int64_t k = 0; k < length; k++) {
            if (text[k] == '"') *to++ = '"';
            *to++ = text[k];
        }
    }
    *to++ = '"';
    return to;
}

static int64_t size_as(int64_t kind, const uint8_t *text, int64_t length) {
    int quoted;
    if (kind == BASE64) return (length + 2) / 3 * 4;
    if (kind == HEX) return 2 * length;
    if (kind == ESCAPED) return escaped_size(text, length);
    if (kind == CELL) {
        int64_t quotes = quotes_in(text, length, &quoted);
        return length + quotes + 2 * quoted;
    }
    return length;
}

static inline uint8_t *put_as(int64_t kind, uint8_t *to, const uint8_t *text, int64_t length) {
    if (kind <= SPANS) return put(to, text, length);
    if (kind == BASE64) return put_base64(to, text, length);
    if (kind == HEX) return put_hex(to, text, length);
    return kind == ESCAPED ? put_escaped(to, text, length) : put_cell(to, text, length);
}

/* A part of every line. SAME: the same bytes for all lines. ROWS: text i is right-aligned in row i of `size` bytes,
 * with rows `stride` bytes apart, and first[i] bytes long (null: the whole row). Other kinds: text i is [first[i],
 * second[i]) of `size` bytes. */
struct part {
    int64_t kind;
    const uint8_t *bytes;
    int64_t size, stride;
    const int64_t *first, *second;
};

static inline int64_t part_of(const struct part *part, int64_t i, const uint8_t **bytes) {
    *bytes = part->bytes;
    if (part->kind == SAME) return part->size;
    if (part->kind == ROWS) {
        int64_t length = part->first ? part->first[i] : part->size;
        if (length < 0 || length > part->size) return 0;
        *bytes += i * part->stride + part->size - length;
        return length;
    }
    int64_t from = part->first[i], to = part->second[i];
    if (from < 0 || from > to || to > part->size) return 0;
    *bytes += from;
    return to - from;
}

/* Compute the end of each of n concatenated lines. */
void rmqstore_line_ends(int64_t n, int64_t count, const struct part *parts, int64_t *ends) {
    const uint8_t *bytes;
    int64_t same = 0, end = 0;
    for (int64_t k = 0; k < count; k++)
        if (parts[k].kind == SAME || (parts[k].kind == ROWS && !parts[k].first)) same += parts[k].size;
    for (int64_t i = 0; i < n; i++) ends[i] = same;
    for (int64_t k = 0; k < count; k++)
        if (parts[k].kind >= SPANS || (parts[k].kind == ROWS && parts[k].first))
            for (int64_t i = 0; i < n; i++) {
                int64_t size = part_of(parts + k, i, &bytes);
                ends[i] += size_as(parts[k].kind, bytes, size);
            }
    for (int64_t i = 0; i < n; i++) end = ends[i] += end;
}

/* Write the lines; `out` must have the size that rmqstore_line_ends computed. */
void rmqstore_lines(int64_t n, int64_t count, const struct part *parts, uint8_t *out) {
    const uint8_t *bytes;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < count; k++) {
            int64_t size = part_of(parts + k, i, &bytes);
            out = put_as(parts[k].kind, out, bytes, size);
        }
}
