/* The inner loops of the scan, compiled: see native.py, which is the only caller.
 *
 * The bytes are hostile: every function is told how many bytes count (`have`) and reads none behind them, whatever the
 * numbers say that were found in them. Positions and lengths come from outside too, and are held against `have`. There
 * is no state, nothing is allocated, nothing raises; what a function cannot say here, its caller finds out in Python.
 */
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "little-endian machines only: others do without"
#endif

#define ABI 2
#define HIGH 0x8080808080808080ULL
#define THREES 0x0303030303030303ULL
#define GATHER 0x0102040810204080ULL /* moves the lowest bits of eight bytes into the top one */

typedef uint32_t (*crc32_function)(uint32_t crc, const uint8_t *bytes, size_t size);

static uint32_t big32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static uint16_t big16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static uint64_t big64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

static uint64_t little64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static uint32_t little32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

/* The number that at most eight bytes make, none read behind them. */
static uint64_t few(const uint8_t *at, int64_t length) {
    if (length >= 8) return little64(at);
    if (length >= 4) return little32(at) | (uint64_t)little32(at + length - 4) << 8 * (length - 4);
    uint64_t value = 0;
    for (int64_t k = 0; k < length; k++) value |= (uint64_t)at[k] << 8 * k;
    return value;
}

static int same(const uint8_t *a, const uint8_t *b, int64_t length) {
    for (; length >= 8; a += 8, b += 8, length -= 8)
        if (little64(a) != little64(b)) return 0;
    return few(a, length) == few(b, length);
}

/* A span [start, start + length) that lies wholly before `have`; negative lengths are empty. */
static int inside(int64_t start, int64_t length, int64_t have) {
    return start >= 0 && start <= have && length <= have - start;
}

/* A library of another build is not used. */
int64_t rmqstore_abi(void) { return ABI; }

/* Where the fields of a head are, counted from the message, and what else `frame` must know; all from formats/. */
struct layout {
    int64_t size, magic, body_crc, queue_id, queue_offset, physical_offset, sys_flag, born_port, store_timestamp,
        store_port, body_length;
    int64_t head_size, host_growth, born_host_v6, store_host_v6, magic_v1, magic_v2;
    int64_t tail_size, tail_name; /* of the property __CRC32#, and its first eight bytes */
};

enum { WRONG_CRC = 1, ELSEWHERE = 2, HAS_TAIL = 4, ODD_PORT = 8 };

/* Columns of `rest`. */
enum {
    AT,
    QUEUE_ID,
    SYS_FLAG,
    STORE_TIMESTAMP,
    BODY_AT,
    BODY_LENGTH,
    WIDTH,
    TOPIC_AT,
    TOPIC_LENGTH,
    TEXT_AT,
    TEXT_LENGTH
};

/* What stands at [at, stop), as columns at `row`, `room` numbers apart; 0 where it is no V1 or V2 record with parts that
 * add up to its size. */
static int read_record(const uint8_t *buf, int64_t at, int64_t stop, uint64_t offset, const struct layout *of,
                       crc32_function crc32, int64_t *size, int64_t *queue_offset, int64_t *row, int64_t room,
                       uint8_t *marks) {
    const uint8_t *record = buf + at;
    int64_t whole = stop - at;
    if (whole < of->head_size) return 0;
    int64_t magic = big32(record + of->magic);
    if ((magic != of->magic_v1 && magic != of->magic_v2) || big32(record + of->size) != whole) return 0;
    int64_t wide = magic == of->magic_v1 ? 1 : 2;
    int64_t sys_flag = (int32_t)big32(record + of->sys_flag);
    int64_t born = sys_flag & of->born_host_v6 ? of->host_growth : 0;
    int64_t moved = born + (sys_flag & of->store_host_v6 ? of->host_growth : 0);
    if (whole < of->head_size + moved + wide + 2) return 0;
    int64_t body_length = (int32_t)big32(record + of->body_length + moved);
    if (body_length > whole) return 0;
    int64_t body_at = at + of->head_size + moved;
    int64_t topic_at = body_at + (body_length > 0 ? body_length : 0) + wide;
    if (topic_at + 2 > stop) return 0;
    int64_t topic_length = wide == 1 ? (int8_t)buf[topic_at - 1] : (int16_t)big16(buf + topic_at - 2);
    int64_t text_at = topic_at + topic_length + 2;
    if (topic_length < 0 || text_at > stop) return 0;
    int64_t text_length = (int16_t)big16(buf + text_at - 2);
    if (text_at + (text_length > 0 ? text_length : 0) != stop) return 0;

    uint8_t mark = 0;
    if (crc32 && body_length > 0 &&
        big32(record + of->body_crc) != (crc32(0, buf + body_at, (size_t)body_length) & 0x7FFFFFFF))
        mark |= WRONG_CRC;
    if (big64(record + of->physical_offset) != offset) mark |= ELSEWHERE;
    if (text_length >= of->tail_size && (int64_t)big64(buf + stop - of->tail_size) == of->tail_name) mark |= HAS_TAIL;
    if (big16(record + of->born_port + born) | big16(record + of->store_port + moved)) mark |= ODD_PORT;
    *marks = mark;
    *size = whole;
    *queue_offset = (int64_t)big64(record + of->queue_offset);
    row[AT * room] = at;
    row[QUEUE_ID * room] = (int32_t)big32(record + of->queue_id);
    row[SYS_FLAG * room] = sys_flag;
    row[STORE_TIMESTAMP * room] = (int64_t)big64(record + of->store_timestamp + born);
    row[BODY_AT * room] = body_at;
    row[BODY_LENGTH * room] = body_length;
    row[WIDTH * room] = wide;
    row[TOPIC_AT * room] = topic_at;
    row[TOPIC_LENGTH * room] = topic_length;
    row[TEXT_AT * room] = text_at;
    row[TEXT_LENGTH * room] = stop - text_at;
    return 1;
}

/* The records that are chained by their size fields (`size_at`, of at least `least` bytes) from `at` on and start before
 * `stop`, each with `lead` bytes in front of the message: at most `room` of them, up to the first that is not framed or
 * not wholly in the buffer. Their columns and marks go into arrays of `room` numbers; `crc32` is null where bodies are
 * not asked about; `base` is the log's offset of the buffer's first byte. Returns how many there are; `*odd` says
 * whether the one behind them is whole and not framed. */
int64_t rmqstore_read(const uint8_t *buf, int64_t have, int64_t base, int64_t at, int64_t stop, int64_t lead,
                      int64_t size_at, int64_t least, const struct layout *of, crc32_function crc32, int64_t room,
                      int64_t *size, int64_t *queue_offset, int64_t *rest, uint8_t *marks, int64_t *odd) {
    int64_t count = 0;
    *odd = 0;
    if (at < 0 || least <= 0 || lead > least) return 0;
    for (; count < room && at < stop && at <= have - size_at - 4; count++) {
        int64_t whole = big32(buf + at + size_at);
        if (whole < least || whole > have - at) break;
        __builtin_prefetch(buf + at + whole);
        __builtin_prefetch(buf + at + whole + 64);
        uint64_t offset = (uint64_t)base + (uint64_t)(at + lead); /* a file's name may be any number */
        if (!read_record(buf, at + lead, at + whole, offset, of, crc32, size + count, queue_offset + count, rest + count,
                         room, marks + count)) {
            *odd = 1;
            break;
        }
        at += whole;
    }
    return count;
}

/* CRC-32 without the top bit of every span [start, stop); 0 for empty ones and for what is not in the buffer. */
void rmqstore_crcs(crc32_function crc32, const uint8_t *buf, int64_t have, int64_t n, const int64_t *start,
                   const int64_t *stop, int64_t *out) {
    for (int64_t i = 0; i < n; i++) {
        int sound = start[i] >= 0 && start[i] < stop[i] && stop[i] <= have;
        out[i] = sound ? crc32(0, buf + start[i], (size_t)(stop[i] - start[i])) & 0x7FFFFFFF : 0;
    }
}

/* Java's String.hashCode of every span, unsigned; plain[i] is 0 where it is not ASCII and the hash means nothing. */
void rmqstore_hashes(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *length,
                     int64_t *codes, uint8_t *plain) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t code = 0;
        uint8_t seen = 0;
        if (inside(start[i], length[i], have)) {
            const uint8_t *at = buf + start[i];
            for (int64_t k = 0; k < length[i]; k++) {
                code = code * 31 + at[k];
                seen |= at[k];
            }
        }
        codes[i] = code;
        plain[i] = seen < 0x80;
    }
}

/* Whether a byte is in any of the spans. */
int64_t rmqstore_holds(const uint8_t *buf, int64_t have, int64_t n, const int64_t *start, const int64_t *length,
                       int64_t byte) {
    for (int64_t i = 0; i < n; i++)
        if (length[i] > 0 && inside(start[i], length[i], have) &&
            memchr(buf + start[i], (int)byte, (size_t)length[i]))
            return 1;
    return 0;
}

enum { ODD = 1, WIDE = 2, ENDS_LIKE = 4 };

/* Property names of at most eight bytes, `count` of them, each as a number that its bytes make, and how long it is. */
struct names {
    int64_t count;
    const uint64_t *word;
    const int64_t *length;
};

/* Which of the names a span of `length` bytes is; -1 for none. */
static int64_t which(const struct names *names, const uint8_t *at, int64_t length) {
    if (length > 8) return -1;
    uint64_t word = few(at, length);
    for (int64_t k = 0; k < names->count; k++)
        if (names->word[k] == word && names->length[k] == length) return k;
    return -1;
}

/* Where wanted values are: hits of name k are at [k * room, k * room + count[k]) of the arrays. */
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

/* One bit for each of 64 bytes: those below 3, and those that are not ASCII. */
static uint64_t marks_of(const uint8_t *at, uint64_t *wide) {
    uint64_t marks = 0, high = 0;
#ifdef __SSE2__
    const __m128i two = _mm_set1_epi8(2);
    for (int k = 0; k < 64; k += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(at + k));
        marks |= (uint64_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(bytes, two), bytes)) << k;
        high |= (uint64_t)_mm_movemask_epi8(bytes) << k;
    }
#else
    for (int k = 0; k < 64; k += 8) {
        uint64_t word = little64(at + k);
        /* the top bit of every byte below 3: none borrows from its neighbour, since all have theirs set */
        uint64_t below = ~((word | HIGH) - THREES) & ~word & HIGH;
        marks |= (below >> 7) * GATHER >> 56 << k;
        high |= ((word & HIGH) >> 7) * GATHER >> 56 << k;
    }
#endif
    *wide = high;
    return marks;
}

/* One property text of `have` readable bytes from its begin: its flags, and the values of the names asked for; -1 where
 * there is no room for those. */
static int read_text(const uint8_t *text, int64_t length, int64_t have, const struct names *names,
                     const uint32_t *ends, int64_t ends_count, int64_t row, int64_t base, struct hits *hits) {
    int64_t begin = 0; /* of the name or value that is being read */
    int64_t name = -1; /* of the value that is being read: which of those asked for */
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
        if (marks) any = 1;
        for (; marks; marks &= marks - 1) {
            int64_t here = at + __builtin_ctzll(marks);
            if (text[here] != 1 + in_value) return flags | ODD; /* a zero, or not in turn */
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

/* Flags of every property text (ODD: grammar or a zero byte; WIDE: not ASCII; ENDS_LIKE: a name ends like one of
 * `ends`, four bytes each), and where the values of the names asked for are, but for odd texts. Returns 0 where the
 * arrays for those have no room. */
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

/* Queues by topic and id: queue q has the topic [topic_at[q], + topic_length[q]) of `topics`. `slots`, a power of two
 * of them, more than there are queues, holds numbers of queues from the place of their hash on; -1 is free. */
struct queues {
    const uint8_t *topics;
    const int64_t *topic_at, *topic_length, *id;
    int64_t mask;
    int32_t *slots;
};

static uint64_t queue_hash(const uint8_t *topic, int64_t length, int64_t id) {
    uint64_t hash = (uint64_t)id * 0x9E3779B97F4A7C15ULL + (uint64_t)length;
    for (; length >= 8; topic += 8, length -= 8) {
        hash = (hash ^ little64(topic)) * 0xC2B2AE3D27D4EB4FULL;
        hash ^= hash >> 29;
    }
    hash = (hash ^ few(topic, length)) * 0x165667B19E3779F9ULL;
    return hash ^ (hash >> 32);
}

/* The slot of a queue, or the free one where it belongs. */
static int64_t slot_of(const struct queues *queues, const uint8_t *topic, int64_t length, int64_t id) {
    int64_t slot = (int64_t)(queue_hash(topic, length, id) & (uint64_t)queues->mask);
    for (;; slot = (slot + 1) & queues->mask) {
        int32_t q = queues->slots[slot];
        if (q < 0 || (queues->topic_length[q] == length && queues->id[q] == id &&
                      same(queues->topics + queues->topic_at[q], topic, length)))
            return slot;
    }
}

/* Put the queues from `first` on into the slots. */
void rmqstore_place_queues(const uint8_t *topics, const int64_t *topic_at, const int64_t *topic_length,
                           const int64_t *id, int64_t first, int64_t stop, int64_t mask, int32_t *slots) {
    struct queues queues = {topics, topic_at, topic_length, id, mask, slots};
    for (int64_t q = first; q < stop; q++)
        slots[slot_of(&queues, topics + topic_at[q], topic_length[q], id[q])] = (int32_t)q;
}

/* Number of every record's queue, -1 for those not among them; returns how many are not. */
int64_t rmqstore_find_queues(const uint8_t *buf, int64_t have, int64_t n, const int64_t *at, const int64_t *length,
                             const int64_t *queue_id, const uint8_t *topics, const int64_t *topic_at,
                             const int64_t *topic_length, const int64_t *id, int64_t mask, int32_t *slots,
                             int64_t *out) {
    struct queues queues = {topics, topic_at, topic_length, id, mask, slots};
    int64_t unknown = 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = -1;
        if (length[i] >= 0 && inside(at[i], length[i], have))
            out[i] = slots[slot_of(&queues, buf + at[i], length[i], queue_id[i])];
        unknown += out[i] < 0;
    }
    return unknown;
}

static void put64(uint8_t *at, int64_t value) {
    uint64_t big = __builtin_bswap64((uint64_t)value);
    memcpy(at, &big, 8);
}

static void put32(uint8_t *at, int64_t value) {
    uint32_t big = __builtin_bswap32((uint32_t)value);
    memcpy(at, &big, 4);
}

/* Bring rows of one queue together, each queue's in the order they had: queue q's are [starts[q], starts[q + 1]). With
 * `units`, unless it is null, as consume queues should have them: 20 bytes each (consumequeue.UNIT). `next` has room for a
 * number of every queue. Returns 0 where a number is none of the queues'. */
int64_t rmqstore_lay_out(int64_t n, const int64_t *number, const int64_t *index, const int64_t *offset,
                         const int64_t *size, const int64_t *tags, int64_t queues, int64_t *next, int64_t *starts,
                         int64_t *out_index, int64_t *out_offset, uint8_t *units) {
    memset(next, 0, (size_t)queues * sizeof *next);
    for (int64_t i = 0; i < n; i++) {
        if (number[i] < 0 || number[i] >= queues) return 0;
        next[number[i]]++;
    }
    int64_t sum = 0;
    for (int64_t q = 0; q < queues; q++) {
        starts[q] = sum;
        sum += next[q];
        next[q] = starts[q];
    }
    starts[queues] = sum;
    for (int64_t i = 0; i < n; i++) {
        int64_t to = next[number[i]]++;
        out_index[to] = index[i];
        out_offset[to] = offset[i];
        if (units) {
            put64(units + 20 * to, offset[i]);
            put32(units + 20 * to + 8, size[i]);
            put64(units + 20 * to + 12, tags[i]);
        }
    }
    return 1;
}
