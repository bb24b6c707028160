/* Calls every function of the loops with random bytes and numbers, in buffers of exactly the given size.
 * Built with the address and undefined-behavior sanitizers, which end the process at the first read outside. */
#include "../../rmqstore/scan/loops/lines.c"
#include "../../rmqstore/scan/loops/queues.c"
#include "../../rmqstore/scan/loops/records.c"
#include "../../rmqstore/scan/loops/texts.c"

#include <stdio.h>
#include <stdlib.h>

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static int64_t below(int64_t n) { return n > 0 ? (int64_t)(next() % (uint64_t)n) : 0; }

static uint32_t any_crc(uint32_t crc, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) crc = crc * 31 + bytes[i];
    return crc;
}

/* Return a position or length: usually near the buffer, sometimes far from it. */
static int64_t number(int64_t have) {
    static const int64_t far[] = {-1, INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, (int64_t)1 << 40, 0};
    return below(8) ? below(have + 2) : far[below(7)];
}

static uint8_t byte(int kind) {
    static const uint8_t text[] = {0, 1, 2, 1, 2, 1, 2, 'T', 'A', 'G', 'S', ' ', 0x80, 0xFF, 'E', 'L', 'A', 'Y'};
    return kind ? text[below(sizeof text)] : (uint8_t)next();
}

static void store_big(uint8_t *at, int64_t value, int size) {
    for (int i = 0; i < size; i++) at[i] = (uint8_t)(value >> 8 * (size - 1 - i));
}

/* Write a chain of almost valid records, so that the later checks are reached. */
static void records(uint8_t *buf, int64_t have, const struct layout *of) {
    for (int64_t at = 0; at + of->head_size + 3 <= have;) {
        int64_t body = below(40), topic = below(20), text = below(60);
        int64_t size = of->head_size + body + 1 + topic + 2 + text + (below(20) ? 0 : below(9) - 4);
        if (size > have - at || size <= 0) break;
        store_big(buf + at + of->size, below(50) ? size : number(have), 4);
        store_big(buf + at + of->magic, below(30) ? of->magic_v1 : of->magic_v2, 4);
        store_big(buf + at + of->sys_flag, below(10) ? 0 : (int64_t)next(), 4);
        store_big(buf + at + of->body_length, below(20) ? body : number(have), 4);
        int64_t topic_at = at + of->head_size + body;
        if (topic_at + 1 + topic + 2 <= have) {
            buf[topic_at] = (uint8_t)(below(20) ? topic : (int64_t)next());
            store_big(buf + topic_at + 1 + topic, below(20) ? text : (int64_t)next(), 2);
        }
        at += size;
    }
}

int main(int count, char **words) {
    state = count > 1 ? (uint64_t)strtoull(words[1], NULL, 10) * 2654435761u + 1 : 1;
    int64_t rounds = count > 2 ? atoll(words[2]) : 1000, seen = 0;
    const struct layout of = {0, 4, 8, 12, 20, 28, 36, 52, 56, 68, 84, 88, 12, 0x10, 0x20, 0xDAA320A7, 0xDAA320AB, 20, 7};
    for (int64_t round = 0; round < rounds; round++) {
        int64_t have = below(below(4) ? 300 : 3000), n = below(40), kind = below(3);
        uint8_t *buf = malloc((size_t)have + 1);
        uint8_t *exact = malloc((size_t)have); /* the sanitizer checks its end */
        for (int64_t i = 0; i < have; i++) buf[i] = byte(kind > 0);
        if (kind == 2) records(buf, have, &of);
        memcpy(exact, buf, (size_t)have);
        free(buf);

        int64_t *start = malloc((size_t)n * 8), *length = malloc((size_t)n * 8), *stop = malloc((size_t)n * 8);
        int64_t *id = malloc((size_t)n * 8), *out = malloc((size_t)n * 8);
        uint8_t *small = malloc((size_t)n);
        for (int64_t i = 0; i < n; i++) {
            start[i] = number(have), length[i] = number(have), id[i] = below(3);
            stop[i] = below(2) ? start[i] : number(have);
            if (below(3) && start[i] >= 0 && start[i] <= have) length[i] = below(have - start[i] + 1);
        }
        rmqstore_crcs(any_crc, exact, have, n, start, stop, out);
        rmqstore_hashes(exact, have, n, start, length, out, small);
        seen += rmqstore_holds(exact, have, n, start, length, below(256));

        int64_t room = below(n + 3), odd;
        int64_t *size = malloc((size_t)room * 8), *offset = malloc((size_t)room * 8);
        int64_t *rest = malloc((size_t)room * 8 * 11);
        uint8_t *marks = malloc((size_t)room);
        int64_t lead = below(2) * 48;
        seen += rmqstore_read(exact, have, number(have), below(3) ? 0 : number(have), number(have), lead, lead ? 4 : 0,
                              91 + lead, &of, below(2) ? any_crc : NULL, room, size, offset, rest, marks, &odd);

        static const uint64_t words_[] = {0x53474154, 0x5359454B, 0x59454B5F51494E55};
        static const int64_t lengths[] = {4, 4, 8};
        static const uint32_t ends[] = {0x4D554E5F, 0x48435441, 0x59414C45};
        int64_t counts[3], *found = malloc((size_t)room * 8 * 9);
        seen += rmqstore_texts(exact, have, n, start, length, small, 3, words_, lengths, 3, ends, room, counts, found,
                               found + room * 3, found + room * 6);

        /* queues with names from the buffer, looked up by arbitrary spans */
        int64_t queues = 0, mask = 127, at[40], sizes[40], ids[40];
        int32_t slots[128];
        memset(slots, -1, sizeof slots);
        for (int64_t i = 0; i < n && queues < 40; i++)
            if (start[i] >= 0 && start[i] <= have && length[i] >= 0 && length[i] <= have - start[i])
                at[queues] = start[i], sizes[queues] = length[i], ids[queues++] = id[i];
        rmqstore_place_queues(exact, at, sizes, ids, 0, queues, mask, slots);
        seen += rmqstore_find_queues(exact, have, n, start, length, id, exact, at, sizes, ids, mask, slots, out);

        int64_t *next = malloc(40 * 8), *starts = malloc(41 * 8), *laid = malloc((size_t)n * 16);
        uint8_t *units = malloc((size_t)n * 20);
        for (int64_t i = 0; i < n; i++) id[i] = below(12) ? below(40) : number(40);
        seen += rmqstore_lay_out(n, id, start, length, stop, out, 40, next, starts, laid, laid + n, units);
        for (int64_t i = 0; i < n; i++) id[i] = below(3);
        seen += rmqstore_lay_out(n, id, start, length, NULL, NULL, 3, next, starts, laid, laid + n, NULL);
        static const struct style styles[] = {
            {2, 2, 3, 3, 1, -1, "{\"", "\"}", "\":\"", "\",\""},
            {4, 4, 5, 5, 0, ',', "\"{\"\"", "\"\"}\"", "\"\":\"\"", "\"\",\"\""}};
        int64_t space = below(2) ? below(200) : 4 * have + 40 * n, from = below(space + 1);
        uint8_t *text = malloc((size_t)space);
        int64_t *places = malloc((size_t)n * 8 * 8);
        for (int64_t i = 0; i < n; i++) stop[i] = below(3) ? (int64_t)((uint64_t)start[i] + (uint64_t)below(60)) : number(have);
        memset(places, 0, (size_t)n * 8 * 8);
        seen += rmqstore_objects(exact, have, n, start, stop, styles + below(2), 3, words_, lengths, text, from, space,
                                 places, places + 4 * n, small);
        for (int64_t i = 0; i < n; i++) id[i] = number(16);
        const struct part parts[] = {{SAME, exact, below(have + 1), 0, NULL, NULL},
                                     {SPANS, exact, have, 0, start, stop},
                                     {ROWS, units, 20, 20, NULL, NULL},
                                     {ROWS, units + 4, 16, 20, id, NULL}};
        int64_t count_ = below(5);
        memset(units, 7, (size_t)n * 20);
        rmqstore_line_ends(n, count_, parts, out);
        uint8_t *lines = malloc(n ? (size_t)out[n - 1] : 0);
        rmqstore_lines(n, count_, parts, lines);
        free(text), free(places), free(lines);
        free(next), free(starts), free(laid), free(units);
        free(exact), free(start), free(length), free(stop), free(id), free(out), free(small);
        free(size), free(offset), free(rest), free(marks), free(found);
    }
    printf("%lld\n", (long long)seen);
    return 0;
}
