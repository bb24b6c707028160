/* Find the records of a chunk, read their heads, and check their bodies. */
#include "bytes.h"

/* The caller ignores a library with another ABI number. */
int64_t rmqstore_abi(void) { return ABI; }

/* Positions of the fields in a head, relative to the message, and other constants of the format; all from formats/. */
struct layout {
    int64_t size, magic, body_crc, queue_id, queue_offset, physical_offset, sys_flag, born_port, store_timestamp,
        store_port, body_length;
    int64_t head_size, host_growth, born_host_v6, store_host_v6, magic_v1, magic_v2;
    int64_t tail_size, tail_name; /* size of the property __CRC32#, and its first eight bytes */
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

/* Read the record at [at, stop) into columns, which are `room` numbers apart from `row` on; returns 0 if it is not a V1
 * or V2 record whose parts add up to its size. */
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

/* Read records from `at` on that start before `stop`, following their size fields (at `size_at`; at least `least`),
 * each with `lead` bytes before the message. Stops after `room` records, and at the first one that is not framed or not
 * completely in the buffer. Columns and marks go to arrays of `room` numbers. Bodies are checked unless `crc32` is
 * null; `base` is the global offset of the buffer's first byte. Returns the number of records; `*odd` is set if the
 * next record is completely in the buffer but not framed. */
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
        uint64_t offset = (uint64_t)base + (uint64_t)(at + lead); /* may wrap: file names are arbitrary */
        if (!read_record(buf, at + lead, at + whole, offset, of, crc32, size + count, queue_offset + count, rest + count,
                         room, marks + count)) {
            *odd = 1;
            break;
        }
        at += whole;
    }
    return count;
}

/* Continue a CRC-32 with `size` bytes, as zlib's crc32_z does; a tenth as fast as zlib-ng's. */
uint32_t rmqstore_crc32(uint32_t crc, const uint8_t *bytes, size_t size) {
    static const uint32_t of_nibble[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
                                           0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                           0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    for (crc = ~crc; size; size--) {
        crc ^= *bytes++;
        crc = crc >> 4 ^ of_nibble[crc & 15];
        crc = crc >> 4 ^ of_nibble[crc & 15];
    }
    return ~crc;
}

/* Compute the CRC-32, with the top bit cleared, of every span [start, stop); 0 for empty and for invalid spans. */
void rmqstore_crcs(crc32_function crc32, const uint8_t *buf, int64_t have, int64_t n, const int64_t *start,
                   const int64_t *stop, int64_t *out) {
    for (int64_t i = 0; i < n; i++) {
        int sound = start[i] >= 0 && start[i] < stop[i] && stop[i] <= have;
        out[i] = sound ? crc32(0, buf + start[i], (size_t)(stop[i] - start[i])) & 0x7FFFFFFF : 0;
    }
}

/* Return the first position in [from, have - 4] of one of two numbers, whose first two bytes are the same; -1 if there is
 * none. */
int64_t rmqstore_find_either(const uint8_t *buf, int64_t have, int64_t from, int64_t one, int64_t other) {
    int64_t at = from < 0 ? 0 : from, stop = have - 3;
    uint8_t first = (uint8_t)(one >> 24), second = (uint8_t)(one >> 16);
#ifdef __SSE2__
    __m128i firsts = _mm_set1_epi8((char)first), seconds = _mm_set1_epi8((char)second);
    for (; at + 32 <= have; at += 16) {
        __m128i here = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(buf + at)), firsts);
        __m128i next = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(buf + at + 1)), seconds);
        for (int mask = _mm_movemask_epi8(_mm_and_si128(here, next)); mask; mask &= mask - 1) {
            int64_t found = at + __builtin_ctz((unsigned)mask), number = big32(buf + found);
            if (number == one || number == other) return found;
        }
    }
#endif
    for (; at < stop; at++) {
        if (buf[at] != first || buf[at + 1] != second) continue;
        int64_t number = big32(buf + at);
        if (number == one || number == other) return at;
    }
    return -1;
}
